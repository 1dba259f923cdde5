"""Numbers that are made of the number of GPUs, however they travel."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.analyse.api.devices import COUNT
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes.conditions import counts_gpus, entries, returned
from dp2ddp.analyse.processes.origins import Origin, Origins
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.values import Made


def made_of_count(context: Context, nodes: Iterable[ast.AST]) -> ast.expr | None:
    """The first name, attribute or call among some nodes that stands for a number made of that of the GPUs."""
    if not any(counts_gpus(context, call.node) for call in context.program.calls):
        return None
    among = list(nodes)
    held = {id(it.value) for it in among if isinstance(it, ast.Attribute | ast.Subscript)}
    read = [it for it in among if isinstance(getattr(it, "ctx", ast.Load()), ast.Load) and id(it) not in held]
    named = (
        it
        for kind in (ast.Name | ast.Attribute | ast.Subscript, ast.Call)
        for it in read
        if isinstance(it, kind)
    )
    return next((it for it in named if _Counts(context).of([it])), None)


class _Counts(Origins):
    """Follows values back to the calls that count GPUs; what is asked of such a number is made of it, too."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, files=False)

    def _behind(self, node: ast.expr) -> Iterator[ast.expr]:
        made = any(isinstance(it, Made) and it.name == COUNT for it in self.program.values(node))
        if made or (isinstance(node, ast.Call) and counts_gpus(self.context, node)):
            self._found[Origin(node)] = None
            return
        match node:
            case ast.Compare(left=left, comparators=others):
                yield from (left, *others)
            case ast.IfExp(test=test, body=body, orelse=other):
                yield from (test, body, other)
            case ast.Subscript(value=held, slice=ast.Constant(value=key)):
                yield from entries(self.context, held, key)
            case _:
                yield from super()._behind(node)

    def _call(self, node: ast.Call) -> Iterator[ast.expr]:
        call = self.program.call(node)
        yield from handed(node) if call is not None and call.names else returned(self.context, node)

    def _attribute(self, node: ast.Attribute) -> Iterator[ast.expr]:
        """What is stored under that name, and nothing else that the same object holds."""
        return self._stored(node)
