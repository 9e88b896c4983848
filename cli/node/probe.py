"""`stockade probe`: asks the node of this configuration for its health, for programs that watch or restart nodes."""

import sys
from pathlib import Path

import click

from ..service.environment import configured
from ..ui.exits import LOCAL
from ..ui.manual import Manual
from .supervisor import NodeProcess, probing, why_not_ready

PATHS = ("/readyz/data", "/readyz/control", "/readyz", "/healthz")
TIMEOUT_S = 2.0


@click.command(
    cls=Manual,
    short_help="Ask this machine's node how it is.",
    exits=LOCAL,
    means={1: "The node does not answer, or answers that it is not ready."},
    examples=[
        ("As the container's health check does", "stockade probe"),
        ("Before the next node is restarted", "stockade probe --config node.toml --path /readyz"),
    ],
)
@click.option(
    "--config",
    envvar="STOCKADE_CONFIG",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The node's TOML file, if it has one.",
)
@click.option("--path", type=click.Choice(PATHS), default=PATHS[0], show_default=True, help="What to ask for.")
def probe(config: Path | None, path: str) -> None:
    """Ask the node that runs with this configuration, or each of the machine, for its health.

    The configuration is that of `stockade serve`: a file, STOCKADE_… variables, or both. The command connects to the
    address at which the node listens, by HTTPS with the node's own certificate where it has one.
    """
    settings, _ = configured(config)
    section = settings.http_tls
    tls = None if section is None else probing(section.certificate, section.key)
    nodes = [NodeProcess(node.node_id, node.http, tls=tls) for node in settings.nodes()]
    answers = {node.name: why_not_ready(node, TIMEOUT_S, path) for node in nodes}
    for name, reason in answers.items():
        click.echo(f"{name}: {'200' if reason is None else reason}")
    sys.exit(1 if any(reason is not None for reason in answers.values()) else 0)
