"""Show that a converted program trains the same: record runs of both, and compare what they did.

`record` runs a script as it is and writes down its batches, losses and parameters · `reference` makes
nn.DataParallel on several GPUs out of one CPU · `warm` starts recorded ranks without importing torch
again · `harness` starts runs and reads them back · `compare` says in sentences what differs.
"""
