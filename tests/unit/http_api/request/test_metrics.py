"""What /metrics says of a node: every series, with the numbers that the node gave."""

import asyncio
import hashlib
import math
import re
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stockade.cluster.access.principals import Access, Token
from stockade.cluster.measures import Measures
from stockade.http_api.request import metrics
from stockade.http_api.request.samples import DAY_S, Certificate, of_node
from stockade.http_api.request.series import SERIES, WITH_NAMES
from stockade.partition.api.cluster import Unready

from ..conversation import Conversation, nodes
from ..fake_measures import fake_measures

Values = dict[tuple[str, frozenset[str]], float]


def values(text: str) -> Values:
    """Samples by name and the values of their labels."""
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for found in text_string_to_metric_families(text)
        for sample in found.samples
    }


def run(test: Callable[[Conversation], Awaitable[None]], access: Access | None = None) -> None:
    async def main() -> None:
        async with nodes(1, access) as (node,):
            await test(node)

    asyncio.run(main())


def test_each_series_has_its_line_of_help_before_anything_is_counted() -> None:
    async def test(node: Conversation) -> None:
        text = (await node.call("GET", "/metrics")).body.decode()
        exposed = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP stockade_")}
        assert exposed == {series.exposed for series in SERIES}
        kinds = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
        assert {series.exposed: series.kind for series in SERIES}.items() <= kinds.items()

    run(test)


def test_each_number_of_a_node_stands_at_its_own_series() -> None:
    async def test(node: Conversation) -> None:
        node.service.missing = [Unready("control", "no_controller", "none is known")]
        node.server.front.in_flight.requests.used = 30
        found = values((await node.call("GET", "/metrics")).body.decode())
        wanted = {
            ("stockade_node_info", "c-1 n1 a 0.1.0 c0ffee"): 1,
            ("stockade_ready", "data"): 1,
            ("stockade_ready", "control"): 0,
            ("stockade_step_bugs_total", ""): 33,
            ("stockade_raft_groups", "controller leader"): 1,
            ("stockade_raft_groups", "partition leader"): 2,
            ("stockade_raft_groups", "partition follower"): 3,
            ("stockade_raft_groups", "partition learner"): 4,
            ("stockade_raft_leaderless_groups", "partition"): 5,
            ("stockade_raft_under_replicated_groups", "partition"): 6,
            ("stockade_raft_term_max", "controller"): 7,
            ("stockade_raft_term_max", "partition"): 8,
            ("stockade_raft_follower_lag_entries", "n2"): 9,
            ("stockade_raft_apply_lag_entries", ""): 10,
            ("stockade_raft_pending_proposals", ""): 11,
            ("stockade_raft_pending_bytes", ""): 12,
            ("stockade_raft_leaderships_won_total", ""): 13,
            ("stockade_raft_leaderships_taken_total", ""): 32,
            ("stockade_raft_leaderships_lost_total", ""): 14,
            ("stockade_raft_apply_seconds_count", ""): 1,
            ("stockade_raft_nodes", "away"): 1,
            ("stockade_log_unsynced_bytes", ""): 15,
            ("stockade_log_wal_bytes", ""): 16,
            ("stockade_log_segment_bytes", ""): 17,
            ("stockade_log_disk_free_bytes", ""): 18,
            ("stockade_log_disk_size_bytes", ""): 19,
            ("stockade_log_disk_state", "low"): 1,
            ("stockade_log_quota_used_ratio", "logs"): 0.85,
            ("stockade_log_disk_state", "ok"): 0,
            ("stockade_fence_sessions", ""): 20,
            ("stockade_fence_grants", ""): 21,
            ("stockade_fence_held_partitions", ""): 22,
            ("stockade_fence_waiters", ""): 23,
            ("stockade_fence_pending_installs", ""): 24,
            ("stockade_fence_pending_seconds", ""): 31.5,
            ("stockade_ledger_waiting_entries", ""): 26,
            ("stockade_ledger_used_ratio", ""): 0.125,
            ("stockade_raft_moves", ""): 25,
            ("stockade_balance_leaders_away", ""): 26,
            ("stockade_balance_planned_moves", ""): 27,
            ("stockade_balance_planned_bytes", ""): 28,
            ("stockade_balance_moving_bytes", ""): 29,
            ("stockade_balance_leaderless_partitions", ""): 30,
            ("stockade_fence_takeovers_total", ""): 26,
            ("stockade_group_lag_records", "readers"): 27,
            ("stockade_http_in_flight_requests", ""): 30,
        }
        assert {key: found.get((key[0], frozenset(key[1].split()))) for key in wanted} == wanted

    run(test)


def test_a_node_that_has_refused_nothing_tells_so_of_the_codes_whose_first_one_fires_an_alert() -> None:
    async def test(node: Conversation) -> None:
        lines = (await node.call("GET", "/metrics")).body.decode().splitlines()
        told = [line for line in lines if line.startswith("stockade_http_refusals_total{")]
        assert told == [f'stockade_http_refusals_total{{code="{code}"}} 0.0' for code in metrics.ALERTED]

    run(test)
    alerts = (Path(__file__).parents[4] / "ops" / "alerts.yml").read_text(encoding="utf-8")
    refusals = re.findall(r'http_refusals_total\{job="stockade", code="(\w+)"\}\[\w+\]\)\) > 0(?!\.)', alerts)
    assert set(refusals) <= set(metrics.ALERTED)


def test_a_bucket_of_a_histogram_has_all_that_is_in_those_below() -> None:
    async def test(node: Conversation) -> None:
        found = values((await node.call("GET", "/metrics")).body.decode())
        buckets = {
            float(next(iter(labels))): value
            for (name, labels), value in found.items()
            if name == "stockade_log_fsync_seconds_bucket"
        }
        assert (buckets[0.25], buckets[0.5], buckets[5.0], buckets[math.inf]) == (0, 1, 1, 2)
        assert found["stockade_log_fsync_seconds_sum", frozenset()] == pytest.approx(9.3)

    run(test)


def test_names_of_consumer_groups_and_topics_are_for_callers_who_may_read_the_cluster() -> None:
    access = Access([Token("reads", hashlib.sha256(b"reads").hexdigest(), "read")])

    async def test(node: Conversation) -> None:
        for token, is_shown in ((None, False), ("guessed", False), ("reads", True)):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            answer = await node.call("GET", "/metrics", None, headers)
            assert answer.status == 200
            assert (b"readers" in answer.body) is (b'topic="logs"' in answer.body) is is_shown
            assert b"stockade_raft_groups{" in answer.body

    run(test, access)
    assert {"stockade_group_lag_records", "stockade_log_quota_used_ratio"} == WITH_NAMES


def counted(node: Conversation, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The looks that are taken from here on, each by whether it is with names."""
    looks: list[bool] = []

    async def look(*, names: bool = False) -> Measures:
        looks.append(names)
        return fake_measures("n1")

    monkeypatch.setattr(node.service, "measures", look)
    return looks


def test_sixty_concurrent_anonymous_requests_for_metrics_cause_at_most_two_collections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    access = Access([Token("reads", hashlib.sha256(b"reads").hexdigest(), "read")])
    now_s = 0.0
    monkeypatch.setattr(metrics, "monotonic", lambda: now_s)

    async def test(node: Conversation) -> None:
        nonlocal now_s
        looks = counted(node, monkeypatch)
        answers = await asyncio.gather(*(node.call("GET", "/metrics") for _ in range(60)))
        assert {answer.status for answer in answers} == {200}
        assert 1 <= len(looks) <= 2
        now_s = metrics.FRESH_S
        looks.clear()
        assert b"stockade_raft_groups{" in (await node.call("GET", "/metrics")).body
        assert looks == [False]

    run(test, access)


def test_callers_with_read_cluster_share_metrics_that_were_begun_after_their_request() -> None:
    async def main() -> None:
        looks: list[asyncio.Event] = []
        began = asyncio.Event()

        async def look() -> bytes:
            looks.append(asyncio.Event())
            began.set()
            await looks[-1].wait()
            return b"text %d" % len(looks)

        shared = metrics.Shared(look, 0)
        first = asyncio.ensure_future(shared.get())
        await began.wait()
        others = [asyncio.ensure_future(shared.get()) for _ in range(60)]
        others[0].cancel()  # its client went away
        looks[0].set()
        began.clear()
        await began.wait()
        assert await first == b"text 1"
        looks[1].set()
        assert set(await asyncio.gather(*others[1:])) == {b"text 2"}
        assert len(looks) == 2

    asyncio.run(main())


def test_metrics_are_answered_while_every_thread_of_the_loop_waits_for_a_disk() -> None:
    async def test(node: Conversation) -> None:
        loop, disk = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        waiting = loop.run_in_executor(None, disk.wait)
        try:
            async with asyncio.timeout(30):
                assert (await node.call("GET", "/metrics")).status == 200
            assert not waiting.done()
        finally:
            disk.set()
            await waiting

    run(test)


def test_a_certificate_counts_the_days_that_it_has_left() -> None:
    found, now = fake_measures("n1"), time.time()
    certificates = {"http": Certificate(now + 10 * DAY_S, False), "raft": Certificate(now - DAY_S, False)}
    days = of_node(found, certificates)["stockade_certificate_days_left"]
    assert {key: round(value, 2) for key, value in days.items()} == {("http",): 10, ("raft",): -1}
    assert of_node(found, {})["stockade_certificate_days_left"] == {}


def test_a_state_tells_when_the_certificates_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(node: Conversation) -> None:
        found = fake_measures("n1")
        found.raft.certificate_expires_at = 1_800_000_000.5
        monkeypatch.setattr(node.service, "measures", AsyncMock(return_value=found))
        (state,) = (await node.call("GET", "/v1/nodes")).json["nodes"]
        assert state["certificates"] == {"raft": 1_800_000_000_500}
        assert state["refused_certificates"] == []

    run(test)


def test_a_certificate_whose_files_are_refused_is_told_by_the_state_and_a_gauge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(node: Conversation) -> None:
        found = fake_measures("n1")
        found.raft.certificate_expires_at, found.raft.is_certificate_refused = 1_800_000_000.5, True
        monkeypatch.setattr(node.service, "measures", AsyncMock(return_value=found))
        (state,) = (await node.call("GET", "/v1/nodes")).json["nodes"]
        assert state["refused_certificates"] == ["raft"]
        assert b'stockade_certificate_refused{use="raft"} 1.0' in (await node.call("GET", "/metrics")).body

    run(test)
