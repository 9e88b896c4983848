"""What TLS and principals cost: plain appends to a cluster with both, beside one with neither.

``python bench/secured.py [--rounds 7] [--seconds 3] [--partitions 16] [--in-flight 256]`` runs two clusters at one time
and loads them in turns; each round begins with another one. The secured one has TLS between nodes (1.3, both ends
with certificates) and with clients, and principals, one of which appends by its token. The bar: 0.85 of the rate.

The client of the secured cluster encrypts, too, on the same machine: the processor time of the nodes is shown beside
the rate, and what a client with a core of its own would see lies between the two ratios. Connections are open before
the clock starts.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from figures import Sample, sample_of
from loads.over_http import TOKEN, call
from pairs import report
from systems.common import loaded, python_load
from systems.stockade import Nodes, cluster
from workloads import turns

from stockade.cluster.access.principals import new_token

PLAIN, SECURED = "plain", "secured"


@contextmanager
def secured(folder: Path) -> Iterator[tuple[Nodes, dict[str, str]]]:
    """Three nodes with TLS and principals, and the environment of their clients."""
    authority = folder / "data" / "certs" / "ca.crt"
    os.environ["SSL_CERT_FILE"] = str(authority)
    with cluster(folder, options=("--tls",)) as nodes:
        made = new_token()
        rights = ["produce topic:bench-*", "read topic:bench-*", "admin topic:bench-*", "admin cluster"]
        call("PUT", f"{nodes.urls[0]}/v1/principals/bench", {"rights": rights, "tokens": [{"hash": made.hash}]})
        os.environ[TOKEN] = made.token  # the other cluster has no principals, and looks at no token
        yield nodes, {TOKEN: made.token, "SSL_CERT_FILE": str(authority)}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--in-flight", type=int, default=256)
    chosen = parser.parse_args()
    samples: dict[str, list[Sample]] = {SECURED: [], PLAIN: []}
    with ExitStack() as stack:
        one, other = (Path(stack.enter_context(TemporaryDirectory())) for _ in range(2))
        plain = stack.enter_context(cluster(one))
        nodes, environment = stack.enter_context(secured(other))
        both = {PLAIN: (plain, {}), SECURED: (nodes, environment)}
        for each in (plain, nodes):
            each.create(chosen.partitions)
        for number, name in turns(chosen.rounds + 1, tuple(both)):
            at, its_environment = both[name]
            where = {"urls": at.urls, "topic": at.topic, "partitions": chosen.partitions}
            command = python_load("appends", **where, in_flight=chosen.in_flight, seconds=chosen.seconds)
            found = sample_of(loaded(at.pids, command, its_environment))
            if number:  # the first round warms up
                samples[name].append(found)
    report(samples)


if __name__ == "__main__":
    main()
