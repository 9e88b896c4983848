"""How fast Arrow answers go from a segment to a client, beside a bare sendfile of the same bytes over HTTP (P8).

``python bench/fetch.py [--base REVISION] [--mib 256] [--repeats 5]``: three nodes; the readers take turns, each takes
the whole log in answers of at most 64 MiB.
"""

# ruff: noqa: S603, T201  # it starts the plain server, and prints a table

import argparse
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from loads.over_http import call, leaders_of
from systems.stockade import clusters

from stockade.cli.local_cluster.ports import free_ports
from stockade.partition.records.batch import SCHEMA

BATCH_BYTES = 256 * 1024
ANSWER_BYTES = 64 * 1024 * 1024
TOPIC = "fetched"
PATH = f"/v1/topics/{TOPIC}/partitions/0/records"
ARROW = "application/vnd.apache.arrow.stream"


class Reader:
    """A connection that discards what it reads."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._room = bytearray(4 * 1024 * 1024)

    def get(self, path: str, accept: str) -> tuple[dict[str, str], int]:
        """The headers of an answer, and the length of its body, which is read to the end."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\nAccept: {accept}\r\n\r\n".encode())
        received = bytearray()
        while b"\r\n\r\n" not in received:
            received += self._socket.recv(65536)
        head, _, body = bytes(received).partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        assert " 200 " in status, head
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(headers["content-length"])
        missing = size - len(body)
        while missing:
            missing -= self._socket.recv_into(self._room, min(missing, len(self._room)))
        return headers, size


def fill(url: str, mib: int) -> None:
    """Append ``mib`` MiB, a batch of BATCH_BYTES a request."""
    address = urlsplit(url)
    value = pa.array([os.urandom(1024)] * (BATCH_BYTES // 1024), pa.binary())
    count = len(value)
    columns = [pa.nulls(count, pa.binary()), value, *(pa.nulls(count, field.type) for field in list(SCHEMA)[2:])]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
    body = bytes(sink.getvalue())
    request = f"POST {PATH} HTTP/1.1\r\nHost: bench\r\nContent-Type: {ARROW}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((address.hostname or "", address.port or 80)) as connection:
        for _ in range(mib * 1024 * 1024 // BATCH_BYTES):
            connection.sendall(request.encode() + body)
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200"), answer


def fetch_all(url: str) -> float:
    """MB/s of reading the whole log."""
    address = urlsplit(url)
    reader = Reader(address.hostname or "", address.port or 80)
    began, total, offset, end = time.perf_counter(), 0, 0, 1
    while offset < end:
        headers, size = reader.get(f"{PATH}?offset={offset}&max_bytes={ANSWER_BYTES}", ARROW)
        offset, end = int(headers["stockade-next-offset"]), int(headers["stockade-log-end"])
        total += size
    return total / (time.perf_counter() - began) / 1e6


def send_files(paths: list[str], port: int) -> None:
    """The plain server: answers ``GET /k`` with file k."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_serve, args=(connection, paths), daemon=True).start()


def _serve(connection: socket.socket, paths: list[str]) -> None:
    with connection:
        while request := connection.recv(65536):
            path = paths[int(request.split()[1][1:])]
            with Path(path).open("rb") as file:
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {os.fstat(file.fileno()).st_size}\r\n\r\n"
                connection.sendall(head.encode())
                connection.sendfile(file)


def plain_all(port: int, count: int) -> float:
    """MB/s of reading all files from the plain server."""
    reader = Reader("127.0.0.1", port)
    began = time.perf_counter()
    total = sum(reader.get(f"/{number}", "*/*")[1] for number in range(count))
    return total / (time.perf_counter() - began) / 1e6


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", help="a revision to compare with")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        send_files(chosen.serve, chosen.port)
    (port,) = free_ports(1)
    with clusters([""] if chosen.base is None else [chosen.base, ""]) as nodes:
        leaders = {}
        for revision, where in nodes.items():
            call("POST", f"{where.urls[0]}/v1/topics", {"name": TOPIC})
            leaders[revision or "working tree"] = leaders_of(where.urls[0], TOPIC)[0]
            fill(leaders_of(where.urls[0], TOPIC)[0], chosen.mib)
        folder = nodes[""].data[nodes[""].urls.index(leaders["working tree"])]
        files = sorted(map(str, folder.rglob("*.arrow")))
        plain = subprocess.Popen([sys.executable, __file__, "--port", str(port), "--serve", *files])
        try:
            measure(leaders, port, len(files), chosen.repeats)
        finally:
            plain.terminate()
            plain.wait()


def measure(leaders: dict[str, str], port: int, count: int, repeats: int) -> None:
    """Let the readers take turns; print the median rate of each, and its ratio to that of the plain sendfile."""
    time.sleep(1.0)
    found: dict[str, list[float]] = {name: [] for name in ("plain sendfile", *leaders)}
    for repeat in range(repeats + 1):
        row = {"plain sendfile": plain_all(port, count)} | {name: fetch_all(url) for name, url in leaders.items()}
        if repeat:  # the first round warms up
            for name, speed in row.items():
                found[name].append(speed)
    first = statistics.median(found["plain sendfile"])
    print(f"{'':20} {'MB/s':>8} {'of plain':>9}")
    for name, speeds in found.items():
        print(f"{name:20} {statistics.median(speeds):8.0f} {statistics.median(speeds) / first:9.2f}")


if __name__ == "__main__":
    main()
