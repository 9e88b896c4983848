"""`stockade rebuild`: moves a node's damaged data aside, so that its next start copies everything from its peers."""

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from ...cluster.config import STORED_NAMES
from ...partition.log.fsutil import sync_directory, why_refused
from ...partition.log.modes import FOLDER_MODE
from ...raft.wal.errors import WalLocked
from ...raft.wal.files import lock_directory
from ..ui.exits import LOCAL
from ..ui.manual import Manual


@click.command(
    cls=Manual,
    short_help="Move a node's damaged data aside.",
    exits=LOCAL,
    examples=[("After a node refused its disk", "stockade rebuild --data /var/lib/stockade")],
)
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Data folder of the node (data_dir of its configuration).",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def rebuild(data: Path, yes: bool) -> None:
    """Move all stored data of a stopped node into DATA/damaged-TIME. The command deletes nothing.

    Then start the node: it joins its groups as a learner, copies checkpoints, segments and logs from its peers, and
    votes again once it has caught up. A majority of the replicas must run on other nodes: data that only this node has
    is lost to the cluster. A cluster of one node cannot be rebuilt.
    """
    found = [data / name for name in STORED_NAMES if (data / name).exists()]
    if not found:
        raise click.ClickException(f"{data} has no data of a node")
    try:
        _move_aside(data, found, yes=yes)
    except OSError as error:  # as on a disk that an error has made read-only, or for another user than the node's
        raise click.ClickException(why_refused(error)) from error


def _move_aside(data: Path, found: list[Path], *, yes: bool) -> None:
    lock = _lock(data / "wal")
    aside = data / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    try:
        if not yes:
            names = ", ".join(path.name for path in found)
            click.confirm(
                f"Move {names} of {data} to {aside.name}? The node then copies its data from its peers", abort=True
            )
        aside.mkdir(FOLDER_MODE)
        for path in found:
            path.rename(aside / path.name)
        sync_directory(aside)
        sync_directory(data)
    finally:
        if lock is not None:
            os.close(lock)
    click.echo(f"moved to {aside}; start the node, and delete that folder when the cluster is well again")


def _lock(wal: Path) -> int | None:
    """Lock the node's write-ahead log, as a running node does. Returns the lock's descriptor; None if there is no log.
    Raises ClickException if the node runs.
    """
    if not wal.exists():
        return None
    try:
        return lock_directory(wal)
    except WalLocked as error:
        raise click.ClickException(f"the node still runs: stop it first. {error}") from error
