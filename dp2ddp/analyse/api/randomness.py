"""What differs from process to process and from run to run: random numbers and their seeds, clocks, identities."""

from __future__ import annotations

from dp2ddp.analyse.api import operations

# What draws random numbers from a generator that all code shares, by the beginning of its name.
DRAWS = ("random.", "numpy.random.", "torch.rand", "torch.normal", "torch.bernoulli", "torch.multinomial")
# What of these draws as many numbers as its arguments say, be it one: by the beginning of the name, and by the name.
DRAWS_NUMBERS = ("random.", "numpy.random.")
DRAWS_TENSORS = frozenset({"torch.rand", "torch.randn", "torch.randint", "torch.randperm"})
# Those, and what draws from the system.
DRAWS_ANY = (*DRAWS, "secrets.")
# What of these draws several numbers at once, by its last name, and how many arguments it takes for that.
DRAWS_SEVERAL = {
    "sample": 2,
    "choices": 2,
    "choice": 2,
    "permutation": 1,
    "randperm": 1,
    "rand": 1,
    "randn": 1,
    "random_sample": 1,
    "standard_normal": 1,
    "randint": 2,
    "integers": 3,
    "normal": 3,
    "uniform": 3,
    "multinomial": 2,
}
# Those of Python's that draw one number for as many arguments.
DRAWS_ONE = frozenset({"random.randint", "random.uniform", "random.normalvariate"})
# Arguments that say how many.
HOW_MANY = frozenset({"size", "k"})
# And how likely each of what they draw from is.
HOW_LIKELY = frozenset({"p", "weights"})
# Methods of tensors that draw random numbers, and that nothing else has.
DRAWING_METHODS = frozenset(
    it
    for it in operations.METHODS
    if operations.NAMES[f"torch.Tensor.{it}"].random
    and (it.endswith("_") or it in ("multinomial", "bernoulli"))
)
# What puts numbers in a random order.
PERMUTATIONS = frozenset({"torch.randperm", "numpy.random.permutation"})
# Those and what numbers are taken of before they are put in one.
ORDERS = PERMUTATIONS | {"numpy.arange", "torch.arange"}
# Modules whose functions draw from a generator that all code shares.
GENERATOR_HOMES = ("torch", "torch.nn.functional", "random", "numpy.random")

# What seeds a generator by the number that it is given.
SEEDS = frozenset("""
    torch.manual_seed torch.random.manual_seed torch.cuda.manual_seed torch.cuda.manual_seed_all
    torch.Generator.manual_seed
    """.split())
# Those that seed the generator from which samplers draw, and functions of libraries that do.
SEEDS_TORCH = frozenset("""
    torch.manual_seed torch.random.manual_seed torch.seed torch.random.seed transformers.set_seed
    transformers.trainer_utils.set_seed transformers.enable_full_determinism accelerate.utils.set_seed
    pytorch_lightning.seed_everything lightning.seed_everything lightning.pytorch.seed_everything
    lightning_fabric.seed_everything lightning.fabric.seed_everything
    """.split())
# Those that take the clock, or the system's own noise, where they are given nothing.
UNSEEDED = frozenset("""
    random.seed random.Random numpy.random.seed numpy.random.RandomState numpy.random.default_rng
    numpy.random.SeedSequence numpy.random.MT19937 numpy.random.PCG64 numpy.random.PCG64DXSM numpy.random.Philox
    numpy.random.SFC64 torch.seed torch.random.seed torch.Generator.seed
    """.split())
# What reads or sets the state of a generator.
GENERATOR_STATES = frozenset("""
    numpy.random.get_state numpy.random.set_state random.getstate random.setstate
    """.split())
# The arguments of all of them that take the seed.
SEED_ARGUMENTS = frozenset({"seed", "a", "entropy"})

# Calls whose result is this process's own: clocks, process ids, the system's noise.
OF_PROCESS = frozenset("""
    time.time time.time_ns time.perf_counter time.perf_counter_ns time.monotonic time.monotonic_ns time.process_time
    time.clock timeit.default_timer datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today
    os.getpid os.urandom uuid.uuid1 uuid.uuid4 secrets.randbits secrets.randbelow secrets.token_hex
    """.split())
# Calls whose text is this process's own, or this machine's.
OF_PROCESS_OR_MACHINE = OF_PROCESS | frozenset("""
    time.strftime time.localtime time.gmtime time.ctime time.asctime datetime.date.today
    socket.gethostname platform.node tempfile.mkdtemp tempfile.mkstemp tempfile.mktemp
    """.split())
# Those that write out the time that they are given, and the argument's place.
FORMATS_TIME = {"time.strftime": 1, "time.localtime": 0, "time.gmtime": 0, "time.ctime": 0, "time.asctime": 0}
# Methods of torch's distributions that draw.
DISTRIBUTION_METHODS = frozenset({"sample", "rsample", "sample_n"})
# The home of what hands samples out, in an order that may be drawn.
SAMPLES_HOME = ("torch.utils.data.",)
# What of that draws when it is iterated, by the end of its name.
DRAWING_SAMPLERS = ("RandomSampler",)
