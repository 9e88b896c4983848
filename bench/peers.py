"""P4: one record of 1 KiB a request, 256 in flight, Stockade beside etcd over HTTP.

``python bench/peers.py [--in-flight 256] [--seconds 3] [--repeats 5]`` runs both in turns and prints medians.

Both are three nodes on this machine, on the same disk, with their default settings: an answer means that the record is
synced to the disks of a majority. Both get the same load from the same client, straight to the node that leads, on one
HTTP/1.1 connection for each request in flight: an append to one partition here, a put of a new key there.
"""

# ruff: noqa: T201  # it prints a table

import argparse
import os
import shutil
import sys

from append_http import VALUE, Row, measure, plain
from etcd import etcd, version
from trees import call, clusters, leader_of


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    if shutil.which("etcd") is None:
        sys.exit("there is no etcd here: Debian's package is etcd-server")
    print(f"{version()}; load of this machine before: {os.getloadavg()[0]:.2f}, {os.cpu_count()} processors")
    with etcd() as peer, clusters([""]) as found:
        nodes = found[""]
        call("POST", f"{nodes.urls[0]}/v1/topics", {"name": "plain"})
        rows = {
            "etcd, put over HTTP": Row(peer, peer.leader(), peer.puts(VALUE)),
            "Stockade, append": Row(nodes, leader_of(nodes.urls, "plain"), plain("plain")),
        }
        measure(rows, chosen.in_flight, chosen.seconds, chosen.repeats)


if __name__ == "__main__":
    main()
