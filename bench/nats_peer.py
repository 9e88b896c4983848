"""Three NATS servers with a JetStream stream of three replicas, to measure beside Stockade (needs `nats-server`).

The loads are those of the table in the goals: `publish` with so many in flight, and an ordered push consumer, over
nats-py; and, where `libnats-dev` and a C compiler are, asynchronous publishing with the C client.
"""

# ruff: noqa: S603, S607  # it starts servers, and a compiler

import asyncio
import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PORT_BASE = 18_221
STREAM, SUBJECT = "S", "t.S"
IN_FLIGHT = 256
LOOK_S = 0.1
READY_TIMEOUT_S = 60.0
C_SPARE_S = 60.0
C_SOURCE = Path(__file__).with_name("nats_publish.c")

_CONFIG = """
server_name: n{number}
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}/d{number}", max_file: 20G, max_mem: 1G }}
cluster {{ name: C, listen: "127.0.0.1:{route}", routes: [{routes}] }}
"""


@contextmanager
def servers(folder: Path) -> Iterator[list[str]]:
    """URLs of three servers, which end with the block."""
    folder.mkdir()
    routes = ", ".join(f'"nats://127.0.0.1:{PORT_BASE + 200 + number}"' for number in range(3))
    running = []
    try:
        for number in range(3):
            ports = {"port": PORT_BASE + number, "route": PORT_BASE + 200 + number, "routes": routes}
            file = folder / f"n{number}.conf"
            file.write_text(_CONFIG.format(number=number, folder=folder, **ports), encoding="utf-8")
            with (folder / f"n{number}.log").open("wb") as log:
                running.append(subprocess.Popen(["nats-server", "-c", str(file)], stdout=log, stderr=log))
        yield [f"nats://127.0.0.1:{PORT_BASE + number}" for number in range(3)]
    finally:
        for server in running:
            server.terminate()
            server.wait()


async def create(urls: list[str]) -> str:
    """Make the stream, once the servers have found each other; the URL of its leader."""
    end_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            async with _connected(urls[0]) as (_, stream):
                with contextlib.suppress(Exception):
                    await stream.delete_stream(STREAM)
                made = await stream.add_stream(name=STREAM, subjects=[SUBJECT], storage="file", num_replicas=3)
                leader = made.cluster.leader if made.cluster is not None else None
                if leader:
                    return urls[int(leader.removeprefix("n"))]
        except Exception:
            if time.monotonic() > end_s:
                raise
        await asyncio.sleep(LOOK_S)


async def publish(url: str, value: bytes, in_flight: int, seconds: float) -> tuple[int, float]:
    """Messages acknowledged, and seconds."""
    async with _connected(url) as (_, stream):
        began = time.perf_counter()
        counts = await asyncio.gather(*(_publisher(stream, value, began + seconds) for _ in range(in_flight)))
        return sum(counts), time.perf_counter() - began


async def fill(url: str, value: bytes, count: int) -> None:
    """Publish so many messages."""
    async with _connected(url) as (_, stream):
        numbers = iter(range(count))

        async def publisher() -> None:
            for _ in numbers:
                await stream.publish(SUBJECT, value)

        await asyncio.gather(*(publisher() for _ in range(IN_FLIGHT)))


async def _publisher(stream: Any, value: bytes, end_s: float) -> int:
    count = 0
    while time.perf_counter() < end_s:
        await stream.publish(SUBJECT, value)
        count += 1
    return count


async def consume(url: str, count: int) -> tuple[int, float]:
    """Read so many messages with an ordered consumer."""
    async with _connected(url) as (_, stream):
        seen, is_over = 0, asyncio.Event()

        async def take(_: Any) -> None:
            nonlocal seen
            seen += 1
            if seen == count:
                is_over.set()

        began = time.perf_counter()
        limits = {"pending_msgs_limit": -1, "pending_bytes_limit": -1}
        await stream.subscribe(SUBJECT, stream=STREAM, ordered_consumer=True, cb=take, **limits)
        await is_over.wait()
        return count, time.perf_counter() - began


def build_c(folder: Path) -> Path | None:
    """The C client's load, compiled; None where that cannot be."""
    program = folder / "nats_publish"
    if shutil.which("gcc") is None:
        return None
    done = subprocess.run(
        ["gcc", "-O2", "-o", str(program), str(C_SOURCE), "-lnats", "-lpthread"], capture_output=True, check=False
    )
    return program if done.returncode == 0 else None


def publish_c(program: Path, url: str, size: int, in_flight: int, seconds: float) -> float:
    """Messages a second of the C client."""
    command = [str(program), url, str(seconds), str(in_flight), str(size), SUBJECT]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + C_SPARE_S)
    return float(done.stdout)


@contextlib.asynccontextmanager
async def _connected(url: str) -> Any:
    import nats  # noqa: PLC0415  # only where it is measured

    connection = await nats.connect(url, pending_size=64 << 20)
    try:
        yield connection, connection.jetstream(timeout=10)
    finally:
        await connection.close()
