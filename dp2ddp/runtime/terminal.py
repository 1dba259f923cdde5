"""A terminal at which nobody types: ``stty size`` and progress bars ask standard input how wide it is."""

from __future__ import annotations

import os
import struct

_LINES_AND_COLUMNS = (24, 80)
_END_OF_INPUT = b"\x04"


def idle(like: int | None = None) -> int:
    """Open one, for this process and what it starts; reading from it ends at once.

    Args:
        like: an open terminal of the wanted size; one of 24 lines and 80 columns without.
    """
    import fcntl
    import termios

    size = os.get_terminal_size(like) if like is not None else None
    columns, lines = size or _LINES_AND_COLUMNS[::-1]
    typing, terminal = os.openpty()  # the first stays open as long as the process runs
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    os.write(typing, _END_OF_INPUT * 16)
    return terminal
