"""`stockade cluster`: a cluster on this machine, in the foreground; with a subcommand, an operator's orders."""

import signal
import threading
from pathlib import Path

import click
from rich.console import Console

from .exits import LOCAL, REFUSED
from .local_cluster import ClusterFailed, LocalCluster
from .manual import ManualGroup
from .members import add, move, remove, status, transfer


@click.group(
    cls=ManualGroup,
    invoke_without_command=True,
    short_help="Run a cluster on this machine; ask and order one that runs.",
    exits=LOCAL,
    means={REFUSED: "A node could not be started, or did not get ready."},
    examples=[
        ("Three nodes, which Ctrl-C stops", "stockade cluster"),
        ("For a script of its own, beside another cluster", "stockade cluster --port-base 7501 --data /tmp/other"),
        ("To see a node stay dead", "stockade cluster --no-restart"),
    ],
)
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 9), help="How many nodes.")
@click.option(
    "--port-base",
    default=7101,
    show_default=True,
    type=click.IntRange(1024, 65000),
    help="HTTP port of the first node.",
)
@click.option(
    "--data",
    default="data",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Data folder.",
)
@click.option("--no-restart", is_flag=True, help="Leave a node that dies dead.")
@click.option("--tls", is_flag=True, help="Encrypt node traffic, with certificates made in DATA/certs.")
@click.pass_context
def cluster(context: click.Context, nodes: int, port_base: int, data: Path, no_restart: bool, tls: bool) -> None:
    """Without a command: run a cluster on this machine until Ctrl-C. Starting again finds the data.

    While it runs, DATA/cluster.json lists the nodes and their process ids, for scripts that want to break something.
    The commands speak to any running cluster.
    """
    if context.invoked_subcommand is None:
        _run(nodes, port_base, data, no_restart, tls)


for _command in (status, move, transfer, add, remove):
    cluster.add_command(_command)


def _run(nodes: int, port_base: int, data: Path, no_restart: bool, tls: bool) -> None:
    console = Console(highlight=False)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    local = LocalCluster(data, nodes, port_base, restart=not no_restart, tls=tls)
    try:
        with console.status(f"starting {nodes} nodes"):
            local.start()
            local.wait_ready()
        print_ready(console, local)
        stopping.wait()
    except ClusterFailed as error:
        raise click.ClickException(str(error)) from error
    finally:
        local.stop()
    console.print("stopped")


def print_ready(console: Console, local: LocalCluster) -> None:
    """Say that the cluster is ready, and where."""
    for node in local.nodes:
        console.print(f"  {node.name}  {node.url}  raft {node.raft}  data {node.data}")
    console.print(f"[bold green]ready[/]  console at {local.nodes[0].url}/  (Ctrl-C stops the cluster)")
