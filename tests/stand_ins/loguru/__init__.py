"""loguru: a logger with handlers, levels and a file of its own."""

from ._logger import Logger

logger = Logger()
