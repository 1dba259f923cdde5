"""Stands in for neptune."""

from tracked import names_of

__getattr__ = names_of(__name__)
