"""Which functions of the product a request passes: ``python tools/walk.py append|acquire|rejoin|all``.

``python tools/walk.py all --page`` writes them, shortened, into docs/architecture.md.

Three real nodes run in one process on a clock of their own (one_process.py), so that every run finds the same functions
(only what one event wakes together may change its order). After the same request was made a few times, exactly one is
followed:

- ``append``: POST of a batch with fencing token and producer sequence, on a warm connection to the node that leads the
  partition of three replicas, until the turn of the loop in which that node answers.
- ``acquire``: POST of an ``ExclusiveWithFencing`` grant on four partitions, some led by the controller and some by
  others, which throws out the owner of all four; on a warm connection to the controller's leader, until it answers.
- ``rejoin``: a node that leads nothing has lost its folder and starts anew; the leaders' logs do not reach back to the
  beginning. Until it votes again, in the partition and in the controller. There is no request: all that the wiped node
  does is followed, and what that causes on the others.

**A hop** is a distinct function of the product, named by its file and qualified name, that runs because of the request:
in a turn of the loop, or a thread, that the request caused, directly or through others (one_process.py says how that is
known). Heartbeats, renewals and retries are begun by timers and are no part of it. Each is listed once, where it is
called first, hops at the beginning of the line. ``__init__`` is a hop, printed as its class. No hops are

- *details* (indented): functions that call nothing of the product and that only their own file calls;
- what is *known* (behind =): for ``acquire`` what an append passes in ``raft/`` too, since a proposal is one step of
  the way; for ``rejoin`` also what the same node passes when it starts and has its folder still;
- comprehensions, generator expressions and lambdas: they belong to the function around them;
- a property or an operator method whose body is one ``return`` without a call: it is a field by another name;
- what libraries generate (dataclasses, msgspec), what a cache answers, and everything outside the product.

Files are those of hops and details. A walk made by hand has besides these only fields, what a warm cache saves and what
in truth does not run; and it lacks much that readers pass over, such as what checks an argument or encodes a number.
"""

import argparse
import ast
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from types import CodeType
from typing import Literal, NamedTuple

from one_process import DRIVER, CausalLoop, run
from three_nodes import PRODUCT, Cluster, follow_acquire, follow_append, follow_rejoin, follow_restart

Function = tuple[str, str]
"""File and qualified name."""


MARKS = {"hop": "", "detail": "  ", "known": "= "}
"""How lines of the three kinds begin."""


class Hop(NamedTuple):
    """A function of the product on the way. ``section`` says where it was called first, and what started that turn."""

    section: str
    file: str
    function: str
    kind: Literal["hop", "detail", "known"]


class Size(NamedTuple):
    """How long a walk is: its hops and their files; and what is no hop of it."""

    hops: int
    files: int
    details: int
    known: int


WALKS = {"append": follow_append, "acquire": follow_acquire, "rejoin": follow_rejoin}


def walk(name: str) -> list[Hop]:
    """The functions that a walk passes, in the order of their first calls; details and known ones included."""
    found, details = followed(WALKS[name])
    known = known_to(name)

    def kind(function: Function) -> Literal["hop", "detail", "known"]:
        return "known" if function in known else "detail" if function in details else "hop"

    return [Hop(section, *function, kind(function)) for function, section in found.items()]


def size(hops: Collection[Hop]) -> Size:
    """The size of a walk."""
    kinds = Counter(hop.kind for hop in hops)
    files = {hop.file for hop in hops if hop.kind != "known"}
    return Size(kinds["hop"], len(files), kinds["detail"], kinds["known"])


def known_to(name: str) -> set[Function]:
    """The functions that a walk passes and does not count: for ``acquire`` those that an append passes in ``raft/``,
    for ``rejoin`` also those that the same node passes when it starts with its folder.
    """
    if name == "append":
        return set()
    log = {function for function in followed(follow_append)[0] if function[0].startswith("raft/")}
    return log if name == "acquire" else log | set(followed(follow_restart)[0])


@cache
def followed(follow: Callable[[Cluster], Awaitable[dict[str, str]]]) -> tuple[dict[Function, str], set[Function]]:
    """Every function passed, with its section; and which of them are details."""
    roles: dict[str, str] = {}
    loops: list[CausalLoop] = []

    async def main(loop: CausalLoop) -> None:
        loops.append(loop)
        with tempfile.TemporaryDirectory(prefix="walk-") as folder:
            cluster = Cluster(loop, Path(folder))
            roles.update(await follow(cluster), **{DRIVER: "client"})
            await cluster.close()

    run(main)
    found: dict[Function, str] = {}
    for code, turn in loops[0].found.items():
        if (function := function_of(code)) is not None:
            source = "" if turn.source is None else f" the {roles[turn.source]}"
            found.setdefault(function, f"{roles[turn.node]}: {turn.started_by}{source}")
    named = [(caller and function_of(caller), function_of(callee)) for caller, callee in loops[0].calls]
    return found, details_among((caller, callee) for caller, callee in named if callee is not None)


def details_among(calls: Iterable[tuple[Function | None, Function]]) -> set[Function]:
    """The functions that call no other, and that only functions of their own file call (None: the event loop)."""
    others = {(caller, callee) for caller, callee in calls if caller != callee}
    callers = {caller for caller, _ in others}
    from_outside = {callee for caller, callee in others if caller is None or caller[0] != callee[0]}
    return {callee for _, callee in others} - callers - from_outside


@cache
def function_of(code: CodeType) -> Function | None:
    """File and name of the function that this code belongs to; None if it is no hop."""
    path = Path(code.co_filename)
    if not path.is_relative_to(PRODUCT):
        return None
    parts = code.co_qualname.split(".<locals>.")
    while parts[-1].startswith("<"):
        parts.pop()
        if not parts:
            return None
    name = ".".join(parts)
    if name in fields(path):
        return None
    return path.relative_to(PRODUCT).as_posix(), name.removesuffix(".__init__")


@cache
def fields(path: Path) -> frozenset[str]:
    """The qualified names of the file's properties and operator methods that only return something and call nothing."""
    return frozenset(_fields(ast.parse(path.read_text(encoding="utf-8")), ""))


def _fields(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = prefix + child.name
            if isinstance(child, ast.FunctionDef) and is_field(child):
                yield name
            yield from _fields(child, f"{name}.")
        else:
            yield from _fields(child, prefix)


def is_field(function: ast.FunctionDef) -> bool:
    """Whether this is a property or operator method of one ``return`` without a call: a field by another name."""
    kinds = {decorator.id for decorator in function.decorator_list if isinstance(decorator, ast.Name)}
    name = function.name
    if not kinds & {"property", "cached_property"} and not (name.startswith("__") and name.endswith("__")):
        return False
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    calls = any(isinstance(node, ast.Call) for statement in body for node in ast.walk(statement))
    return len(body) == 1 and isinstance(body[0], ast.Return) and not calls


def listing(name: str, *, short: bool) -> str:
    """A walk as text; ``short``: hops only, a line for each file."""
    lines = []
    shown = [hop for hop in walk(name) if hop.kind == "hop" or not short]
    for section, found in groupby(shown, key=lambda hop: hop.section):
        lines.append(f"-- {section}")
        for file, inside in groupby(found, key=lambda hop: hop.file):
            if short:
                lines.append(f"{file}: {', '.join(hop.function for hop in inside)}")
            else:
                lines += [f"{MARKS[hop.kind]}{file}:{hop.function}" for hop in inside]
    return "\n".join(lines)


PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
BEGIN, END = "<!-- walk: begin -->\n", "<!-- walk: end -->\n"


def page() -> str:
    """What docs/architecture.md shows: the sizes of all walks, and an append's hops, a line for each file."""
    sizes = {name: size(walk(name)) for name in WALKS}
    rows = "".join(f"| `{name}` | {each.hops} | {each.files} |\n" for name, each in sizes.items())
    table = f"| walk | hops | files |\n|---|---|---|\n{rows}"
    return f"{BEGIN}{table}\n```\n{listing('append', short=True)}\n```\n{END}"


def with_page(document: str) -> str:
    """The document with the present walks between its marks."""
    before, _, rest = document.partition(BEGIN)
    return before + page() + rest.partition(END)[2]


def main() -> None:
    """Walk, and print the walks or write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walk", choices=[*WALKS, "all"])
    parser.add_argument("--short", action="store_true", help="a line for each file in place of each function")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--page", action="store_true", help="write the walks into docs/architecture.md")
    chosen = parser.parse_args()
    names = list(WALKS) if chosen.walk == "all" else [chosen.walk]
    if chosen.page:
        PAGE.write_text(with_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if chosen.output == "text":
        for name in names:
            total = size(walk(name))
            print(f"# {name}\n{listing(name, short=chosen.short)}")
            print(f"hops {total.hops} in {total.files} files, {total.details} details, {total.known} known")
        return
    walks = {name: {**size(walk(name))._asdict(), "walk": [hop._asdict() for hop in walk(name)]} for name in names}
    json.dump(walks, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
