"""`stockade rebuild`: put a node's damaged data aside, so that its next start copies everything from its peers."""

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from ..raft.wal_files import lock_directory, sync_directory
from ..raft.wal_records import WalLocked
from .exits import LOCAL
from .manual import Manual

KEPT_BY_NODES = ("wal", "groups", "partitions", "founders.json", "members.json")
"""What a node keeps in its data folder. Anything else there (configuration, certificates, logs) stays in place."""


@click.command(
    cls=Manual,
    short_help="Put a node's damaged data aside.",
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
    """Move everything that a stopped node has stored into DATA/damaged-TIME. Nothing is deleted.

    Started again, the node has an empty disk: it joins its groups as a learner, copies checkpoints, segments and logs
    from its peers, and votes again once it has caught up. The others must be running, and a majority of them must be
    well: what was stored only here is not in the cluster any more, so a cluster of one node cannot be rebuilt.
    """
    found = [data / name for name in KEPT_BY_NODES if (data / name).exists()]
    if not found:
        raise click.ClickException(f"{data} holds nothing that a node has stored")
    lock = _lock(data / "wal")
    aside = data / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    try:
        if not yes:
            names = ", ".join(path.name for path in found)
            click.confirm(f"Move {names} of {data} to {aside.name}? The node then copies its peers", abort=True)
        aside.mkdir()
        for path in found:
            path.rename(aside / path.name)
        sync_directory(aside)
        sync_directory(data)
    finally:
        if lock is not None:
            os.close(lock)
    click.echo(f"moved to {aside}; start the node, and delete that folder when the cluster is well again")


def _lock(wal: Path) -> int | None:
    """A running node must not lose its files under its feet."""
    if not wal.exists():
        return None
    try:
        return lock_directory(wal)
    except WalLocked as error:
        raise click.ClickException(f"the node still runs: stop it first. {error}") from error
