"""PyTorch Geometric, as far as its DataParallel goes: its contract, in other words."""
