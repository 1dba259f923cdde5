"""What a run came to, for those who write it down; and what all of them need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dp2ddp.changes import Conversion
from dp2ddp.emit.text import shown
from dp2ddp.plan import Finding, Rule


@dataclass(frozen=True)
class Outcome:
    """A conversion with what the command made of it.

    ``code`` is the exit code, ``written`` whether files were changed, ``proofs`` the command that proves each converted
    program, ``rules`` what the codes of findings stand for.
    """

    conversion: Conversion
    rules: Mapping[str, Rule]
    code: int = 0
    written: bool = False
    proofs: Mapping[Path, str] = field(default_factory=dict)
    version: str = ""
    cwd: Path = field(default_factory=Path.cwd)

    def is_applied(self, finding: Finding) -> bool:
        """Whether the conversion holds the edits of a finding."""
        changed = {change.path for change in self.conversion.changes}
        done = {script.path for script in self.conversion.scripts if script.converted}
        about = not finding.scripts or bool(finding.scripts & done)
        return bool(finding.edits) and about and finding.location.path in changed

    def name(self, code: str) -> str:
        return self.rules[code].name if code in self.rules else code


def place(path: Path) -> str:
    """A path as documents have it, with ``/``: relative to the working folder where it is in that."""
    return shown(path).replace("\\", "/")
