from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from stockade.cli.main import main
from stockade.testing import Cluster

from ..client.conftest import no_call_is_late  # noqa: F401 (a fixture)
from ..client.fake_cluster import FakeCluster
from .operating import Operator

Run = Callable[..., Result]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster().running(nodes=2) as running:
        yield running


@pytest.fixture
def run(cluster: FakeCluster) -> Run:
    """Call a command against the fake cluster."""

    def call(*arguments: str, stdin: bytes = b"", timeout: str = "10") -> Result:
        return CliRunner().invoke(
            main, [*arguments, "--url", ",".join(cluster.nodes), "--timeout", timeout], input=stdin
        )

    return call


@pytest.fixture(scope="module")
def at() -> Iterator[Operator]:
    with Cluster() as running:
        yield Operator(running)


@pytest.fixture
def session(at: Operator) -> Iterator[str]:
    opened = at.says("sessions", "open", "nightly", "--ttl", "120").strip()
    yield opened
    at.says("sessions", "end", opened)
