"""Stands in for wandb."""

from tracked import names_of

__getattr__ = names_of(__name__)
