"""Which devices there are, which one is taken, and what moves tensors there."""

from __future__ import annotations

AVAILABLE = "torch.cuda.is_available"
COUNT = "torch.cuda.device_count"
# What a device is, or makes one.
DEVICES = frozenset({"torch.device", "torch.accelerator.current_accelerator", "dp2ddp.runtime.device"})
# What makes a device the process's own.
BINDS = frozenset(
    {"torch.cuda.set_device", "torch.accelerator.set_device_index", "torch.accelerator.set_device_idx"}
)
# What makes a GPU the current one while a block runs.
BLOCKS = frozenset({"torch.cuda.device"})
# What else is given a GPU first.
DEVICE_FIRST = frozenset({"torch.cuda.synchronize", "torch.cuda.Stream"})
# The runtime's choice of devices, and the variable that hides devices.
CHOSEN = "dp2ddp.runtime.use_devices"
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Methods that move a tensor or a module to a device; arguments that name one.
MOVES = frozenset({"cuda", "to"})
DEVICE_ARGUMENTS = frozenset({"device", "map_location"})
# The method that says on which GPU a tensor is.
DEVICE_OF_TENSOR = "get_device"
# The words that a device's name begins with.
DEVICE_TYPES = frozenset({"cuda", "cpu"})
# Methods that give a module another type, and the types of half precision.
CASTS = frozenset({"to", "type"})
HALF_TYPES = frozenset({"torch.half", "torch.float16"})
# What reads settings that are no part of the program: a device may be named there, with its number.
READS_SETTINGS = (
    "json.",
    "yaml.",
    "ruamel.",
    "toml.",
    "tomli.",
    "tomllib.",
    "configparser.",
    "omegaconf.",
    "easydict.",
)
