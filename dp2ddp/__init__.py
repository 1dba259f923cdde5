"""dp2ddp rewrites DataParallel training code into DistributedDataParallel form."""

__version__ = "0.1.0"
