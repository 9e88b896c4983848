"""What the ledger tells of balance: moves that the cluster makes by itself, and each order of an operator."""

import msgspec
import pytest

from stockade.cluster.controller import ledger
from stockade.cluster.controller.balance import PlacedMove, Rebalance
from stockade.cluster.controller.commands import Arranged, MoveDone
from stockade.cluster.controller.topology.catalog import group_id
from stockade.partition.errors import LedgerFull, PlanChanged

from .recorded import ROOT, Recorded, node

ORDER = Rebalance(now_ms=0, by=ROOT, moves=[], plan="now", if_plan="now")


@pytest.fixture
def furnished() -> Recorded:
    """A topic of two partitions, and a node that has none."""
    recorded = Recorded()
    recorded.topic()
    recorded.do(node("z1", "z"))
    return recorded


def moves_to(recorded: Recorded, node_id: str) -> list[PlacedMove]:
    """Of both partitions."""
    found = recorded.machine.catalog.find("t", None)
    return [PlacedMove(group_id(found.topic_id, n), list(found.placements[n]), [node_id]) for n in (0, 1)]


def test_moves_of_balance_are_recorded_together_and_those_that_an_operator_confirms_by_name(
    furnished: Recorded,
) -> None:
    moves = moves_to(furnished, "z1")
    [entry] = furnished.told(Rebalance(now_ms=0, moves=moves))
    assert (entry.act, entry.principal, entry.topic, entry.name) == ("replicas.balance", None, None, None)
    assert entry.after == {f"t/{n}": {"replicas": [*moves[n].replicas, "z1"], "target": ["z1"]} for n in (0, 1)}
    assert furnished.told(Rebalance(now_ms=0, by=ROOT, moves=moves)) == []  # refused: they move; no operator ordered it
    done = [MoveDone(now_ms=0, group_id=move.group_id, version=furnished.index - 1) for move in moves]
    furnished.told(*done)
    back = PlacedMove(moves[1].group_id, ["z1"], ["n1"])
    [entry] = furnished.told(Rebalance(now_ms=0, by=ROOT, moves=[back]))
    assert (entry.principal, entry.topic, entry.partitions) == ("root", "t", "1")


def test_an_order_of_balance_leaves_exactly_one_entry_that_names_the_moves_and_the_leaders(furnished: Recorded) -> None:
    moves, leaders = moves_to(furnished, "z1"), [("u", 7, "n2", "n1")]
    order = msgspec.structs.replace(ORDER, moves=moves[:1], leaders=leaders)
    [entry] = furnished.told(order)
    assert (entry.act, entry.outcome, entry.principal, entry.name) == ("replicas.balance", "done", "root", "balance")
    assert entry.before == {"t/0": {"replicas": moves[0].replicas, "target": None}}
    assert entry.after == {
        "t/0": {"replicas": [*moves[0].replicas, "z1"], "target": ["z1"]},
        "leaders": {"u/7": {"from": "n2", "to": "n1"}},
    }


def test_an_order_of_one_move_alone_is_found_by_its_topic(furnished: Recorded) -> None:
    moves = moves_to(furnished, "z1")
    [entry] = furnished.told(msgspec.structs.replace(ORDER, moves=moves[1:]))
    assert (entry.topic, entry.partitions, entry.name) == ("t", "1", None)


def test_an_order_of_balance_that_only_sends_leaders_home_leaves_exactly_one_entry(furnished: Recorded) -> None:
    [entry] = furnished.told(msgspec.structs.replace(ORDER, leaders=[("t", 1, "n2", "n1")]))
    assert (entry.act, entry.outcome, entry.principal) == ("replicas.balance", "done", "root")
    assert entry.after == {"leaders": {"t/1": {"from": "n2", "to": "n1"}}}


def test_an_order_of_balance_that_finds_nothing_to_do_or_is_refused_leaves_exactly_one_entry(
    furnished: Recorded,
) -> None:
    [entry] = furnished.told(ORDER)
    assert (entry.outcome, entry.code, entry.name) == ("unchanged", None, "balance")
    stale = msgspec.structs.replace(ORDER, if_plan="of yesterday")
    assert furnished.do(stale) == PlanChanged(plan="now")
    [entry] = furnished.told(stale)
    assert (entry.outcome, entry.code, entry.principal) == ("refused", "PLAN_CHANGED", "root")
    moved = msgspec.structs.replace(ORDER, moves=moves_to(furnished, "z1"))
    furnished.do(moved)
    [entry] = furnished.told(moved)
    assert (entry.outcome, entry.code) == ("refused", "PLAN_CHANGED")


def test_an_order_of_balance_uses_the_reserve_and_is_then_refused_but_never_left_out(
    furnished: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "OUTBOX_ENTRIES_MAX", furnished.machine.ledger.waiting)
    monkeypatch.setattr(ledger, "RESERVE_ENTRIES", 1)
    moves = moves_to(furnished, "z1")
    [entry] = furnished.told(ORDER)
    assert entry.outcome == "unchanged"
    assert isinstance(furnished.do(msgspec.structs.replace(ORDER, moves=moves)), LedgerFull)
    assert not furnished.machine.assignment.moves
    assert furnished.do(Rebalance(now_ms=0, moves=moves)) == Arranged(), "what the cluster moves by itself goes on"
