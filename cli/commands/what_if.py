"""`stockade doctor --what-if`: what would stop if a zone, a node or a disk were lost, computed from the catalog alone.

A group goes on while a majority of its members is left. Nodes that are away already count as lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...partition.api.cluster import Cluster
from ...partition.api.topics import PartitionState, Topic
from ..ui.output import count, some

Verdict = Literal["ok", "warning", "wrong"]
Kind = Literal["zone", "node", "disk"]
KINDS: tuple[Kind, ...] = ("zone", "node", "disk")
SHOWN_MAX = 8
"""Partitions or writers that a line names, at most."""

CONTROLLERS_STOP = "Sessions, grants, new topics and takeovers would stop; holders of grants would write on."
SPREAD = "Move replicas to other zones or nodes: `stockade cluster move`."


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of `stockade doctor`, and what to do if it is not ok."""

    about: str
    verdict: Verdict
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Loss:
    """A supposed loss: of the zone ``name``, of the node ``name``, or of the disk of the node ``name``."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"disk of {self.name}" if self.kind == "disk" else f"{self.kind} {self.name}"


def losses(text: str, cluster: Cluster) -> list[Loss]:
    """The losses that a text names: ``zone a``, ``lose node n2``, ``disk n2``; without a name, each of that kind.

    Raises ValueError with what is wrong.
    """
    words = text.split()
    words = words[1:] if words[:1] == ["lose"] else words
    if not 1 <= len(words) <= 2 or words[0] not in KINDS:
        raise ValueError(f"{text!r} is not zone NAME, node NAME or disk NODE; without a name, each of them")
    kind: Kind = words[0]
    known = sorted({_place(kind, cluster, node.node_id) for node in cluster.nodes} - {""})
    if not known:
        raise ValueError("no node of this cluster names its zone")
    if words[1:] and words[1] not in known:
        raise ValueError(f"there is no {kind if kind == 'zone' else 'node'} {words[1]}; there are {', '.join(known)}")
    return [Loss(kind, name) for name in words[1:] or known]


def _place(kind: Kind, cluster: Cluster, node_id: str) -> str:
    zones: Mapping[str, str] = {node.node_id: node.zone or "" for node in cluster.nodes}
    return zones[node_id] if kind == "zone" else node_id


def judge_loss(loss: Loss, cluster: Cluster, topics: Sequence[Topic]) -> Iterator[Finding]:
    """The findings about one loss: the groups that would stop, records that would be lost, grants that would be of no
    use, and groups that could lose no further member.
    """
    lost = {node.node_id for node in cluster.nodes if _place(loss.kind, cluster, node.node_id) == loss.name}
    away = {node.node_id for node in cluster.nodes if not node.alive}
    about = f"without {loss}"
    yield _judge_controllers(about, cluster.controllers, lost | away)
    names = {(topic.name, state.partition): state for topic in topics for state in topic.partitions}
    stopped = {name: state for name, state in names.items() if not _goes_on(state.replicas, lost | away)}
    if loss.kind == "disk":
        yield from _judge_records(about, names, lost)
    yield from _judge_partitions(about, names, stopped, lost | away)
    writers = [
        f"{state.holder.client_id or state.holder.producer_name} on {name}/{number}"
        for (name, number), state in stopped.items()
        if state.holder is not None
    ]
    if writers:
        advice = "They write to partitions with too few replicas, or all in one place."
        yield Finding(
            about, "wrong", f"{count(len(writers), 'grant')} would be of no use: {some(writers, SHOWN_MAX)}", advice
        )
    elif any(state.holder is not None for state in names.values()):
        yield Finding(about, "ok", "every holder of a grant would write on")


def _judge_controllers(about: str, controllers: Sequence[str], lost: set[str]) -> Finding:
    left = [node_id for node_id in controllers if node_id not in lost]
    found = f"{len(left)} of {len(controllers)} controllers would be left"
    if not _goes_on(controllers, lost):
        return Finding(about, "wrong", found, CONTROLLERS_STOP)
    is_last = len(left) < len(controllers) and not _goes_on(controllers, {*lost, left[0]})
    return Finding(about, "ok", found + (", and none to spare" if is_last else ""))


def _judge_partitions(
    about: str,
    names: Mapping[tuple[str, int], PartitionState],
    stopped: Mapping[tuple[str, int], PartitionState],
    lost: set[str],
) -> Iterator[Finding]:
    if stopped:
        advice = f"Their topics have too few replicas, or all in one place. {SPREAD}"
        yield Finding(about, "wrong", f"{count(len(stopped), 'partition')} would stop: {_named(stopped)}", advice)
    else:
        yield Finding(about, "ok", f"all {count(len(names), 'partition')} would go on")
    hit = {name: state for name, state in names.items() if name not in stopped and {*state.replicas} & lost}
    bare = [name for name, state in hit.items() if not _goes_on(state.replicas, {*lost, _first_left(state, lost)})]
    if bare:
        yield Finding(about, "ok", f"{count(len(bare), 'partition')} would have no replica to spare: {_named(bare)}")
    led = [name for name, state in hit.items() if state.leader_node in lost]
    if led:
        yield Finding(about, "ok", f"{count(len(led), 'partition')} would elect another leader within about a second")


def _judge_records(about: str, names: Mapping[tuple[str, int], PartitionState], lost: set[str]) -> Iterator[Finding]:
    """The finding about records, if the disks of ``lost`` are gone for good. An acknowledged record is on a majority of
    its replicas' disks, so it survives while a majority is left.
    """
    gone = [name for name, state in names.items() if not _goes_on(state.replicas, lost)]
    if gone:
        found = f"{count(len(gone), 'partition')} would lose records for good: {_named(gone)}"
        yield Finding(about, "wrong", found, f"They have no other copy that is sure to be whole. {SPREAD}")
    else:
        yield Finding(about, "ok", "no acknowledged record would be lost")


def _goes_on(members: Sequence[str], lost: set[str]) -> bool:
    """Whether a majority of the members is left without those of ``lost``."""
    return 2 * sum(node_id not in lost for node_id in members) > len(members)


def _first_left(state: PartitionState, lost: set[str]) -> str:
    return next(node_id for node_id in state.replicas if node_id not in lost)


def _named(names: Mapping[tuple[str, int], object] | Sequence[tuple[str, int]]) -> str:
    return some([f"{topic}/{number}" for topic, number in names], SHOWN_MAX)
