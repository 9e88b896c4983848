"""`stockade certs`: makes the certificates of nodes, which encrypt their connections, and of clients."""

import re
from pathlib import Path

import click

from ...cluster.config import is_name
from ...cluster.machines import PROCESSES_MAX
from ..ui.exits import LOCAL
from ..ui.manual import Manual
from ..ui.parameters import WholeNumber
from .authority import CA_DAYS, CA_NAME, NODE_DAYS, CannotMake, Wanted, https_section, make_certificates, tls_section

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z|[0-9A-Fa-f:.]{2,45}\Z")


def _cluster_id(_: click.Context, parameter: click.Parameter, value: str) -> str:
    return _named(value)


def _clients(_: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return _told_apart([_named(name) for name in value])


def _nodes(_: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[Wanted, ...]:
    found = []
    for text in value:
        name, separator, hosts = text.partition("=")
        each = hosts.split(",") if separator else []
        if wrong := [host for host in each if not _HOST.match(host)]:
            raise click.BadParameter(f"{wrong[0]!r} is no host name and no IP address")
        found.append(Wanted(_named(name), tuple(each)))
    _told_apart([node.name for node in found])
    return tuple(found)


def _named(name: str) -> str:
    if not is_name(name):
        raise click.BadParameter(f"{name!r} is not 1 to 249 of letters, digits, '.', '_', '-'")
    return name


def _told_apart(names: list[str]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise click.BadParameter("a node or a client is named twice")
    if CA_NAME in names:
        raise click.BadParameter(f"{CA_NAME!r} is the name of the authority's own files")
    return tuple(names)


@click.command(
    cls=Manual,
    short_help="Make certificates for the nodes of a cluster.",
    exits=LOCAL,
    examples=[
        ("For three nodes", "stockade certs --out certs --cluster-id prod n1 n2 n3"),
        ("For HTTPS as well", "stockade certs --out certs --cluster-id prod n1=n1.example.com,10.0.0.1"),
        ("For a client", "stockade certs --out certs --cluster-id prod --client orders-service"),
        ("For three machines of four nodes each", "stockade certs --out certs --cluster-id prod --processes 4 a b c"),
    ],
)
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the files.")
@click.option("--cluster-id", required=True, callback=_cluster_id, help="The cluster_id of the nodes' configurations.")
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
@click.option(
    "--client", "clients", multiple=True, callback=_clients, help="A client's name, for a certificate of its own."
)
@click.argument("nodes", nargs=-1, metavar="NODE[=HOST,HOST...]...", callback=_nodes)
def certs(
    out: Path, cluster_id: str, days: int, processes: int | None, clients: tuple[str, ...], nodes: tuple[Wanted, ...]
) -> None:
    """Make a certificate and a key for each NODE (its node_id), and the certificate authority that signs them.

    With the host names and IP addresses under which clients reach the node, the certificate serves HTTPS as well. If
    the folder has an authority, the command uses it, so that you can add nodes and clients later. It overwrites no
    file.
    """
    if not nodes and not clients:
        raise click.UsageError("name a node, or a client with --client")
    if both := {node.name for node in nodes} & set(clients):
        raise click.UsageError(f"{', '.join(sorted(both))}: a node and a client of one name would share their files")
    try:
        made = make_certificates(out, cluster_id, nodes, days, processes=processes, clients=clients)
    except (CannotMake, OSError) as error:
        raise click.ClickException(str(error)) from error
    for path in made:
        click.echo(f"made {path}")
    click.echo(f"\nKeep {out / 'ca.key'} away from the nodes: anyone who has it can join the cluster.")
    beside = Path(out.name)
    for name, hosts in nodes:
        click.echo(
            f"\n# for node.toml of {name}, once ca.crt, {name}.crt and {name}.key are in {out.name or '.'}/ beside it"
        )
        click.echo(tls_section(beside, name))
        if hosts:
            click.echo(https_section(beside, name))
