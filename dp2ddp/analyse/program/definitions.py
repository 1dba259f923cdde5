"""Which assignments to a name can reach its use: those that others do not hide."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from dp2ddp.analyse.program.scopes import Tree


@dataclass
class Definitions:
    """What gives one name its values, in source order: ``nodes`` with their ``orders``; ``inside`` comprehensions."""

    nodes: list[ast.AST] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    inside: dict[int, ast.AST] = field(default_factory=dict)
    count: int = 0


@dataclass(frozen=True)
class Around:
    """What stands round a place, inside out, with the place of each, the blocks that it is in, and the loops."""

    nodes: list[ast.AST]
    places: dict[int, int]
    blocks: set[int]
    loops: list[ast.AST]

    @classmethod
    def whole(cls, node: ast.AST, body: ast.AST) -> Around:
        """Where a body has run to its end, in none of its blocks; ``node`` is something in it."""
        return cls([node, body], {id(node): 0, id(body): 1}, set(), [])


class Reaching:
    """Reaching definitions, by the order of statements and the blocks that they stand in.

    ``always_runs`` says of the value of an assignment whether it is made under whatever condition it stands;
    ``undecided`` is set where that was asked, as more may be known of it later.
    """

    def __init__(self, tree: Tree, always_runs: Callable[[ast.Call], bool]) -> None:
        self.tree = tree
        self.undecided = False
        self._always_runs = always_runs

    def among(self, definitions: Iterable[ast.AST], use: ast.AST) -> list[ast.AST]:
        """The definitions of one name that can reach a use in the same body.

        An assignment in a block that also holds the use hides all that come before it; later ones count only
        round a loop that holds both, and where nothing in that loop hides them again before the use.
        """
        return self.reached(self.add(Definitions(), definitions), use)

    def add(self, known: Definitions, definitions: Iterable[ast.AST]) -> Definitions:
        for node in definitions:
            known.count += 1
            order = self.tree.order.get(id(node), 0)
            comprehension = self.tree.comprehension_of(node)
            if comprehension is not None:
                other = known.inside.setdefault(id(comprehension), node)
                if self.tree.order.get(id(other), 0) > order:
                    known.inside[id(comprehension)] = node
            else:
                place = bisect_right(known.orders, order)
                known.orders.insert(place, order)
                known.nodes.insert(place, node)
        return known

    def reached(self, known: Definitions, use: ast.AST) -> list[ast.AST]:
        around = self.around([use, *self.tree.ancestors(use)])
        if known.inside:
            own = [known.inside[it] for it in around.places if it in known.inside]
            if own:
                return [min(own, key=lambda node: self.tree.order[id(node)])]
        current = self.tree.statement(use) if not isinstance(use, ast.stmt) else use
        starts = isinstance(current, ast.For | ast.With | ast.AsyncFor | ast.AsyncWith)
        after = bisect_right(known.orders, self.tree.order.get(id(use), 0))
        kept: list[ast.AST] = []
        again: list[ast.AST] = []
        hiding: ast.AST | None = None
        branches = self._other_branches(around)
        branch = next(branches, None)
        begun = None
        for place in range(after - 1, -1, -1):
            node, at = known.nodes[place], known.orders[place]
            holder = self.tree.holder(node)
            if begun is not None and at > begun:
                continue
            if (
                holder is current and not starts and not isinstance(node, ast.arg)
            ):  # a lambda's is given before
                again.append(node)  # `x = f(x)`: the right side is evaluated first
                continue
            while branch is not None and at < branch[0]:
                branch = next(branches, None)
            if branch is not None and at <= branch[1]:
                continue
            choice = self._choice(holder, around)
            if choice is not None:
                first = bisect_right(known.orders, self.tree.order[id(choice)])
                within = [it for it in known.nodes[first : place + 1] if self.tree.holder(it) is not current]
                always = [self.tree.holder(it) for it in within if not self._may_be_skipped(it)]
                if self._is_made([choice], always):
                    kept += reversed(within)
                    hiding = choice
                    break
            kept.append(node)
            if self._may_be_skipped(node):
                continue
            if self.hides(holder, around):
                hiding = holder
                break
            begun = self._hides_in_rounds(holder, around)
        hidden = {id(outer) for outer in self.tree.ancestors(hiding)} if hiding is not None else set()
        if isinstance(hiding, ast.For | ast.AsyncFor):
            hidden.add(id(hiding))  # its next round begins with another element
        loop = next((it for it in reversed(around.loops) if id(it) not in hidden), None)
        kept.reverse()
        if loop is not None:
            first, end = self.tree.order[id(loop)], self.tree.ends[id(loop)]
            kept += [it for it in reversed(again) if first < self.tree.order[id(it)] <= end]
            kept += known.nodes[after : bisect_right(known.orders, end)]
        return kept

    def surviving(self, definitions: Iterable[ast.AST]) -> list[ast.AST]:
        """The definitions of one name that may hold when the body that makes them has run."""
        kept: dict[int, list[ast.AST]] = {}
        for node in sorted(definitions, key=lambda node: self.tree.order.get(id(node), 0)):
            scope = self.tree.scope_of.get(id(node))
            holder = self.tree.holder(node)
            own = kept.setdefault(-1 if scope is None else scope.index, [])
            if scope is not None and self.hides(holder, Around.whole(holder, scope.node)):
                own.clear()
            if self.tree.comprehension_of(node) is None:
                own.append(node)
        found = [node for own in kept.values() for node in own]
        return sorted(found, key=lambda node: self.tree.order.get(id(node), 0)) if len(kept) > 1 else found

    def around(self, nodes: list[ast.AST]) -> Around:
        """What stands round a place, inside out."""
        blocks = {id(self.tree.blocks[id(node)]) for node in nodes if id(node) in self.tree.blocks}
        loops = [node for node in nodes if isinstance(node, ast.For | ast.While | ast.AsyncFor)]
        return Around(nodes, {id(node): place for place, node in enumerate(nodes)}, blocks, loops)

    def _choice(self, holder: ast.AST, around: Around) -> ast.stmt | None:
        """The outermost condition or ``try`` round an assignment, before what stands inside ``around``."""
        found, part = None, holder
        while isinstance(outer := self._statement(part), ast.If | ast.Try | ast.With | ast.AsyncWith):
            if id(outer) in around.places:
                break
            if _swallows(outer):
                break
            part = outer
            found = outer if isinstance(outer, ast.If | ast.Try) else found
        return part if found is not None and id(self.tree.block(part)) in around.blocks else None  # type: ignore[return-value]

    def _statement(self, part: ast.AST) -> ast.AST | None:
        """The statement that a statement is in a block of."""
        outer = self.tree.parent(part)
        return self.tree.parent(outer) if isinstance(outer, ast.ExceptHandler) else outer

    def _is_made(self, block: list[ast.stmt], holders: list[ast.AST]) -> bool:
        """Whether a block assigns on every way through it that does not go elsewhere."""
        return isinstance(block[-1], ast.Raise | ast.Return | ast.Continue | ast.Break) or any(
            self._makes(it, holders) for it in block
        )

    def _makes(self, statement: ast.stmt, holders: list[ast.AST]) -> bool:
        match statement:
            case ast.If(body=body, orelse=other):
                parts = [body, other]
            case ast.Try(body=body, handlers=handlers):
                parts = [body, *(it.body for it in handlers)]
            case ast.With(body=body) | ast.AsyncWith(body=body) if not _swallows(statement):
                parts = [body]
            case ast.AugAssign() | ast.For() | ast.AsyncFor():
                return False
            case _:
                parts = []
        if statement in holders:
            return True
        return bool(parts) and all(part and self._is_made(part, holders) for part in parts)

    def _other_branches(self, around: Around) -> Iterator[tuple[int, int]]:
        """The branches of conditions, by their order, that do not run where a place in the others does."""
        outermost = around.places[id(around.loops[-1])] if around.loops else 0
        for place in range(outermost + 1, len(around.nodes)):  # those in a loop may, in its next round
            outer, inside = around.nodes[place], around.nodes[place - 1]
            if isinstance(outer, ast.If) and inside is not outer.test:
                if self.tree.blocks.get(id(inside)) is not outer.body:
                    yield self.tree.order[id(outer.body[0])], self.tree.ends[id(outer.body[-1])]

    def hides(self, holder: ast.AST, around: Around) -> bool:
        if isinstance(holder, ast.For | ast.AsyncFor):
            place = around.places.get(id(holder), 0)
            return place > 0 and around.nodes[place - 1] in holder.body
        if isinstance(holder, ast.AugAssign) or not isinstance(holder, ast.stmt):
            return False
        part, block = holder, self.tree.parent(holder)
        while isinstance(block, ast.With | ast.AsyncWith) or (
            isinstance(block, ast.If) and self._is_always_made(holder)
        ):
            if id(block) in around.places:
                return True
            if _swallows(block):
                return False
            part, block = block, self.tree.parent(block)
        if isinstance(block, ast.If | ast.Try | ast.For | ast.While):  # in the same branch, too
            return id(self.tree.block(part)) in around.blocks
        return around.places.get(id(block), 0) > 0

    def _hides_in_rounds(self, holder: ast.AST, around: Around) -> int | None:
        """From where on an assignment hides others to what comes after the loop that it ends each round of."""
        loop = self.tree.parent(holder)
        if not isinstance(loop, ast.For | ast.While) or id(loop) in around.places or holder not in loop.body:
            return None
        if isinstance(holder, ast.AugAssign) or any(map(_may_leave, loop.body)):
            return None
        for outer in self.tree.ancestors(loop):
            if id(outer) in around.places:
                return self.tree.order[id(loop)]
            if isinstance(outer, ast.Try | ast.With):
                return None
        return None

    def _may_be_skipped(self, node: ast.AST) -> bool:
        """``a and (x := b)``: whether an expression assigns, and its statement may not come to that."""
        part = node
        while isinstance(around := self.tree.parent(part), ast.expr):
            match around:
                case ast.BoolOp(values=[first, *_]) if part is not first:
                    return True
                case ast.IfExp(test=test) if part is not test:
                    return True
            part = around
        return False

    def _is_always_made(self, holder: ast.AST) -> bool:
        value = holder.value if isinstance(holder, ast.Assign) else None
        self.undecided |= isinstance(value, ast.Call)
        return isinstance(value, ast.Call) and self._always_runs(value)


def _may_leave(statement: ast.stmt) -> bool:
    """Whether a round of a loop may end before its last statement, and what comes after the loop runs all the same."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Break | ast.Continue):
            return True
        if not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | ast.expr
        ):
            waiting += ast.iter_child_nodes(node)
    return False


def _swallows(statement: ast.AST) -> bool:
    """``with suppress(KeyError):``, which goes on behind it wherever an exception leaves it."""
    return isinstance(statement, ast.With) and any(
        isinstance(it.context_expr, ast.Call) and ast.unparse(it.context_expr.func).endswith("suppress")
        for it in statement.items
    )
