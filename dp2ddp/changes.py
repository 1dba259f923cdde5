"""What comes of it: the files that change, and all there is to say about the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dp2ddp.plan import Finding, Severity
from dp2ddp.source import Location, Unreadable


@dataclass(frozen=True)
class Change:
    """A file before and after, and the encoding that makes bytes of both."""

    path: Path
    before: str
    after: str
    encoding: str = "utf-8"

    @property
    def before_bytes(self) -> bytes:
        return self.before.encode(self.encoding)

    @property
    def after_bytes(self) -> bytes:
        return self.after.encode(self.encoding)


@dataclass(frozen=True)
class Script:
    """A script that trains with DataParallel.

    ``command``: its name, if installing the project makes it. ``module``: its dotted name, if ``-m`` has to start it.
    ``tier``: how its processes share the work; ``reasons`` are the places that keep it from being sharded, ``dealt``
    those where the runtime divides batches, each with how, and why no DistributedSampler does. ``edits``: how many
    places change, or would; ``left``: how many are left to a person; ``blockers``: how many keep it from being
    converted. ``tied`` are the programs that are converted with it or not at all, as they run changed lines, ``ties``,
    that it runs too. ``wraps`` are the places in which its models are wrapped. ``verify`` runs it with ``arguments``,
    and with small data in the place of torchvision's if ``synthetic``. ``assumptions``: what has to hold, and where,
    for it to be sharded, if it is not; else what was taken as true. ``single``: where it names one GPU, and no other.
    ``unprefixed``: its checkpoints had ``module.`` before their keys, and have it no longer.
    """

    path: Path
    reaches: frozenset[Path]
    command: str = ""
    module: str = ""
    tier: str = "sharded"
    reasons: tuple[Location, ...] = ()
    dealt: tuple[tuple[Location, str], ...] = ()
    converted: bool = False
    edits: int = 0
    left: int = 0
    blockers: int = 0
    tied: tuple[Path, ...] = ()
    ties: tuple[Location, ...] = ()
    wraps: tuple[Location, ...] = ()
    synthetic: bool = False
    arguments: tuple[str, ...] = ()
    assumptions: tuple[tuple[Location, str], ...] = ()
    single: Location | None = None
    unprefixed: bool = False

    @property
    def is_assumed(self) -> bool:
        """Whether it is sharded by what was taken as true."""
        return bool(self.assumptions) and not self.reasons


@dataclass(frozen=True)
class Idle:
    """A script that was asked for and in which there is nothing to do, and why.

    ``unknown``: there may be something, as a file that it imports cannot be read.
    """

    path: Path
    reason: str
    unknown: bool = False


@dataclass(frozen=True)
class Beside:
    """A program that imports changed ``files`` and is not converted.

    ``trains``: a model that DataParallel wraps. ``wraps``: by a line that is converted, so that one process goes on
    with one GPU. ``bare``: where it takes a model for a bare one that is always wrapped now; ``by_keys``: by those of
    its state, which the conversion sees to.
    """

    path: Path
    files: tuple[Path, ...]
    trains: bool = False
    wraps: bool = False
    bare: Location | None = None
    by_keys: bool = False


@dataclass(frozen=True)
class Conversion:
    """The result of one run. ``errors`` say why those of ``scripts`` are not converted that are not.

    ``runtime``: the copy of the runtime in the project that what is converted imports; None: it imports ``dp2ddp``.
    ``beside``: other programs that import changed files, and are not converted. ``commented``: the files that change by
    comments alone.
    """

    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    scripts: tuple[Script, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    idle: tuple[Idle, ...] = ()
    files: tuple[Path, ...] = ()
    asked: tuple[Path, ...] = ()
    runtime: Path | None = None
    beside: tuple[Beside, ...] = ()
    commented: frozenset[Path] = frozenset()

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)
