"""Conversions in which what needs the whole batch behind the forward keeps whole batches: ``--no-gather``.

Of these the tests speak that say why no part of a batch can be trained with.
"""

from __future__ import annotations

from functools import partial

from dp2ddp.convert import convert

ungathered = partial(convert, no_gather=True)
