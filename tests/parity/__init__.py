"""Show that a converted program trains the same: record runs of both, and compare what they did.

`dp2ddp.verify` records runs and plays nn.DataParallel on a CPU · `harness` starts recorded runs of the fixtures and
reads them back · `compare` says in sentences what differs · `plant` makes mistakes.
"""
