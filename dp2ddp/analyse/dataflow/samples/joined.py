"""What is made of a batch that was joined from all ranks' parts: the whole batch's, whatever that computes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.kinds import DEALT, PLAIN, Every, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.conditions import reaching_in
from dp2ddp.analyse.dataflow.samples.frames import Frame
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import Func, Inst, Made, Mod, is_outside_name

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


def joined(samples: Samples, node: ast.Call, frame: Frame) -> Value:
    """What ``ddp.whole_batch(…)`` gives, where it stands for a joint: all that it is given, of all ranks."""
    (given,) = node.args
    parts = given.elts if isinstance(given, ast.Tuple) else [given]
    values = [kinds.tensor(samples.value(it, frame), it) for it in parts]
    found: list[Value] = [
        Kind.WHOLE if it in (*DEALT, Kind.PICKED) or _is_output(samples, part) else kinds.blame([it], part)
        for it, part in zip(values, parts, strict=True)
    ]
    return Held(tuple(enumerate(found))) if isinstance(given, ast.Tuple) else found[0]


def _is_output(samples: Samples, node: ast.expr) -> bool:
    """Whether a name is just what a wrapped model hands out: joined, it is what nn.DataParallel makes of replicas'."""
    made = samples.program.definitions(node)
    return bool(made) and all(is_output(samples.context, it) for it in made)


def is_output(context: Context, definition: ast.AST) -> bool:
    """Whether a definition gives a name just what a wrapped model hands out."""
    value, _ = context.program.source(definition).written
    entry = isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant)
    made = value.value if entry else value  # type: ignore[union-attr]
    call = context.program.call(made) if isinstance(made, ast.Call) else None
    if call is None or not context.is_wrapped(call.callees):
        return False
    return not entry or _hands_out_several(context, call)


def _hands_out_several(context: Context, call: Call) -> bool:
    """Whether a wrapped model hands out a tuple, list or dict, as its forward is written: an index takes no sample."""
    models = {inner for it in call.callees for inner in context.inside(it)}
    forwards = {it for model in models for it in context.program.methods(model, "forward", call.node)}
    bodies = [node for it in forwards for node in context.program.body(context.program.scopes[it])]
    returned = [it.value for it in bodies if isinstance(it, ast.Return)]
    displays = (ast.Tuple, ast.List, ast.Dict)
    return (
        bool(returned)
        and all(isinstance(it, Inst) for it in models)
        and all(isinstance(it, displays) for it in returned)
    )


def whole(value: Value) -> Value:
    """What a value is that was computed of the whole batch, where it is not followed or only its entries are."""
    match value:
        case Unclear():
            return Kind.WHOLE
        case Held(entries=entries):
            return Held(tuple((key, whole(it)) for key, it in entries))
        case Every(element=element):
            return Every(whole(element))
    return value


def is_of_joined(samples: Samples, node: ast.AST, frame: Frame) -> bool:
    """Whether all that an expression behind a joint is made of is the whole batch's, or the same on all ranks."""
    found = {kinds.tensor(samples.value(it, frame), it) for it in _made_of(samples, node, frame)}
    return Kind.WHOLE in found and found <= {*PLAIN, Kind.WHOLE, Kind.UNKNOWN}


def _made_of(samples: Samples, node: ast.AST, frame: Frame) -> Iterator[ast.AST]:
    """What an expression is computed from; itself where that is not known."""
    program = samples.program
    match node:
        case ast.Name() | ast.Attribute() if definitions := reaching_in(samples.context, node, frame):
            for definition in definitions:
                if isinstance(definition, ast.arg) and id(definition) not in frame.given:
                    yield from program.given(definition) or [node]
                    continue
                source = None if isinstance(definition, ast.arg) else program.source(definition)
                if source is None or source.value is None:
                    yield node
                else:
                    yield source.value
            yield from _stored_into(samples, node)
        case ast.Name():
            yield node
        case ast.Call():
            yield from (it.value if isinstance(it, ast.Starred) else it for it in handed(node))
            match node.func:
                case ast.Attribute(value=receiver) if not _is_object(samples, receiver):
                    yield receiver
                case ast.Attribute() | ast.Name():
                    pass
                case called:
                    yield called
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for part in node.generators:
                yield from (part.iter, *part.ifs)
            yield from (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        case _:
            yield from (it for it in ast.iter_child_nodes(node) if isinstance(it, ast.expr))


def _stored_into(samples: Samples, name: ast.expr) -> Iterator[ast.expr]:
    """What a function stores into what has a name, ``x[i] = value``, and where."""
    program, text = samples.program, ast.unparse(name)
    for node in program.body(program.scope(name)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) == text:
                yield node.slice
                value = program.source(node).value
                yield value if value is not None else node


def _is_object(samples: Samples, node: ast.expr) -> bool:
    """Whether something has methods of the project's or a library's, and is no tensor: a criterion, a module."""
    values = samples.program.values(node)
    return bool(values) and (
        is_outside_name(values) or all(isinstance(it, Inst | Made | Mod | Func) for it in values)
    )
