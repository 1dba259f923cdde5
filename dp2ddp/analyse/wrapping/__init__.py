"""Which models DataParallel wraps, by whatever name it is called."""
