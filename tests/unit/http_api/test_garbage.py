"""A request that was answered is gone, with its body: nothing of it waits for Python's garbage collector.

Cycles of some thousand requests were collected at once: for 0.2 s nothing else ran on the node, and until then their
bodies were in memory.
"""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import cast

import pytest

from stockade.http_api.records.append_parts import Verdicts
from stockade.http_api.records.parts import Part
from stockade.http_api.request.call import Call
from stockade.partition.errors import LeaderNotAvailable

from .conversation import Conversation, nodes
from .samples import CASES, CODES, GOOD, Request, prepared

FOLLOWS = ("follow_events",)
"""Ends with its client: the streams have tests of their own."""
REQUESTS = {
    "good ones": [request for name, request in GOOD.items() if name not in FOLLOWS],
    "by status": [request for (name, _), requests in CASES.items() if name not in FOLLOWS for request in requests],
    "by code": [request for (name, _), requests in CODES.items() if name not in FOLLOWS for request in requests],
}


class Left:
    """The requests of which something was left to the collector, by method and path."""

    requests: set[str]


@contextmanager
def collecting_nothing() -> Iterator[Left]:
    """Find, at the end, what was left meanwhile."""
    left = Left()
    gc.collect()
    of_earlier_tests = [each for each in gc.get_objects() if isinstance(each, Call)]  # held, so that none is found here
    gc.disable()
    try:
        yield left
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left.requests = {f"{each.request.method} {each.route.path}" for each in gc.garbage if isinstance(each, Call)}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        of_earlier_tests.clear()
        gc.enable()
        gc.collect()


async def send(node: Conversation, requests: list[Request], known: dict[str, str]) -> None:
    for request in requests:
        method, path, body, headers = request.filled(known)
        await node.call(method, path, body, headers, valid=False)


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("forwarded", [False, True], ids=["here", "forwarded"])
def test_nothing_of_an_answered_request_waits_for_the_garbage_collector(kind: str, forwarded: bool) -> None:
    async def main() -> None:
        async with nodes(2) as cluster:
            known = await prepared(cluster[0])
            with collecting_nothing() as left:
                await send(cluster[forwarded], REQUESTS[kind], known)
            assert left.requests == set()

    asyncio.run(main())


def test_an_append_whose_client_has_left_waits_for_no_garbage_collector() -> None:
    class Gone:
        stream = object()

        async def write(self, _: bytes) -> None:
            raise ConnectionResetError

    call = Gone()
    left = weakref.ref(call)
    verdicts = Verdicts(cast(Call, call), [])
    verdicts._lines = [b"a line"]
    gc.disable()
    try:
        with suppress(ConnectionResetError):
            verdicts.answer().send(None)  # no task: asyncio's own keeps its error
        del verdicts, call
        assert left() is None
    finally:
        gc.enable()


def test_a_part_that_is_refused_keeps_no_frame_of_its_request() -> None:
    """A function that raises what it has in a variable makes a circle of the error and its frame."""
    refusal = LeaderNotAvailable()
    with suppress(LeaderNotAvailable):
        raise refusal
    context = SimpleNamespace(metrics=SimpleNamespace(refused=lambda _: None))
    call = SimpleNamespace(context=context, id="1", log_denial=lambda _: None)
    verdicts = Verdicts(cast(Call, call), cast(list[Part], [None]))
    verdicts._refused(0, refusal)
    assert refusal.__traceback__ is None
