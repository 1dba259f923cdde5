"""The converted fixtures train as the DataParallel programs did."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest
import torch

from parity import compare, plant
from parity.harness import BATCH, EPOCHS, SAMPLES, SHAPES, TESTS, Lab, Run, Shape

shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
two_shapes = pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=name, marks=[] if name in ("flat", "trainer") else pytest.mark.slow)
        for name, shape in SHAPES.items()
    ],
)
resumable = pytest.mark.parametrize(
    "shape", [shape for shape in SHAPES.values() if shape.resume], ids=lambda shape: shape.name
)
# The fixtures that each launcher starts unless slow tests are asked for.
LAUNCHERS = {"warm": tuple(SHAPES), "plain": ("flat",), "torchrun": ("flat",)}


def launched(*launchers: str) -> pytest.MarkDecorator:
    """Every fixture by these launchers."""
    return pytest.mark.parametrize(
        ("shape", "launcher"),
        [
            pytest.param(
                shape,
                launcher,
                id=f"{launcher}-{name}",
                marks=[] if name in LAUNCHERS[launcher] else pytest.mark.slow,
            )
            for launcher in launchers
            for name, shape in SHAPES.items()
        ],
    )


def order(run: Run, shape: Shape, samples: int = SAMPLES, batch: int = BATCH) -> list[str]:
    """What is wrong with the order of a run's data."""
    return compare.order(run.ranks, samples=samples, batch=batch, drop_last=shape.drop_last)


# It trains the same.


@launched(*LAUNCHERS)
def test_two_processes_make_dataparallel_s_steps(lab: Lab, shape: Shape, launcher: str) -> None:
    """Losses and parameters of every step, in float64, on the same samples, however the ranks were started."""
    after = lab.after(shape.name, 2, launcher).ok()
    before = lab.before(shape.name, 2, launcher=launcher).ok()
    assert len(after.ranks) == 2
    assert compare.training(before.ranks[0], after.ranks, losses=1e-9, parameters=1e-12, first=20) == []
    assert order(after, shape) == []


@launched("warm", "plain")
def test_one_process_makes_the_unwrapped_model_s_steps(lab: Lab, shape: Shape, launcher: str) -> None:
    """Under plain `python` the converted script is an ordinary one."""
    after = lab.after(shape.name, 1, launcher).ok()
    before = lab.before(shape.name, 1, launcher=launcher).ok()
    assert compare.training(before.ranks[0], after.ranks, losses=1e-9, parameters=1e-12) == []
    assert order(after, shape) == []
    assert shape.numbers(after.printed) == shape.numbers(before.printed) != []


@pytest.mark.sample(every=2)
@shapes
def test_two_processes_agree_in_float32(lab: Lab, shape: Shape) -> None:
    """The type people train in, where the number of processes is a power of two."""
    after = lab.after(shape.name, 2, float64=False).ok()
    before = lab.before(shape.name, 2, float64=False).ok()
    assert compare.training(before.ranks[0], after.ranks, losses=1e-5, parameters=1e-5, first=20) == []


@pytest.mark.sample("3-33-251-flat", "3-33-251-trainer", "4-4-33-flat")
@shapes
@pytest.mark.parametrize(
    ("processes", "batch", "samples"),
    [
        pytest.param(2, 32, 251, marks=pytest.mark.slow),
        pytest.param(2, 32, 255, marks=pytest.mark.slow),
        pytest.param(3, 33, 250, marks=pytest.mark.slow),
        (3, 33, 251),
        pytest.param(4, 32, 253, marks=pytest.mark.slow),
        pytest.param(4, 32, 255, marks=pytest.mark.slow),
        (4, 4, 33),
    ],
)
def test_uneven_data_and_more_processes(
    lab: Lab, shape: Shape, processes: int, batch: int, samples: int
) -> None:
    """Every rank makes DataParallel's number of steps to the end of every epoch, and the same steps."""
    which = {"batch": batch, "samples": samples}
    after = lab.after(shape.name, processes, **which).ok()
    before = lab.before(shape.name, processes, **which).ok()
    assert len(after.ranks) == processes
    assert order(after, shape, samples, batch) == []
    assert compare.training(before.ranks[0], after.ranks, losses=1e-9, parameters=1e-12, first=20) == []
    assert shape.numbers(after.printed) == shape.numbers(before.printed) != []


@shapes
@pytest.mark.parametrize(("processes", "batch"), [(4, 2), (3, 1)])
def test_a_batch_of_fewer_samples_than_ranks_ends_before_training(
    lab: Lab, shape: Shape, processes: int, batch: int
) -> None:
    """On every rank, with the numbers that matter, and with nothing trained or written."""
    after = lab.after(shape.name, processes, batch=batch)
    assert len(after.codes) == processes
    assert all(code > 0 for code in after.codes)
    assert [notes["losses"] for notes in after.ranks if notes["losses"]] == []
    assert after.files() == []
    assert str(batch) in after.errors
    assert str(processes) in after.errors
    assert after.seconds < 60


@pytest.mark.slow
def test_such_an_end_goes_through_the_launcher(lab: Lab) -> None:
    """The command that was typed ends too, with a code that says so."""
    after = lab.after("main", 3, "plain")
    assert after.code not in (0, 124)
    assert after.files() == []
    assert "32" in after.errors


# The data.


@pytest.mark.sample("flat", "trainer")
@shapes
def test_the_order_follows_the_seed(lab: Lab, shape: Shape) -> None:
    """Two seeds, two orders."""
    assert seeds_differ(lab.after(shape.name, seed=1).ok(), lab.after(shape.name, seed=2).ok()) == []


@pytest.mark.sample("torchrun-flat")
@launched("plain", "torchrun")
def test_one_seed_is_one_order(lab: Lab, shape: Shape, launcher: str) -> None:
    """Whichever launcher started the ranks."""
    runs = (lab.after(shape.name, 2, by).ok() for by in ("warm", launcher))
    one, other = (compare.global_batches(run.ranks) for run in runs)
    assert one == other


def seeds_differ(one: Run, other: Run) -> list[str]:
    """A sentence where two runs with different seeds deal the same order."""
    same = compare.global_batches(one.ranks) == compare.global_batches(other.ranks)
    return ["two seeds deal one order"] if same else []


@pytest.mark.sample("warm")
@launched(*LAUNCHERS)
def test_evaluation_covers_the_whole_set(lab: Lab, shape: Shape, launcher: str) -> None:
    """Every test sample once, and the printed numbers are DataParallel's, character by character."""
    after = lab.after(shape.name, 2, launcher).ok()
    before = lab.before(shape.name, 2, launcher=launcher).ok()
    assert compare.evaluation(after.ranks, samples=TESTS) == []
    assert shape.numbers(after.printed) == shape.numbers(before.printed) != []


# The tests see mistakes.


def planted(lab: Lab, shape: Shape, kind: type, *, samples: int = SAMPLES, seed: int | None = None) -> Run:
    """A run of the converted program with a mistake in it."""
    program = plant.plant(kind, lab.converted(shape.name), lab.place("planted") / shape.name)
    arguments = lab.arguments(samples=samples, seed=seed)
    return lab.run(program / "train.py", arguments, processes=2, env={"DP2DDP_CHECK": "0"}).ok()


@two_shapes
def test_a_missing_all_reduce_is_seen(lab: Lab, shape: Shape) -> None:
    """Without DDP the ranks go their own ways from the first step on."""
    broken = planted(lab, shape, plant.Unsynchronised)
    before = lab.before(shape.name).ok()
    assert order(broken, shape) == []
    assert any("parameters differ" in line for line in agreement(before, broken))
    assert agreement(before, lab.after(shape.name)) == []


def agreement(before: Run, after: Run) -> list[str]:
    """What the strict comparison of the tests above says."""
    return compare.training(before.ranks[0], after.ranks, losses=1e-9, parameters=1e-12, first=20)


@two_shapes
def test_a_missing_sampler_is_seen(lab: Lab, shape: Shape) -> None:
    """Every rank draws everything: too many steps, samples drawn again."""
    broken = planted(lab, shape, plant.Unsharded)
    assert any("drew" in line for line in order(broken, shape))
    assert any("batches, before's" in line for line in agreement(lab.before(shape.name), broken))


@two_shapes
def test_a_missing_set_epoch_is_seen(lab: Lab, shape: Shape) -> None:
    """The second epoch repeats the first."""
    assert order(planted(lab, shape, plant.NeverReshuffled), shape) == ["epochs 0 and 1 have the same order"]


@two_shapes
def test_a_batch_size_per_rank_is_seen(lab: Lab, shape: Shape) -> None:
    """The global batch doubles and the steps halve."""
    broken = planted(lab, shape, plant.WholeBatchPerRank)
    assert any("global batch of 64" in line for line in order(broken, shape))
    assert any("batches, before's" in line for line in agreement(lab.before(shape.name), broken))


@two_shapes
def test_a_seed_that_is_not_passed_on_is_seen(lab: Lab, shape: Shape) -> None:
    """DistributedSampler's own seed is 0 for everybody."""
    runs = [planted(lab, shape, plant.Unseeded, seed=seed) for seed in (1, 2)]
    assert seeds_differ(*runs) == ["two seeds deal one order"]


def test_a_sampler_that_pads_where_the_loader_drops_is_seen(lab: Lab) -> None:
    """255 samples in batches of 32 make seven steps, and eight once each rank is padded to 128."""
    shape = SHAPES["main"]
    assert order(planted(lab, shape, plant.SamplerKeepsRest, samples=255), shape, samples=255) != []


# Checkpoints.


def bare_model(shape: Shape) -> torch.nn.Module:
    """The fixture's model class on its own, without the program around it."""
    made = {"flat": "LeNet()", "main": "Net()", "tutorial": "Model(10)", "trainer": "ConvNet()"}[shape.name]
    path = shape.before / ("model.py" if shape.name == "trainer" else "train.py")
    kept = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, kept)]
    names: dict = {"__name__": "bare"}
    exec(compile(tree, str(path), "exec"), names)  # noqa: S102 - the repository's own fixture
    return eval(made, names)


def weights(shape: Shape, checkpoint: dict) -> dict:
    """The model's weights in a checkpoint."""
    return checkpoint if shape.weights is None else checkpoint[shape.weights]


@launched("warm", "plain")
def test_checkpoints_hold_the_same(lab: Lab, shape: Shape, launcher: str) -> None:
    """Weights, buffers, optimizer, epoch and best accuracy, apart from the prefix."""
    after = lab.after(shape.name, 2, launcher).ok()
    before = lab.before(shape.name, 2, launcher=launcher).ok()
    pair = before.load(shape.checkpoint), after.load(shape.checkpoint)
    assert compare.checkpoints(*pair, tolerance=1e-9) == []
    assert before.files() == after.files()


@shapes
@pytest.mark.parametrize("processes", [1, 2])
def test_a_bare_model_loads_what_was_saved(lab: Lab, shape: Shape, processes: int) -> None:
    """No `module.` in the keys, nothing missing, nothing else."""
    saved = lab.after(shape.name, processes).ok().load(shape.checkpoint)
    bare_model(shape).double().load_state_dict(weights(shape, saved), strict=True)


@pytest.mark.sample(processes=2, every=3)
@resumable
@pytest.mark.parametrize("writer", ["before", "after"])
@pytest.mark.parametrize("prefix", ["module.", ""])
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_every_loader_takes_old_and_new_checkpoints(
    lab: Lab, shape: Shape, writer: str, prefix: str, processes: int
) -> None:
    """A run that goes on from a checkpoint makes the steps that DataParallel makes from its own."""
    before = lab.before(shape.name, processes).ok()
    old = weights(shape, before.load(shape.checkpoint))
    if prefix and not any(key.startswith(prefix) for key in old):
        pytest.skip("the original saves the bare model")
    written = before if writer == "before" else lab.after(shape.name, processes).ok()
    after = resume(lab, shape, written.folder, prefix, processes)
    reference = lab.run(
        shape.before / "train.py",
        resume_arguments(lab, shape),
        folder=copied(lab, before.folder),
        replicas=processes if processes > 1 else None,
        plan=str(lab.plan(after)),
    ).ok()
    assert len(after.ranks[0]["epochs"]) == 1
    assert agreement(reference, after) == []
    assert shape.numbers(reference.printed) == shape.numbers(after.printed) != []


def resume(lab: Lab, shape: Shape, folder: Path, prefix: str, processes: int) -> Run:
    """The converted program, going on from the checkpoint in a copy of `folder`, keys written with `prefix`."""
    assert shape.weights is not None
    folder = copied(lab, folder)
    path = folder / shape.checkpoint
    checkpoint = torch.load(path, weights_only=True)
    bare = compare.without_prefix(checkpoint[shape.weights])
    checkpoint[shape.weights] = {prefix + key: value for key, value in bare.items()}
    torch.save(checkpoint, path)
    script = lab.converted(shape.name) / "train.py"
    return lab.run(script, resume_arguments(lab, shape), folder=folder, processes=processes).ok()


def resume_arguments(lab: Lab, shape: Shape) -> list[str]:
    """The arguments of a run that goes on for one epoch."""
    return ["--data", str(lab.data()), "--batch-size", str(BATCH), *shape.resume]


def copied(lab: Lab, folder: Path) -> Path:
    """A copy of the folder that a run left."""
    return Path(shutil.copytree(folder, lab.place("resume"), dirs_exist_ok=True))


# What a person sees.


@launched(*LAUNCHERS)
def test_lines_are_printed_once(lab: Lab, shape: Shape, launcher: str) -> None:
    """Two processes print the lines that two replicas print; numbers of the local batches may differ."""
    before = lab.before(shape.name, 2, launcher=launcher).ok()
    after = lab.after(shape.name, 2, launcher).ok()
    assert lines(after.printed) == lines(before.printed) != []


def lines(printed: str) -> list[str]:
    """What was printed, with every number masked."""
    return [re.sub(r"\d+(\.\d+)?", "#", line) for line in printed.splitlines()]


@pytest.mark.parametrize("launcher", ["plain", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_log_lines_are_written_once(lab: Lab, launcher: str) -> None:
    """`logging` speaks for rank 0 only."""
    errors = lab.after("trainer", 2, launcher).ok().errors
    assert errors.count(f"{SAMPLES} training samples") == 1


@launched(*LAUNCHERS)
def test_files_are_written_once(lab: Lab, shape: Shape, launcher: str) -> None:
    """The files before wrote, and each by one process."""
    one = lab.after(shape.name, 1).ok()
    assert lab.after(shape.name, 2, launcher).ok().files() == one.files() != []


def test_tensorboard_gets_every_number_once(lab: Lab) -> None:
    """One event file, with one value per step and per epoch."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = lab.after("trainer", 2, "plain").ok()
    (events,) = run.folder.rglob("events.out.tfevents.*")
    accumulator = EventAccumulator(str(events)).Reload()
    steps = len(run.ranks[0]["losses"])
    assert [event.step for event in accumulator.Scalars("train/loss_iter")] == list(range(steps))
    assert [event.step for event in accumulator.Scalars("test/accuracy")] == list(range(EPOCHS))
