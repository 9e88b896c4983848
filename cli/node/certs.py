"""`stockade certs`: makes the certificates with which nodes encrypt their connections."""

from pathlib import Path

import click

from ...cluster.config import is_name
from ...cluster.machines import PROCESSES_MAX
from ..ui.exits import LOCAL
from ..ui.manual import Manual
from ..ui.parameters import WholeNumber
from .authority import CA_DAYS, CA_NAME, NODE_DAYS, CannotMake, make_certificates, tls_section


def _checked(_: click.Context, parameter: click.Parameter, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    for name in [value] if isinstance(value, str) else value:
        if not is_name(name):
            raise click.BadParameter(f"{name!r} is not 1 to 249 of letters, digits, '.', '_', '-'")
    if len(set(value)) < len(value) and not isinstance(value, str):
        raise click.BadParameter("a node is named twice")
    if CA_NAME in value and not isinstance(value, str):
        raise click.BadParameter(f"{CA_NAME!r} is the name of the authority's own files")
    return value


@click.command(
    cls=Manual,
    short_help="Make certificates for the nodes of a cluster.",
    exits=LOCAL,
    examples=[
        ("For three nodes", "stockade certs --out certs --cluster-id prod n1 n2 n3"),
        ("For three machines of four nodes each", "stockade certs --out certs --cluster-id prod --processes 4 a b c"),
    ],
)
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the files.")
@click.option("--cluster-id", required=True, callback=_checked, help="The cluster_id of the nodes' configurations.")
@click.option(
    "--days",
    default=NODE_DAYS,
    show_default=True,
    type=WholeNumber(1, CA_DAYS),
    help=f"Days that the nodes' certificates are valid. The authority's own is valid for {CA_DAYS} days.",
)
@click.option(
    "--processes",
    type=WholeNumber(1, PROCESSES_MAX),
    help="Each NODE is a machine that runs so many nodes; its certificate names all of them.",
)
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", callback=_checked)
def certs(out: Path, cluster_id: str, days: int, processes: int | None, nodes: tuple[str, ...]) -> None:
    """Make a certificate and a key for each NODE (its node_id), and the certificate authority that signs them.

    If the folder has an authority, the command uses it, so that you can add nodes later. It overwrites no file.
    """
    try:
        made = make_certificates(out, cluster_id, nodes, days, processes=processes)
    except (CannotMake, OSError) as error:
        raise click.ClickException(str(error)) from error
    for path in made:
        click.echo(f"made {path}")
    click.echo(f"\nKeep {out / 'ca.key'} away from the nodes: anyone who has it can join the cluster.")
    beside = Path(out.name)
    for node in nodes:
        click.echo(
            f"\n# for node.toml of {node}, once ca.crt, {node}.crt and {node}.key are in {out.name or '.'}/ beside it"
        )
        click.echo(tls_section(beside, node))
