"""torch.compile and this package."""

from __future__ import annotations

import functools


@functools.cache
def leave_out() -> None:
    """Have torch.compile leave out this package's code, as it does torch's own wrapper, and not the models it calls.

    What a forward weighs, say, is no constant.
    """
    import torch._dynamo  # takes seconds, and torch's DistributedDataParallel needs it too

    torch._dynamo.trace_rules.add(__package__)
