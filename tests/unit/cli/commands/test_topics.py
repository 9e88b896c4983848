from typing import Any

import pytest
from click.testing import CliRunner

from stockade.cli.main import main

from ...client.fake_cluster import FakeCluster
from ..conftest import Run


def test_a_topic_is_created_listed_described_and_deleted(cluster: FakeCluster, run: Run) -> None:
    created = run("topics", "create", "orders", "--partitions", "2", "--require-fence")
    assert (created.exit_code, created.stdout) == (0, "orders: 2 partitions with 1 replica each\n")
    assert cluster.topics["orders"].require_fence
    assert run("topics", "list").stdout.splitlines() == ["TOPIC   PARTITIONS  ID", "orders  2           1"]
    assert run("topics", "describe", "orders").stdout.splitlines() == [
        "orders: 2 partitions with 1 replica each, id 1, exclusive writers only",
        "settings: require_fence=True, retention_ms=-1",
        "PARTITION  LEADER  REPLICAS  RECORDS  BYTES  WRITER",
        "0          n1      n1        0        0      -",
        "1          n1      n1        0        0      -",
    ]
    assert run("topics", "delete", "orders").stdout == "orders: deleted\n"
    assert cluster.topics == {}


def test_a_partition_without_a_leader_is_shown_without_its_size(
    cluster: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command waited for it, and ended with LEADER_NOT_AVAILABLE, which named no partition."""
    run("topics", "create", "t", "--partitions", "2")
    described = cluster._described

    def without_leader(topic: Any) -> dict[str, Any]:
        found = described(topic)
        found["partitions"][1] |= {"leader": None, "leader_node": None}
        return found

    monkeypatch.setattr(cluster, "_described", without_leader)
    shown = run("topics", "describe", "t").stdout.splitlines()
    assert shown[-2:] == [
        "0          n1      n1        0        0      -",
        "1          none    n1        -        -      -",
    ]


def test_refusals_say_what_to_do_next_and_end_with_1(run: Run) -> None:
    unknown = run("topics", "describe", "nowhere")
    assert unknown.exit_code == 1
    assert unknown.stdout == ""
    assert "(UNKNOWN_TOPIC_OR_PARTITION)" in unknown.stderr
    assert "`stockade topics list`" in unknown.stderr
    run("topics", "create", "t")
    other = run("topics", "create", "t", "--partitions", "2")
    assert other.exit_code == 1
    assert "(TOPIC_ALREADY_EXISTS)" in other.stderr


def test_no_cluster_ends_with_4_and_says_how_to_start_one() -> None:
    result = CliRunner().invoke(main, ["topics", "list"], env={"STOCKADE_URL": "http://127.0.0.1:9"})
    assert result.exit_code == 4
    assert "http://127.0.0.1:9" in result.stderr
    assert "`stockade cluster`" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_wrong_usage_ends_with_2() -> None:
    for arguments in (
        ["topics", "create"],
        ["topics", "list", "--url", "nonsense"],
        ["topics", "list", "--timeout", "0"],
    ):
        assert CliRunner().invoke(main, arguments).exit_code == 2
