"""Modules, parameters and gradients: what makes, holds, hooks, trains and switches them."""

from __future__ import annotations

from dp2ddp.analyse.api.parallel import STEPS

MODULE = "torch.nn.Module"
# What calling a module runs.
CALLS = ("__call__", "forward")

# Parameters and containers

PARAMETERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})
# Where layers of torch's have theirs.
LAYER_PARAMETERS = frozenset({"weight", "bias"})
# Those, and lists of them.
HOLDS_PARAMETERS = PARAMETERS | {"torch.nn.ParameterList"}
# Containers of layers, and the methods that add to them.
SEQUENTIAL = "torch.nn.Sequential"
CONTAINERS = frozenset({SEQUENTIAL, "torch.nn.ModuleList", "torch.nn.ModuleDict"})
CONTAINER_ADDS = frozenset("append extend insert add_module update __setitem__ register_module".split())
# What is set where layers are initialised.
INITIALISED = frozenset({"data", "requires_grad", "inplace"})
# What a module hands out of itself: every process has the same.
HANDS_OUT_PARAMETERS = frozenset({"parameters", "named_parameters"})
# What hands out the modules within one, itself or not.
HANDS_OUT_MODULES = frozenset({"children", "named_children", "modules", "named_modules"})
# What hands out parts of a module with their names, which a wrap gives a prefix.
NAMED = frozenset({"named_parameters", "named_buffers", "named_modules", "named_children"})
# How the names begin of layers, and of libraries of models.
LAYER_HOMES = ("torch.nn.", "torchvision.models.")
# The module that has torch's layers; those that may be given something else than a tensor.
LAYER_HOME = "torch.nn"
TAKE_ANYTHING = CONTAINERS | frozenset(
    f"torch.nn.{name}" for name in ("Module", "Identity", "DataParallel", "RNN", "LSTM", "GRU")
)
# How the names begin of functions of layers; of those, and of recurrent layers' helpers.
FUNCTIONS = "torch.nn.functional."
PURE_FUNCTIONS = (FUNCTIONS, "torch.nn.utils.rnn.")
# What of torch.nn has no state, by the end of its name.
STATELESS = ("Loss.__call__", "Softmax.__call__", "Sigmoid.__call__", "Softmax2d.__call__")
# What has optimizers, beside them: by the end of the package's name.
BESIDE_OPTIMIZERS = (".lr_scheduler", ".swa_utils")
SCHEDULERS = "torch.optim.lr_scheduler."

# Attributes of modules

# What a wrapped model has as a bare one has it.
MODULE_NAMES = frozenset("""
    module parameters named_parameters modules named_modules children named_children buffers named_buffers state_dict
    load_state_dict train eval training zero_grad requires_grad_ to cuda cpu float half double bfloat16 apply forward
    register_forward_hook register_buffer type share_memory __class__ __dict__ device_ids
    """.split())
# What else a wrap has, of its own or as every module.
WRAP_NAMES = MODULE_NAMES | frozenset("""
    add_module call_super_init compile dim dump_patches extra_repr gather get_buffer
    get_extra_state get_parameter get_submodule output_device parallel_apply
    register_backward_hook register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
    register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
    register_state_dict_post_hook register_state_dict_pre_hook replicate scatter set_extra_state set_submodule
    src_device_obj to_empty xpu
    """.split())
# What objects have of classes from outside that the project's derive from: all else is the project's own.
HAVE_ONLY = {
    MODULE: WRAP_NAMES,
    "torch.utils.data.Dataset": frozenset({"__getitem__", "__add__"}),
    "torch.utils.data.IterableDataset": frozenset({"__iter__", "__add__"}),
}
# Methods of modules and functions that neither compute nor change what is computed.
MANAGES = frozenset("""
    train eval state_dict load_state_dict parameters named_parameters buffers named_buffers modules named_modules
    children named_children to cuda cpu half float double type apply zero_grad requires_grad_ register_buffer
    register_forward_hook register_forward_pre_hook register_full_backward_hook register_parameter add_module
    """.split())
# Methods that a wrapped network has as a bare one has them, where every call of it is wrapped.
SAME_OF_WRAPPED = frozenset("parameters zero_grad state_dict load_state_dict requires_grad_ half".split())

# Hooks

# Methods that have a module do something else when it is called; forwards, and backwards.
FORWARD_HOOKS = frozenset({"register_forward_hook", "register_forward_pre_hook"})
BACKWARD_HOOKS = frozenset({"register_full_backward_hook", "register_backward_hook"})
MODULE_HOOKS = FORWARD_HOOKS | {"register_full_backward_hook"}
# Those of tensors, and of parameters once a gradient is there.
TENSOR_HOOKS = frozenset({"register_hook"})
PARAMETER_HOOKS = frozenset({"register_post_accumulate_grad_hook"})

# Training

# Methods that train; those, and what loads a state; and what else changes what is trained, or how.
STEPS_OF_TRAINING = frozenset({"backward", "step"})
TRAINS = STEPS_OF_TRAINING | {"load_state_dict"}
# What puts values into the state of a model.
FILLS_STATE = frozenset({"load_state_dict", "copy_"})
CHANGES_TRAINING = TRAINS | {"zero_grad", "requires_grad_"}
# Methods that train, and what keeps or loads a state.
TRAINS_OR_KEEPS = TRAINS | {"deepcopy"}
# What changes gradients, by the end of its name.
CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")
# What of a parameter changes while it is trained.
TRAINED_ATTRIBUTES = frozenset({"grad", "data"})
# How the names begin of what says how it is trained; those without modules.
STEERS = ("torch.optim.", "torch.utils.data.")
STEERS_OR_COMPUTES = (*STEERS, "torch.nn.")
# What scales a loss, by the end of its name.
SCALES_LOSS = ("amp.GradScaler.scale", "amp.scale_loss")

# Methods of a module that put it into training mode, or out of it.
SETS_MODE = frozenset({"train", "eval"})

# Gradients

GRAD = "torch.autograd.grad"
AUTOGRAD_FUNCTION = "torch.autograd.Function"
# What computes gradients beside ``backward()``.
GRADIENTS = (GRAD, "torch.autograd.backward")
# What makes the optimizer's step after the backward pass, in one call.
BACKWARD_STEPS = frozenset("""
    timm.utils.NativeScaler.__call__ timm.utils.cuda.NativeScaler.__call__
    timm.utils.ApexScaler.__call__ timm.utils.cuda.ApexScaler.__call__
    """.split())
_LOSS_FIRST = (
    *BACKWARD_STEPS,
    *"""
    accelerate.Accelerator.backward accelerate.accelerator.Accelerator.backward deepspeed.initialize.[].backward
    apex.fp16_utils.FP16_Optimizer.backward apex.fp16_utils.fp16_optimizer.FP16_Optimizer.backward
    """.split(),
)
_TENSOR_FIRST = """
    lightning.Fabric.backward lightning.fabric.Fabric.backward lightning.fabric.fabric.Fabric.backward
    lightning_fabric.Fabric.backward lightning_fabric.fabric.Fabric.backward
    """.split()
# Functions that a loss is given to: the argument, which comes first, and what its gradient is multiplied with, second.
BACKWARDS = {
    "torch.autograd.backward": ("tensors", "grad_tensors"),
    "torch.Tensor.backward": ("self", "gradient"),
    **dict.fromkeys(_LOSS_FIRST, ("loss", "")),
    **dict.fromkeys(_TENSOR_FIRST, ("tensor", "")),
}
# What has gradients computed where they were not; what has none computed, by the end of its name.
ENABLES_GRADIENTS = frozenset("""
    torch.enable_grad torch.set_grad_enabled torch.autograd.grad_mode.set_grad_enabled
    """.split())
NO_GRADIENTS = frozenset({"torch.no_grad", "torch.inference_mode"})
DISABLES_GRADIENTS = ("torch.no_grad", "torch.set_grad_enabled", "torch.inference_mode")

# Replicas

# The arguments of ``data_parallel()`` that are the model, its batch and its devices; words that all that uses
# replicas is written with.
DATA_PARALLEL_ARGUMENTS = ("module", "inputs", "device_ids")
FURTHER_ARGUMENTS = ("output_device", "dim", "module_kwargs")
DATA_PARALLEL_WORDS = ("DataParallel", "data_parallel", "parallel_apply")
# What a class of DataParallel may change of what a call of a model does; of that, the steps that may name devices:
# the runtime has them name each rank's own.
OVERRIDES = (*CALLS, *STEPS)
NAMES_DEVICES = ("scatter", "gather")
# The method of a layer that is told of its replicas; what has a DataParallel do so, where it is not of the project.
CALLBACK = "__data_parallel_replicate__"
CALLBACK_PATCHES = (".patch_replication_callback",)
# A package whose BatchNorm waits for that of other GPUs of the same process.
SYNCHRONISED = "encoding.nn."
