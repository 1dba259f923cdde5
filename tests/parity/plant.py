"""Break a converted program on purpose, one mistake at a time.

A comparison that finds nothing in a correct program shows little until it finds something in a broken one.
"""

from __future__ import annotations

import ast
import shutil
from pathlib import Path


class _Mistake(ast.NodeTransformer):
    """A mistake that counts the places where it was made."""

    places = 0


class Unsynchronised(_Mistake):
    """The model is not DDP, so nothing averages the gradients (nn.DataParallel on a CPU passes through)."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Make the mistake where `node` is a place for it."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "DistributedDataParallel":
            self.places += 1
            node.func = ast.parse("__import__('torch').nn.DataParallel", mode="eval").body
        return node


class NeverReshuffled(_Mistake):
    """`set_epoch` is gone, so every epoch has the first one's order."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Make the mistake where `node` is a place for it."""
        call = node.value
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "set_epoch"
        ):
            self.places += 1
            return ast.Pass()
        return node


class Unsharded(NeverReshuffled):
    """The training loader has no sampler and shuffles by itself: every rank draws all of it. `set_epoch` goes too."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Make the mistake where `node` is a place for it."""
        self.generic_visit(node)
        if any(keyword.arg == "sampler" for keyword in node.keywords):
            self.places += 1
            node.keywords = [word for word in node.keywords if word.arg not in {"sampler", "shuffle"}]
            node.keywords.append(ast.keyword("shuffle", ast.Constant(True)))
        return node


class WholeBatchPerRank(_Mistake):
    """Every rank takes the global batch size."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Make the mistake where `node` is a place for it."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "local_batch_size":
            self.places += 1
            return node.args[0]
        return node


class _WithoutSamplerArgument(_Mistake):
    """`DistributedSampler` is called without one of its arguments."""

    argument = ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Make the mistake where `node` is a place for it."""
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "DistributedSampler" and any(word.arg == self.argument for word in node.keywords):
            self.places += 1
            node.keywords = [word for word in node.keywords if word.arg != self.argument]
        return node


class Unseeded(_WithoutSamplerArgument):
    """The order does not follow the user's seed."""

    argument = "seed"


class SamplerKeepsRest(_WithoutSamplerArgument):
    """The loader drops its last batch, the sampler pads instead of dropping."""

    argument = "drop_last"


def plant(kind: type[_Mistake], program: Path, copy: Path) -> Path:
    """Copy `program`, a folder, to `copy`, and make the mistake wherever it can be made."""
    shutil.copytree(program, copy)
    places = 0
    for path in copy.rglob("*.py"):
        mistake = kind()
        tree = ast.fix_missing_locations(mistake.visit(ast.parse(path.read_text())))
        if mistake.places:
            path.write_text(ast.unparse(tree) + "\n")
        places += mistake.places
    if not places:
        raise LookupError(f"{program} has no place for {kind.__name__}")
    return copy
