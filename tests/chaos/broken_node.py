"""The product, changed by tests: `python broken_node.py DEFECT WORDS` is `stockade WORDS` with a defect, in this
process and in the nodes that it starts; with `stops:FOLDER` in place of DEFECT it stops itself where the folder says.

What is shipped has no switch for either: this file puts functions of its own in place of the product's. A checker that
never fails proves nothing, so each defect is there that a checker can be seen to catch; a node that has one loses and
doubles what it is given. At a stop point a process stops itself with SIGSTOP, so that a pause as a garbage collector
makes it falls exactly there. The first of the words may be a Python file that is run in place of `stockade`.
"""

import inspect
import os
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stockade.cli.chaos_commands import arena, chaos
from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.client.transport import http
from stockade.client.transport.http import Answer, Request, Transport
from stockade.cluster.replica.replica import Replica
from stockade.partition.commands import Append, Appended, ClearFence, Result, SlotState, Stamp
from stockade.partition.errors import StockadeError
from stockade.partition.state import producers
from stockade.partition.state.fence import Fence
from stockade.partition.state.machine import PartitionMachine
from stockade.partition.state.producers import Producers
from stockade.raft.core.group import Group
from stockade.raft.core.leader import LeaderState
from stockade.raft.core.raft_node import RaftNode
from stockade.raft.messages import AppendAck

STOPS = "stops:"


def replace(owner: object, name: str, function: Callable[..., Any]) -> None:
    """Put ``function`` in place of the function ``name``, which must be there; it takes every argument of that one."""
    replaced = getattr(owner, name)
    assert callable(replaced), f"{owner} has no function {name} to replace"
    if inspect.isfunction(replaced):
        parameters = inspect.signature(replaced).parameters.values()
        inspect.signature(function).bind(*(each for each in parameters if each.kind is not each.KEYWORD_ONLY))
    setattr(owner, name, function)


# Defects.


def store_repetitions() -> None:
    """A batch that a producer repeats in its epoch is stored again, whatever its sequence numbers."""
    replace(producers, "_judge_range", lambda _entry, _place, _strict: None)


def accept_any_epoch() -> None:
    """A write passes with any fencing token, and without one."""
    replace(Fence, "judge", lambda _fence, _token, _require_fence, _principal: None)


def keep_released() -> None:
    """A token stays good when its grant is released: the slot is said to be cleared, and is not."""
    replace(Fence, "clear", lambda fence, _command, _log_end=None: fence._state(done=True))


def keep_closed() -> None:
    """A token stays good when its session is closed: only the end of a grant by itself clears the slot."""
    clear = Fence.clear

    def released(fence: Fence, command: ClearFence, log_end: int | None = None) -> SlotState:
        return fence._state(done=True) if command.ends == "closed" else clear(fence, command, log_end)

    replace(Fence, "clear", released)


def certify_the_opposite() -> None:
    """A refusal says of a batch that was committed that it is absent, and of any other that it was committed."""
    outcome = Producers.outcome

    def opposite(producers: Producers, stamp: Stamp, count: int) -> dict[str, str | int | None]:
        state = "absent" if outcome(producers, stamp, count)["state"] == "committed" else "committed"
        return {"state": state, "base_offset": None, "last_offset": None}

    replace(Producers, "outcome", opposite)


def commit_alone() -> None:
    """A leader that is a voter commits what is on its own disk, as soon as it is."""
    majority_index = LeaderState.majority_index

    def own_index(leader: LeaderState) -> int:
        return leader._log.durable_index if leader._is_voter else majority_index(leader)

    replace(LeaderState, "majority_index", own_index)
    replace(LeaderState, "waits_for_disk", lambda _leader: True)


def read_alone() -> None:
    """A leader reads without asking a majority whether it still leads, and never steps down for want of answers."""
    replace(LeaderState, "majority_contact", lambda _leader: float("inf"))
    submit_barrier = Group.submit_barrier

    def settle_at_once(group: Group, timeout_s: float, settle: Callable[[Exception | None], None]) -> None:
        if group.is_leader:
            settle(None)
        else:
            submit_barrier(group, timeout_s, settle)

    replace(Group, "submit_barrier", settle_at_once)


def never_sync() -> None:
    """The write-ahead log does not wait for the disk: what it calls durable is in the kernel's memory alone."""
    replace(os, "fdatasync", lambda _descriptor: None)


DEFECTS: dict[str, Callable[[], None]] = {
    "dedupe": store_repetitions,
    "epoch-check": accept_any_epoch,
    "release": keep_released,
    "close": keep_closed,
    "certificates": certify_the_opposite,
    "commit": commit_alone,
    "stale-reads": read_alone,
    "fsync": never_sync,
}
"""What can be broken, by name; each call puts its defect into this process."""


# Stop points. A process that comes to one removes the file POINT.PID from the folder, if it is there, and stops.


def stop_at(folder: str, point: str) -> None:
    """Stop this process, all its threads, if its stop at this point is wanted; it goes on after SIGCONT."""
    try:
        Path(folder, f"{point}.{os.getpid()}").unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_leaders(folder: str) -> None:
    """``append-received``: a leader has an append, and has proposed nothing. ``append-copied``: a leader hears that a
    follower has entries, and has counted nothing. ``append-applied``: a leader has the verdict, and has answered
    nothing.
    """
    command_of, apply, on_ack = Replica._command, PartitionMachine.apply, RaftNode._on_ack

    def received(replica: Replica, *arguments: Any) -> Append:
        stop_at(folder, "append-received")
        return command_of(replica, *arguments)

    def applied(machine: PartitionMachine, index: int, term: int, command: bytes) -> Result | StockadeError:
        result = apply(machine, index, term, command)
        if isinstance(result, Appended):
            stop_at(folder, "append-applied")
        return result

    def copied(node: RaftNode, node_id: str, ack: AppendAck) -> None:
        if node.leading is not None and ack.success and ack.next_index > node.commit_index + 1:
            stop_at(folder, "append-copied")
        on_ack(node, node_id, ack)

    replace(Replica, "_command", received)
    replace(PartitionMachine, "apply", applied)
    replace(RaftNode, "_on_ack", copied)


def stop_producers(folder: str) -> None:
    """``produce-begun``: a client is about to send an append. ``produce-written``: a client has handed an append to the
    connection. ``produce-answered``: a client has read the answer, and has not passed it on.
    """
    attempt, write = Transport._attempt, http._Body.write

    async def attempted(transport: Transport, request: Request, node: str) -> Answer:
        if request.on_written is None:
            return await attempt(transport, request, node)
        stop_at(folder, "produce-begun")
        answer = await attempt(transport, request, node)
        stop_at(folder, "produce-answered")
        return answer

    async def written(body: http._Body, *arguments: Any) -> None:
        await write(body, *arguments)
        if body._on_written is not None:
            stop_at(folder, "produce-written")

    replace(Transport, "_attempt", attempted)
    replace(http._Body, "write", written)


def program(change: str) -> list[str]:
    """The words to which those of `stockade` are appended, to run it with a defect, or with stop points."""
    return [sys.executable, __file__, change]


def stopping(folder: object) -> str:
    """The change that makes processes stop where this folder says."""
    return f"{STOPS}{folder}"


def main(change: str, words: Sequence[str]) -> None:
    """Change the product, and become it."""
    if change.startswith(STOPS):
        stop_leaders(change.removeprefix(STOPS))
        stop_producers(change.removeprefix(STOPS))
    else:
        DEFECTS[change]()
    for starter in (arena, chaos):  # of runs, and of rounds
        replace(starter, "LocalCluster", partial(LocalCluster, program=program(change)))
    is_file = words[0].endswith(".py")
    sys.argv = [*words] if is_file else ["stockade", *words]
    if is_file:
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module("stockade", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
