"""The cluster as the answering node sees it: nodes, leaders, moves."""

import msgspec


class LeaderInfo(msgspec.Struct, frozen=True):
    """The leader of a group: base URL, node id, term. None, None and 0 while it is unknown."""

    leader: str | None
    leader_node: str | None
    leader_term: int


class Node(msgspec.Struct, frozen=True):
    """A member. ``url`` serves HTTP, ``raft_address`` (host:port) the other nodes.

    ``alive``: the answering node has heard from it lately. ``draining``: its replicas are being moved away.
    """

    node_id: str
    url: str
    raft_address: str
    zone: str | None
    alive: bool
    draining: bool = False


class Reassignment(msgspec.Struct, frozen=True):
    """A partition's replicas move to these nodes (node ids)."""

    topic: str
    partition: int
    replicas: list[str]


class Cluster(msgspec.Struct, frozen=True):
    """The cluster as node ``node_id`` sees it. ``controller``: the leader of the controller group.

    ``nodes`` are ascending by id; ``reassignments`` are those under way; ``controllers`` are the node ids of the
    controller group, those of both ends while it moves.
    """

    cluster_id: str
    node_id: str
    version: str
    controller: LeaderInfo
    nodes: list[Node]
    reassignments: list[Reassignment] = []
    controllers: list[str] = []
