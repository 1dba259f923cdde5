"""Where loguru has its logger."""

import sys
from collections import namedtuple

Level = namedtuple("Level", "name no color icon")
NUMBERS = {"DEBUG": 10, "INFO": 20, "SUCCESS": 25, "WARNING": 30, "ERROR": 40}


class Logger:
    def __init__(self):
        self._options = (None, 0)
        self._sinks = [sys.stderr.write]

    def add(self, sink):
        self._sinks.append(open(sink, "a", buffering=1).write if isinstance(sink, str) else sink)

    def level(self, name):
        return Level(name, NUMBERS[name], "", "")

    def _log(self, level, from_decorator, options, message, args, kwargs):
        for write in self._sinks:
            write(f"{level} | {message.format(*args, **kwargs)}\n")

    def info(self, message, *args, **kwargs):
        self._log("INFO", False, self._options, message, args, kwargs)

    def error(self, message, *args, **kwargs):
        self._log("ERROR", False, self._options, message, args, kwargs)

    def log(self, level, message, *args, **kwargs):
        self._log(level, False, self._options, message, args, kwargs)
