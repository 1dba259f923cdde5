"""Showing and writing what ``convert`` planned. Printing and writing of files happens here and in ``cli``."""
