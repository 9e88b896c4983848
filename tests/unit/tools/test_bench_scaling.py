"""bench/scaling.py at small sizes: the figures of docs/scaling.md can be made again."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from stockade.cluster.controller.topology import nodes

BENCH = Path(__file__).resolve().parents[3] / "bench"
MODULES = ("scaling", "scaling_balance", "scaling_zone", "scaling_world")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(nodes, "NODES_MAX", nodes.NODES_MAX)
    yield import_module("scaling")
    for name in MODULES:
        sys.modules.pop(name, None)


def values(bench: ModuleType, table: str, **sizes: int) -> dict[str, float]:
    given = {"zones": 5, "nodes_per_zone": 2, "partitions": 100, "topics": 4, "sessions": 50, "names": 50} | sizes
    rows = bench.TABLES[table](bench.Sizes(**given))
    assert len({row.what for row in rows}) == len(rows), "two lines of one name"
    return {row.what: row.value for row in rows}


def test_placement_is_level_and_keeps_to_the_zones(bench: ModuleType) -> None:
    found = values(bench, "placement")
    assert found["replicas a node, most"] - found["replicas a node, fewest"] <= 2
    assert found["first replicas a node, most"] == found["first replicas a node, fewest"] == 10
    assert found["partitions with two replicas in a zone"] == 0


def test_a_lost_zone_heals_with_four_commands_a_replica(bench: ModuleType) -> None:
    found = values(bench, "zone")
    assert found["nodes lost"] == 2
    assert 2 * 29 <= found["replicas that move"] <= 2 * 31
    assert found["commands to the controller"] == 4 * found["replicas that move"]
    assert found["moves at once, most"] <= 4 * found["leaders that move replicas"]
    assert found["until every partition has its replicas (model)"] > 0


def test_plans_of_balance_move_to_a_machine_that_has_joined(bench: ModuleType) -> None:
    assert 40 <= values(bench, "balance")["partitions that this plan moves"] <= 60


def test_more_nodes_than_the_product_takes_are_measured(bench: ModuleType) -> None:
    assert values(bench, "placement", zones=51)["replicas a node, most"] <= 4


@pytest.mark.parametrize("table", ["sessions", "producers", "grants"])
def test_every_table_is_made_at_a_small_size(bench: ModuleType, table: str) -> None:
    assert values(bench, table)["checkpoint"] > 0
