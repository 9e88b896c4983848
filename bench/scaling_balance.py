"""How long a plan of balance takes in a large cluster: for scaling.py.

The placement is the controller's own; leaders, sizes and disks are made up, the same for each node. A plan changes
MOVES_MAX partitions at most, so a cluster that a machine joined takes as many plans as it has thousands to move.
"""

from functools import partial

from scaling_world import Controller, Row, Sizes, create, register, resident_mb, timed

from stockade.cluster.balance.facts import Disk, Facts, NodeFacts, PartitionFacts
from stockade.cluster.balance.plan import make_plan
from stockade.cluster.controller.machine import ControllerMachine

GB = 1 << 30
DISK = Disk(1_000 * GB, 2_000 * GB, 2 * GB)


def facts(machine: ControllerMachine, more: int, away: int = 0) -> Facts:
    """The facts of a machine's placement, with ``more`` new nodes in a zone of their own. If ``away`` is not 0,
    each 100th partition of a topic is led by its second replica, away from home.
    """
    nodes = [NodeFacts(entry.node_id, entry.zone, DISK) for entry in machine.assignment.nodes.rows.values()]
    nodes += [NodeFacts(f"new-{number:02}", "new", DISK) for number in range(more)]
    partitions = [
        PartitionFacts(group, list(replicas), replicas[1 if away and number % 100 == 0 else 0], GB)
        for topic in machine.catalog.topics()
        for number, (group, replicas) in enumerate(zip(topic.groups(), topic.placements, strict=True))
    ]
    return Facts(nodes, partitions, 85)


def plans(sizes: Sizes) -> list[Row]:
    """Plans of balance: nothing to do, leaders away from home, a zone of new nodes."""
    controller = Controller()
    register(controller, sizes)
    create(controller, sizes)
    still, homes = facts(controller.machine, 0), facts(controller.machine, 0, away=1)
    joined = facts(controller.machine, sizes.nodes_per_zone)
    took = [timed(partial(make_plan, known)) for known in (still, homes, joined)]
    plan = make_plan(joined)
    return [
        Row("a plan: nothing to do", took[0] * 1e3, "ms"),
        Row("a plan: each 100th leader goes home", took[1] * 1e3, "ms"),
        Row("a plan: a machine has joined", took[2] * 1e3, "ms"),
        Row("partitions that this plan moves", len(plan.moves), ""),
        Row("memory of the process", resident_mb(), "MB"),
    ]
