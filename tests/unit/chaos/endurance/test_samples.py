"""A sample has what /proc and the metrics say, and rates are those of one process alone."""

import http.server
import os
import threading
from collections.abc import Iterator

import msgspec
import pytest

from stockade.chaos.endurance.samples import Rates, Sample, between, sample
from stockade.chaos.history.observed import Strike
from stockade.chaos.report.endurance import Endurance, page

ROUTE = "/v1/topics/{topic}/partitions/{partition}/records"
METRICS = """# HELP stockade_raft_groups Raft groups
stockade_raft_groups{kind="partition",role="leader"} 4.0
stockade_raft_groups{kind="controller",role="leader"} 1.0
stockade_raft_groups{kind="partition",role="follower"} 7.0
stockade_log_wal_bytes 1000.0
stockade_log_segment_bytes 500.0
stockade_appended_records_total 90.0
stockade_loop_stall_seconds_sum 0.5
stockade_http_request_seconds_bucket{le="0.1",method="POST",route="ROUTE"} 8
stockade_http_request_seconds_bucket{le="+Inf",method="POST",route="ROUTE"} 9
stockade_http_request_seconds_bucket{le="0.1",method="GET",route="/v1/topics"} 100
""".replace("ROUTE", ROUTE)


@pytest.fixture
def url() -> Iterator[str]:
    class Node(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(METRICS.encode())

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Node) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_sample_has_figures_of_the_process_and_of_its_metrics(url: str) -> None:
    found = sample("n1", os.getpid(), url)
    assert found is not None
    assert found.memory_bytes > 1_000_000
    assert found.descriptors >= 3
    assert (found.disk_bytes, found.leads, found.records, found.stalled_s) == (1500, 5, 90, 0.5)
    assert (found.bounds_s, found.appends) == ((0.1,), (8, 9))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Sample) == found


def test_a_node_that_does_not_answer_still_has_memory_and_one_that_has_ended_nothing() -> None:
    found = sample("n1", os.getpid(), "http://127.0.0.1:1")
    assert found is not None
    assert found.leads is None
    assert sample("n1", 2**22 + 1, "http://127.0.0.1:1") is None


def at(second: int, records: int, pid: int = 1, leads: int | None = 2) -> Sample:
    return Sample(second * 10**9, "n1", pid, 10**8, 50, 10**6, leads, records, second / 10, (records, records), (0.1,))


def test_rates_are_those_between_two_samples_of_one_process() -> None:
    assert between(at(10, 100), at(20, 300)) == Rates(20.0, 0.1, 0.1)
    assert between(at(10, 100), at(20, 300, pid=2)) is None
    assert between(at(10, 100, leads=None), at(20, 300)) is None


def test_the_page_says_what_grows_and_breaks_its_lines_where_a_process_ended() -> None:
    samples = [at(second, second * 10, pid=1 + second // 3600) for second in range(0, 7200, 10)]
    strike = Strike(1, "kill-leader", "kill -9 <n1>", ["n1"], 600 * 10**9, 610 * 10**9)
    text = page(Endurance("Endurance", 0, samples, [strike], [("cluster", "1 node")], ["gap: <3>"], 1))
    assert "Memory of n1 does not grow. In an hour: n1 +0.00 MiB." in text
    assert "kill-leader: kill -9 &lt;n1&gt;" in text
    assert "gap: &lt;3&gt;" in text
    assert text.count("<polyline") == 7 * 2, "two lives in each of seven panels"
    assert "://" not in text.replace("http://www.w3.org", "")
    leak = [Sample(s.at_ns, "n2", 1, 10**8 + s.at_ns // 1000, 50) for s in samples]
    text = page(Endurance("Endurance", 0, [*samples, *leak], [], [], [], 0))
    assert "Memory of n2 grows. In an hour: n1 +0.00 MiB, n2 +3433.23 MiB." in text
    assert "Memory may grow or not" in page(Endurance("Endurance", 0, [], [], [], [], 0))
