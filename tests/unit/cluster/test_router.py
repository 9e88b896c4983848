"""Reaching a leader from another node: tried again when surely not proposed, never when unknown."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from stockade.cluster import rpc
from stockade.cluster.groups import Router
from stockade.cluster.rpc import Message
from stockade.partition.commands import encode_result
from stockade.partition.errors import LeaderNotAvailable, RequestTimedOut
from stockade.raft.machine import FileExtent, Image, Machine
from stockade.raft.net.rpc import CallFailed

from .fakes import FakeHost

VOTERS = ["n1", "n2", "n3"]
Answers = dict[str, Callable[[], Message]]


class Echo(Machine):
    def start(self, directory: Path) -> None: ...

    def apply(self, index: int, term: int, command: bytes) -> object:
        return command

    def capture(self) -> Image:
        raise NotImplementedError

    def restore(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None: ...

    def inspect(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None: ...


def fail(error: Exception) -> Callable[[], Message]:
    def answer() -> Message:
        raise error

    return answer


def propose(answers: Answers, *, here: bool | None = None, timeout_s: float = 5.0) -> tuple[bytes, list[str]]:
    """Propose from n1; ``here``: whether n1 holds the group and leads it."""
    host = FakeHost()
    if here is not None:
        host.open_group(5, dict.fromkeys(VOTERS, 1), Echo()).leading = here

    async def call(node_id: str, payload: bytes, timeout_s: float) -> bytes:
        host.calls.append(node_id)
        return rpc.encode(answers[node_id]())

    host.call = call  # type: ignore[method-assign]
    router = Router("n1", host)  # type: ignore[arg-type]
    scene: Awaitable[bytes] = router.propose(5, VOTERS, b"x", timeout_s)
    return asyncio.run(_awaited(scene)), host.calls


async def _awaited(scene: Awaitable[bytes]) -> bytes:
    return await scene


def test_a_leader_here_is_not_looked_for_elsewhere() -> None:
    assert propose({}, here=True) == (encode_result(b"x"), [])  # type: ignore[arg-type]


def test_a_hint_leads_to_the_leader() -> None:
    led: Answers = {"n2": lambda: rpc.NotLeading("n3"), "n3": lambda: rpc.Proposed(b"done")}
    assert propose(led)[0] == b"done"


def test_a_node_that_is_away_is_passed_over() -> None:
    away: Answers = {"n2": fail(ConnectionError()), "n3": lambda: rpc.Proposed(b"done")}
    assert propose(away) == (b"done", ["n2", "n3"])


@pytest.mark.parametrize("unknown", [TimeoutError(), CallFailed("a bug over there")])
def test_an_unknown_outcome_is_told_and_not_tried_elsewhere(unknown: Exception) -> None:
    answers: Answers = {"n2": fail(unknown), "n3": lambda: rpc.Proposed(b"twice")}
    with pytest.raises(RequestTimedOut):
        propose(answers)


def test_a_proposal_that_the_leader_lost_is_an_unknown_outcome() -> None:
    with pytest.raises(RequestTimedOut):
        propose({"n2": rpc.OutcomeUnknown, "n3": fail(AssertionError())})


def test_a_group_without_a_leader_is_refused_at_the_deadline() -> None:
    nobody: Answers = {name: lambda: rpc.NotLeading(None) for name in ("n2", "n3")}
    with pytest.raises(LeaderNotAvailable):
        propose(nobody, here=False, timeout_s=0.2)
