"""A standalone cluster of Spark's on two addresses of this machine: a task is run a second time on another host."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from .surroundings import environment

WORKERS = ("127.0.0.1", "127.0.0.2")


@contextmanager
def standalone(folder: Path, paths: str) -> Iterator[str]:
    """Its address; ``folder`` gets what it has to say, and what its executors leave behind.

    Their PYTHONPATH is ``paths``.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(
            _daemon(folder, paths, "master.Master", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        )
        for host in WORKERS:
            words = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / "work"), master)
            stack.enter_context(_daemon(folder, paths, "worker.Worker", host, *words))
        yield master


@contextmanager
def _daemon(folder: Path, paths: str, name: str, host: str, *words: str) -> Iterator[None]:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    script = Path(found.origin).parent / "bin" / "spark-class"
    command = [str(script), f"org.apache.spark.deploy.{name}", "--host", host, *words]
    with (folder / f"{name}-{host}.log").open("wb") as log:
        env = environment(SPARK_LOCAL_IP=host, PYTHONPATH=paths)
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()
