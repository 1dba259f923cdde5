"""Mixed precision: apex's functions, their parameters and classes, and what autocast minds."""

from __future__ import annotations

from dp2ddp.analyse.api.handing import INITIALIZE
from dp2ddp.analyse.api.layers import FUNCTIONS, GRADIENTS
from dp2ddp.analyse.api.parallel import APEX_WRAP, WRAP

# apex.amp

AMP = "apex.amp"
SYNC_NORMS = "apex.parallel.convert_syncbn_model"
SCALE, MASTER_PARAMETERS = f"{AMP}.scale_loss", f"{AMP}.master_params"
LOADS_STATE = f"{AMP}.load_state_dict"
AMP_STATES = frozenset({f"{AMP}.state_dict", LOADS_STATE})
AMP_KNOWN = frozenset({INITIALIZE, SCALE, MASTER_PARAMETERS, *AMP_STATES})
# The parameters of amp.initialize(), in order, and what else than None changes nothing in O1.
INITIALIZE_PARAMETERS = (
    *("models", "optimizers", "enabled", "opt_level", "cast_model_type", "patch_torch_functions"),
    *("keep_batchnorm_fp32", "master_weights", "loss_scale", "cast_model_outputs", "num_losses", "verbosity"),
)
HARMLESS = {"loss_scale": "dynamic", "num_losses": 1, "patch_torch_functions": True}
# The parameters of amp.scale_loss() that have a place in torch's scaler.
SCALE_PARAMETERS = ("loss", "optimizers")
# What shares autocast's state, or computes gradients beside the scaled ones, by the beginning of its name.
BESIDE_AUTOCAST = ("torch.autocast", "torch.amp.", "torch.cuda.amp.", *GRADIENTS)

# apex.parallel.DistributedDataParallel

WRAPPED = frozenset({APEX_WRAP, WRAP})
# Its parameters after the module, in order, and what they are where they are not given.
WRAP_DEFAULTS = {
    "message_size": 10000000,
    "delay_allreduce": False,
    "shared_param": None,
    "allreduce_trigger_params": None,
    "retain_allreduce_buffers": False,
    "allreduce_always_fp32": False,
    "num_allreduce_streams": 1,
    "allreduce_communicators": None,
    "gradient_average": True,
    "gradient_predivide_factor": 1.0,
    "gradient_average_split_factor": None,
    "prof": False,
}
# When gradients are sent, not what becomes of them.
TIMING = frozenset({"message_size", "delay_allreduce"})
# What only apex's has; where it can't be seen whose it is, those names that nothing else has.
SWITCHES = frozenset("""
    enable_allreduce disable_allreduce _disable_allreduce needs_refresh allreduce_buffers
    """.split())
WRAP_ATTRIBUTES = frozenset({
    *(*WRAP_DEFAULTS, *SWITCHES, "active_params", "buckets", "bucket_streams", "bucket_events", "world_size"),
})  # fmt: skip
# What torch's does not see through, or computes gradients beside backward(), by the beginning of its name.
BESIDE_WRAP = ("torch.utils.checkpoint.", *GRADIENTS)

# Autocast

# Functions that compute nothing that half precision changes.
PRECISION_INVARIANT = frozenset(
    f"{FUNCTIONS}{name}"
    for name in ("pad", "one_hot", "interpolate", "upsample", "unfold", "fold", "dropout")
)
