"""From facts to a plan, in four steps that are repeated until none of them changes anything: full disks are relieved,
replicas that share a zone are taken apart, nodes with more replicas than others give some, and homes of leaders are
spread. Then the leaders go home.

Each step lowers its own measure and raises none that an earlier step lowers. The measures are: bytes on full disks,
replicas that share a zone, the sum of the squares of the nodes' replica counts, and that of their home counts. So the
steps end, and a plan for the planned cluster is empty.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from .board import Board, Emptiest, Fullest
from .facts import Facts, Hold, NodeFacts, Plan, Transfer

TRANSFERS_MAX = 1_000
"""Leaders that one plan sends home."""


HOMES_SLACK_MIN = 3
"""A transfer that an operator orders moves the home of the partition, too, so that two nodes may differ by two homes:
with this slack, balance does not undo it.
"""


def slack(mean: int, least: int = 2) -> int:
    """The least difference of two nodes' counts at which replicas move: a tenth, since less is not worth a move."""
    return max(least, mean // 10 + 1)


def make_plan(facts: Facts) -> Plan:
    """The plan that follows from the facts. The same facts make the same plan, on any node."""
    board = Board(facts)
    while not board.is_cut and any([relieve(board), part_zones(board), spread(board), spread_homes(board)]):
        pass
    transfers = list(_going_home(board))
    barred = {node.node_id: bar for number, node in enumerate(board.nodes) if (bar := board.bar(number)) is not None}
    is_cut = board.is_cut or len(transfers) > TRANSFERS_MAX
    return Plan(list(board.moves()), transfers[:TRANSFERS_MAX], barred, find_holds(board.nodes), is_cut)


def find_holds(nodes: Sequence[NodeFacts]) -> dict[str, Hold]:
    """The nodes because of which the cluster moves no replica by itself: those that are away and not given up, or are
    back for too short a time; and, while several versions of the software run, those that do not run the most frequent
    one. Nodes that are being removed, or never registered, do not count.
    """
    found: dict[str, Hold] = {}
    here = [node for node in nodes if node.bar not in ("leaving", "announced")]
    versions = Counter(sorted(node.version for node in here if node.version is not None))
    usual = max(versions, key=lambda each: versions[each], default=None)
    for node in here:
        if node.bar in ("away", "unstable") and not node.is_given_up:
            found[node.node_id] = node.bar
        elif node.version not in (None, usual):
            found[node.node_id] = "version"
    return found


def relieve(board: Board) -> bool:
    """Move replicas from nodes with full disks, large ones first, until enough is free. Returns whether any moved."""
    emptiest = Emptiest(board.counts, _receivers(board))
    full = [node for node in range(len(board.nodes)) if board.is_full(node) and board.is_here(node)]
    gave = False
    for node in sorted(full, key=lambda each: (board.free[each], each)):
        # Sizes are compared by their power of two, so that a plan does not change with each append.
        for partition in sorted(board.held[node], key=lambda each: (-_magnitude(board, each), _rank(board, each))):
            if board.is_cut or board.is_relieved(node):
                break
            if board.may_leave(partition, node, may_lag=True):
                target = _target(board, emptiest, partition, node, len(board.partitions) + 1)
                if target is not None:
                    board.move(partition, node, target, "disk")
                    gave = True
    return gave


def part_zones(board: Board) -> bool:
    """Where two replicas of a partition share a zone, and another zone has none, move one there. Returns whether any
    moved.
    """
    receivers = _receivers(board)
    open_zones = {board.zones[node] for node in receivers}
    gave = False
    for partition, placed in enumerate(board.placed):
        used = {board.zones[node] for node in placed}
        if board.is_cut or len(used) == len(placed) or open_zones <= used:
            continue
        for source in sorted(placed, key=lambda node: -board.counts[node]):
            shared = sum(board.zones[node] == board.zones[source] for node in placed) > 1
            if shared and board.is_here(source) and board.may_leave(partition, source):
                others = [node for node in receivers if board.zones[node] not in used]
                target = _target(board, Emptiest(board.counts, others), partition, source, len(board.partitions) + 1)
                if target is not None:
                    board.move(partition, source, target, "zone")
                    gave = True
                    break
    return gave


def spread(board: Board) -> bool:
    """While some nodes have many more replicas than others, move replicas from the former to the nodes with the fewest.
    Returns whether any moved.
    """
    receivers = _receivers(board)
    here = [node for node in range(len(board.nodes)) if board.is_here(node)]
    if not _is_uneven(board.counts, here, receivers):
        return False
    emptiest = Emptiest(board.counts, receivers)
    left = {node: iter(sorted(board.held[node], key=lambda each: _rank(board, each))) for node in here}

    def gives(node: int) -> bool:
        if board.is_cut:
            return False
        for partition in left[node]:
            if partition in board.held[node] and board.may_leave(partition, node):
                target = _target(board, emptiest, partition, node, board.counts[node] - 1)
                if target is not None:
                    board.move(partition, node, target, "spread")
                    return True
        return False

    return Fullest(board.counts, here).drain(gives)


def spread_homes(board: Board) -> bool:
    """While some nodes are the home of many more leaders than others, make another replica of a partition the home of
    its leader. Returns whether any home changed.
    """
    receivers = [node for node in range(len(board.nodes)) if board.may_lead(node)]
    here = [node for node in range(len(board.nodes)) if board.is_here(node)]
    if not _is_uneven(board.firsts, here, receivers, HOMES_SLACK_MIN):
        return False
    able = set(receivers)
    left = {node: iter(sorted(board.held[node], key=lambda each: _rank(board, each))) for node in here}

    def gives(node: int) -> bool:
        if board.is_cut:
            return False
        for partition in left[node]:
            placed = board.placed[partition]
            if placed[0] == node and not board.partitions[partition].is_moving:
                heirs = [other for other in placed[1:] if other in able and other not in board.behind[partition]]
                heir = min(heirs, key=lambda other: (board.firsts[other], other), default=None)
                if heir is not None and board.firsts[heir] < board.firsts[node] - 1:
                    board.put_first(partition, heir)
                    return True
        return False

    return Fullest(board.firsts, here).drain(gives)


def _receivers(board: Board) -> list[int]:
    return [node for node in range(len(board.nodes)) if board.bar(node) is None]


def _is_uneven(counts: list[int], givers: list[int], receivers: list[int], least_slack: int = 2) -> bool:
    if not givers or not receivers:
        return False
    mean = sum(counts[node] for node in givers) // len(givers)
    most, least = max(counts[node] for node in givers), min(counts[node] for node in receivers)
    return most - least >= slack(mean, least_slack)


def _target(board: Board, emptiest: Emptiest, partition: int, source: int, below: int) -> int | None:
    return emptiest.find(lambda node: board.may_go(partition, source, node), below)


def _rank(board: Board, partition: int) -> tuple[int, int]:
    """The rank of a partition in an order that mixes partitions of all topics, and is the same on every node."""
    group = board.partitions[partition].group
    return (group * 2654435761) & 0xFFFFFFFF, group


def _magnitude(board: Board, partition: int) -> int:
    return (board.partitions[partition].stored_bytes or 0).bit_length()


def _going_home(board: Board) -> Iterator[Transfer]:
    """The transfers of leaders whose partition does not move, and whose home may lead and is not behind."""
    able = {node for node in range(len(board.nodes)) if board.may_lead(node)}
    for partition, part in enumerate(board.partitions):
        home = board.placed[partition][0]
        node_id = board.nodes[home].node_id
        moves = part.is_moving or board.why.get(partition, "home") != "home"
        if not moves and part.leader not in (None, node_id) and home in able and home not in board.behind[partition]:
            assert part.leader is not None
            yield Transfer(part.group, part.leader, node_id)
