"""Programs in the shapes that DataParallel code really has train as they did, by what the command makes of them.

``after/`` is trained: that it is what the command writes, the tests of the fixtures show.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
import torch

from parity import compare
from parity.harness import FIXTURES, Lab, Run
from parity.test_tier_training import differences


@dataclass(frozen=True)
class Program:
    """One fixture: how it is run, and what it leaves."""

    name: str
    arguments: str
    """DATA is the data set's folder, RANKS what stands for ``0 1`` and GPUS for ``0,1`` where there are two."""
    checkpoint: str
    says: str
    """Matches the printed lines that are the same in every run."""
    planned: bool = False
    """Whether a DistributedSampler shuffles in its own way, so that the original must be given the batches."""
    losses: bool = False
    """Whether every rank has the whole batch's loss."""
    processes: tuple[int, ...] = (2, 3)
    skips: bool = False
    """Whether it trains with some batches several times or not at all: there is not one loss for each of them."""
    outdated: bool = False
    """Whether today's Python or PyTorch does not run it as it was: it is compared with what it was after mends alone."""

    on_gpus: bool = False
    """Whether it asks for "cuda" without asking whether there is any."""

    def run(self, lab: Lab, side: str, gpus: int, **settings: object) -> Run:
        ranks = [str(rank) for rank in range(gpus)]
        tokens = {"DATA": [str(lab.data())], "RANKS": ranks, "GPUS": [",".join(ranks)]}
        arguments = [part for word in self.arguments.split() for part in tokens.get(word, [word])]
        mended = self.outdated and side == "before"
        folder = lab.mended(self.name) if mended else FIXTURES / self.name / side
        if self.on_gpus and not torch.cuda.is_available():
            settings.setdefault("gpus", gpus)
        return lab.run(folder / "train.py", arguments, **settings).ok()

    def said(self, run: Run) -> list[str]:
        return [line for line in run.printed.splitlines() if re.search(self.says, line)]


PROGRAMS = [
    Program(
        "iterations",
        "--gpus RANKS --num_steps 17",
        "checkpoints/flow.pth",
        says="^Validation|^Training|^Parameter|^\\[",
        planned=True,
    ),
    Program(
        "base_trainer",
        "--data DATA --batch-size 24",
        "saved/checkpoint.pth",
        says="^Valid|^Epoch",
        planned=True,
    ),
    Program("gan", "--manualSeed 5 --batchSize 32", "output/netD_epoch_1.pth", says=""),
    Program(
        "accumulation",
        "--gradient_accumulation_steps 2",
        "output/pytorch_model.bin",
        says="",
    ),
    Program("identity_sampler", "--sampler identity", "checkpoint.pth.tar", says="^Rank|^Epoch"),
    Program(
        "identity_sampler", "--sampler camera", "checkpoint.pth.tar", says="^Rank|^Epoch", processes=(3,)
    ),
    Program("identity_sampler", "--sampler none", "checkpoint.pth.tar", says="^Rank|^Epoch", processes=(2,)),
    Program(
        "config_gpus",
        "--data DATA --gpus GPUS",
        "output/checkpoint.pth.tar",
        says="^Test|^=>",
        planned=True,
    ),
    Program("exceptional_paths", "", "out/model.pt", says="^epoch|^out", planned=True),
    Program("experiment_class", "--name first", "runs/first/model.pt", says="^epoch"),
    Program(
        "ddp_branch",
        "--data DATA --seed 3 --batch-size 24",
        "checkpoint.pth.tar",
        says="^ .*Acc|^Epoch|^=>",
    ),
    Program("option_branch", "", "restored.pth", says="^iter|^psnr", planned=True, on_gpus=True),
    Program(
        "spawn_branch",
        "--set ROOT DATA SEED 3 BATCH_SIZE 24",
        "last.pth",
        says="^ .*Acc|^Epoch|^=>",
    ),
    Program(
        "loader_factory",
        "--use-more --batch-size 16",
        "run/disks/segnet/model_best.pth.tar",
        says="^Valid|Total|Epoch|^Loss",
    ),
    Program(
        "logs_and_copies",
        "--data DATA --batch-size 24",
        "logs/model_best.pth.tar",
        says="^Test|^Training",
        planned=True,
    ),
    Program("predictions", "", "checkpoints/model.t7", says="^Test|^Train|^Let", planned=True),
    Program("progress_reports", "", "output/best.pth", says="^Test|^Train|^ ", planned=True),
    Program(
        "progress_reports",
        "--flip-test --max-batches 3 --batch-size 24",
        "output/best.pth",
        says="^Test|^Train|^ ",
        planned=True,
        processes=(3,),
    ),
    Program("class_weights", "", "checkpoints/best.pth", says="^epoch|^\\[", planned=True),
    Program(
        "sum_loss", "--data DATA --batch-size 24 --epochs 2", "results/vae.pt", says="Loss|loss", planned=True
    ),
    Program("mixup", "--data DATA --batch-size 40 --epoch 2", "results/ckpt.t7", says="Loss|Saving"),
    Program("triplet_mining", "", "log/model.pth", says="^Epoch|^Rank", planned=True),
    Program(
        "center_loss",
        "--data DATA --batch-size 24 --max-epoch 2",
        "log/last.pth",
        says="^Batch|^Acc",
        planned=True,
    ),
    Program("bare_head", "", "model.pt", says="^epoch|^validation"),
    Program("bare_head", "--accumulate 2", "model.pt", says="^epoch|^validation"),
    Program("mean_teacher", "", "best.ckpt", says="^Epoch|^Student", planned=True),
    Program("frozen_backbone", "--data DATA --batch-size 24", "runs/model.pth", says="^epoch", planned=True),
    Program("encoder_wrap", "--batch-size 24", "model.pt", says="^Epoch", planned=True),
    Program("loss_in_forward", "", "output/model.bin", says="^Epoch", planned=True),
    Program("gradient_penalty", "", "out/models.pth", says="^\\[", losses=True),
    Program("dice_loss", "", "snapshot/best_model.pth", says="^iteration|^epoch|^save", planned=True),
    Program("hidden_state", "", "model.pt", says="^\\|", losses=True),
    Program(
        "two_models_one_optimizer",
        "--data DATA --batch-size 24",
        "models/model.pth",
        says="^epoch",
        planned=True,
    ),
    Program("spectral_norm", "", "checkpoint/gan_1.pt", says="^[0-9]", planned=True),
    Program("mixed_precision", "--amp", "runs/last.pt", says="^Epoch", planned=True),
    Program("apex_mixed_precision", "--fp16", "melodies/last.pt", says="^epoch", planned=True),
    Program("early_stopping", "", "best.pt", says="^val|^epoch|^early|^best|^skip", planned=True, skips=True),
    Program("random_split", "--data DATA", "checkpoints/last.pth", says="^Epoch|^Valid|^Start"),
    Program("random_split", "--data DATA --sampler", "checkpoints/last.pth", says="^Epoch|^Valid|^Start"),
    Program("endless_loader", "", "models/step_14.pth", says="^step"),
    Program("rebuilt_loader", "", "reader.pth", says="^epoch|steps"),
    Program("two_loaders", "", "dann.pth", says="^epoch|^target", planned=True, skips=True),
    Program("gradient_hooks", "", "tagger.pt", says="^epoch|vectors", planned=True),
    Program("bypass_in_training", "", "rings.pt", says="^epoch", planned=True),
    Program("forward_bypass", "", "embedder.pt", says="^epoch|^step", planned=True),
    Program("batch_sampler", "", "best.pt", says="^epoch|^test"),
    Program("batches_in_memory", "", "spirals.pt", says="^epoch"),
    Program("warmup_schedule", "--data DATA", "weights/final.pt", says="^Epoch|^.* GPUs|^\\[", planned=True),
    Program(
        "warmup_schedule",
        "--data DATA --schedule onecycle --batch-size 15",
        "weights/final.pt",
        says="^Epoch|^.* GPUs|^\\[",
        planned=True,
        processes=(2,),
    ),
    Program("old_python", "", "best.pth.tar", says="^Epoch|^ ", planned=True, outdated=True),
    Program("old_iterators", "--async", "arc.pth", says="^\\[|^mean", outdated=True),
    Program("own_scatter", "", "weights/detector.pth", says="^epoch|^valid", losses=True),
    Program("own_scatter", "--first 2", "weights/detector.pth", says="^epoch|^valid", losses=True),
    Program("forwarding_wrapper", "--data DATA --batch-size 24", "model.pt", says="^epoch", planned=True),
    Program("synced_norm", "--dropout 0", "run/checkpoint.pth.tar", says="^epoch|^valid"),
    Program("synced_norm", "--dropout 0 --no-sync-norm", "run/checkpoint.pth.tar", says="^epoch|^valid"),
    Program("parallel_criterion", "", "segmenter.pth", says="^epoch|^valid", losses=True),
    Program("graph_batches", "", "graphs.pt", says="^epoch", losses=True),
    Program("lbfgs", "", "results/surface.pth", says="^epoch", planned=True, skips=True),
    Program("entry_point", "--gpus RANKS", "runs/best.pth", says="^epoch"),
    Program("registry", "", "last.pth", says="^epoch", planned=True),
    Program(
        "registry", "--model bag --dataset largest", "last.pth", says="^epoch", planned=True, processes=(2,)
    ),
    Program("config_dict", "small", "small.pt", says="^epoch", planned=True),
    Program("config_dict", "deep find", "deep.pt", says="^epoch|^start", planned=True, processes=(2,)),
]


@pytest.mark.sample(every=7)
@pytest.mark.parametrize(
    ("program", "processes"),
    [
        pytest.param(
            program,
            processes,
            id=f"{program.name} {program.arguments} on {processes}",
            marks=pytest.mark.slow if processes > 2 else (),
        )
        for program in PROGRAMS
        for processes in program.processes
    ],
)
def test_programs_make_dataparallel_s_steps(lab: Lab, program: Program, processes: int) -> None:
    """With as many replicas, to the last step, and what is printed, saved and written."""
    after = program.run(lab, "after", processes, processes=processes)
    plan = {"plan": str(lab.plan(after))} if program.planned else {}
    before = program.run(lab, "before", processes, replicas=processes, **plan)
    assert len(after.ranks) == processes
    if program.planned and not program.skips:
        assert compare.training(before.ranks[0], after.ranks, losses=1e-9, parameters=1e-12) == []
    else:
        assert differences(before, after, losses=program.losses) == []
    assert program.said(after) == program.said(before) != []
    pair = before.load(program.checkpoint), after.load(program.checkpoint)
    assert compare.checkpoints(*pair, tolerance=1e-9) == []
    assert after.files() == before.files()
