"""Stands in for apex, which is not to be had from the package index: as much of it as the tests' programs use."""
