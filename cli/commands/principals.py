"""`stockade principals …`: principals and their rights.

Only this process knows a token that it makes, until it prints the token. So a command first checks that standard output
takes it; and if anything fails after the token's hash was sent, it prints the token on standard error: a cluster that
was open, and that its first principal has closed, lets no client in without that token.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import click
import msgspec

from ...client.api.client import Client
from ...cluster.access.principals import NewToken, new_token
from ...partition.api.principals import PrincipalInfo, PrincipalQuota
from ...partition.errors import StockadeError
from ..ui.connection import with_client
from ..ui.exits import LOCAL
from ..ui.manual import Manual
from ..ui.output import confirm, output_option, show_json, show_rest, show_result, show_table, yes_option
from ..ui.parameters import ROWS_MAX, InstantType, prefix_option
from ..ui.streams import is_output_null, output_fault
from ..ui.times import moment

QUOTAS = [field.name for field in msgspec.structs.fields(PrincipalQuota)]


class QuotaType(click.ParamType[tuple[str, int]]):
    """NAME=NUMBER for one bound of a quota."""

    name = "name=number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        name, _, number = str(value).partition("=")
        if name not in QUOTAS or not number.isdecimal():
            self.fail(f"{value!r} is not NAME=NUMBER with one of {', '.join(QUOTAS)}", param, ctx)
        return name, int(number)


@click.group(short_help="Principals: who may do what.")
def principals() -> None:
    """Principals: each has rights on names, and a token or a client certificate by which a request is its own."""


@principals.command(
    cls=Manual,
    short_help="Make a token for a principal.",
    exits=LOCAL,
    examples=[("A token and its hash", "stockade principals token")],
)
@output_option
def token(output: str) -> None:
    """Make a token, drawn at random, and print it with its hash. No node is asked, and the token is kept nowhere.

    The client has the token (in STOCKADE_TOKEN, say). The nodes have its hash, from which no client can make it: in
    node.toml, or by `stockade principals add-token --hash`.
    """
    made = new_token()
    if output == "json":
        show_json(made._asdict())
        return
    _show_new(made)
    click.echo(f"hash   {made.hash}")
    click.echo("In node.toml of every node, for a principal of the configuration:", err=True)
    click.echo(f'tokens = [{{ hash = "{made.hash}" }}]', err=True)


@principals.command(
    "list",
    cls=Manual,
    short_help="List the principals.",
    examples=[("Those of one team", "stockade principals list --prefix billing")],
)
@prefix_option
@output_option
@with_client
async def list_principals(client: Client, prefix: str, output: str) -> None:
    """List the principals, at most 1,000, ascending by name."""
    found = await client.principals(prefix, ROWS_MAX)
    if output == "json":
        show_json(found)
        return
    rows = [
        (
            each.principal,
            "node.toml" if each.configured else "cluster",
            len(each.tokens),
            len(each.certificates) + len(each.subjects),
            ", ".join(each.rights) or "-",
        )
        for each in found.principals
    ]
    show_table(["NAME", "KEPT IN", "TOKENS", "NAMES", "RIGHTS"], rows)
    show_rest(found.total - len(found.principals))


@principals.command(
    cls=Manual, examples=[("What may it do, and when do its tokens expire?", "stockade principals describe billing")]
)
@click.argument("name")
@output_option
@with_client
async def describe(client: Client, name: str, output: str) -> None:
    """Show the rights and the credentials of the principal NAME. Secrets of tokens are not kept anywhere."""
    _show(await client.principal(name), output)


@principals.command(
    cls=Manual, short_help="Show who you are.", examples=[("Am I who I think?", "stockade principals whoami")]
)
@output_option
@with_client
async def whoami(client: Client, output: str) -> None:
    """Show which principal the cluster takes this command's token or certificate for, and what it may."""
    found = await client.caller()
    if output == "json":
        show_json(found)
        return
    if found.open:
        click.echo("This cluster is open: every client may do everything. `stockade principals put` ends that.")
        return
    click.echo(f"principal  {found.principal or '-'}")
    for right in found.rights or ["nothing"]:
        click.echo(f"may        {right}")


@principals.command(
    cls=Manual,
    short_help="Create a principal, or change its rights.",
    examples=[
        ("The first one ends the time of an open cluster", "stockade principals put root --right all --new-token"),
        (
            "A producer that writes to some topics, as their only writer",
            "stockade principals put billing --right 'produce topic:invoices-*' --right 'acquire topic:invoices-*'"
            " --right 'produce producer:billing*'",
        ),
        (
            "One that cannot crowd out the others",
            "stockade principals put batch --right 'produce topic:logs' --right 'produce producer:batch*'"
            " --quota bytes_per_s=20000000",
        ),
        ("By client certificate", "stockade principals put audit --right 'read topic:*' --cert-name CN:audit"),
    ],
)
@click.argument("name")
@click.option(
    "--right",
    "rights",
    multiple=True,
    help="VERB KIND:NAME, VERB KIND:PREFIX*, VERB cluster, or all; repeat it for several. These replace what it has.",
)
@click.option("--cert-name", "certificates", multiple=True, help="CN:, DNS:, URI:, email:, IP Address: or SHA256:.")
@click.option("--subject", "subjects", multiple=True, help="Of a JSON Web Token: ISSUER:SUBJECT.")
@click.option(
    "--quota",
    "quota",
    multiple=True,
    type=QuotaType(),
    help=f"NAME=NUMBER; repeat it for several. {', '.join(QUOTAS)}. Rates are each node's.",
)
@click.option("--new-token", "with_token", is_flag=True, help="Make a token, in place of those that NAME has.")
@output_option
@with_client
async def put(
    client: Client,
    name: str,
    rights: tuple[str, ...],
    certificates: tuple[str, ...],
    subjects: tuple[str, ...],
    quota: tuple[tuple[str, int], ...],
    output: str,
    *,
    with_token: bool,
) -> None:
    """Create the principal NAME, or replace its rights, certificates, subjects and quota; it keeps its tokens, unless
    --new-token is given.

    The token is made here, and only its hash is sent. If no answer comes, or standard output fails, it is on standard
    error. The command ends when every node that can be reached acts by it.
    """
    made = _new() if with_token else None
    with _kept(made, "may be in force"):
        found = await client.put_principal(
            name,
            rights,
            certificates=certificates,
            subjects=subjects,
            quota=PrincipalQuota(**dict(quota)),
            token_hashes=None if made is None else [made.hash],
        )
    _show(found, output, made)


@principals.command(
    cls=Manual,
    short_help="Delete a principal.",
    examples=[("It left the company", "stockade principals delete alice --yes")],
)
@click.argument("name")
@yes_option
@output_option
@with_client
async def delete(client: Client, name: str, output: str, *, yes: bool) -> None:
    """Delete the principal NAME: none of its credentials lets a request in any more. Its sessions end when they are not
    renewed; `stockade fence` ends a grant at once.
    """
    confirm(f"Delete the principal {name}, so that none of its credentials lets a request in?", yes)
    await client.delete_principal(name)
    show_result({"principal": name, "deleted": True}, f"{name}: deleted", output)


@principals.command(
    cls=Manual,
    short_help="Give a principal one more token.",
    examples=[
        ("A new token before the old one goes", "stockade principals add-token billing --expires 2027-06-30"),
        ("One that its owner made", "stockade principals add-token billing --hash HASH"),
    ],
)
@click.argument("name")
@click.option("--hash", "token_hash", help="Of a token made elsewhere (stockade principals token).")
@click.option(
    "--expires",
    "expires_ms",
    type=InstantType(is_to_come=True),
    help="After this time the token is refused. Default: never.",
)
@output_option
@with_client
async def add_token(client: Client, name: str, token_hash: str | None, expires_ms: int | None, output: str) -> None:
    """Give the principal NAME a token, of which it has two at most: clients change over, then delete-token ends the old
    one. The token is made here, and only its hash is sent.
    """
    made = None if token_hash else _new()
    sent = token_hash if made is None else made.hash
    with _kept(made, "may be in force"):
        found = await client.add_token(name, token_hash=sent, expires_ms=expires_ms)
    token = None if made is None else made.token
    _show_kept(made, {"id": found.id, "token": token, "expires_ms": found.expires_ms}, output)
    if output == "table":
        click.echo(f"{name}: token {found.id} added")


@principals.command(
    cls=Manual,
    short_help="Delete a token of a principal.",
    examples=[("The old one after a change", "stockade principals delete-token billing 0a1b2c3d4e5f6071 --yes")],
)
@click.argument("name")
@click.argument("token_id")
@yes_option
@output_option
@with_client
async def delete_token(client: Client, name: str, token_id: str, output: str, *, yes: bool) -> None:
    """Delete the token TOKEN_ID (the middle of stk.ID.SECRET) of the principal NAME: it lets no request in any more."""
    confirm(f"Delete the token {token_id} of {name}?", yes)
    await client.delete_token(name, token_id)
    show_result({"principal": name, "id": token_id, "deleted": True}, f"{name}: token {token_id} deleted", output)


def _new() -> NewToken:
    """A new token. Raises click.UsageError if standard output could not show it."""
    fault = output_fault()
    if fault is not None or is_output_null():
        why = "it is closed or /dev/null" if fault is None else fault.strerror
        raise click.UsageError(f"standard output cannot take the new token: {why}")
    return new_token()


@contextmanager
def _kept(made: NewToken | None, state: Literal["may be in force", "is in force"]) -> Iterator[None]:
    """Print the token on standard error if the block fails, by Ctrl-C too; except by a refusal without side effects,
    after which the token is in force nowhere. ``state``: what the message says of the token.
    """
    try:
        yield
    except BaseException as error:
        is_refused = isinstance(error, StockadeError) and error.no_side_effects
        if made is not None and not is_refused:
            click.echo(f"token  {made.token}", err=True)
            click.echo(f"This token {state}, and is not shown again.", err=True)
        raise


def _show_kept(made: NewToken | None, facts: object, output: str) -> None:
    """Print the token, which is in force, or with JSON output ``facts``; on standard error if that fails."""
    with _kept(made, "is in force"):
        if output == "json":
            show_json(facts)
        elif made is not None:
            _show_new(made)


def _show_new(made: NewToken) -> None:
    click.echo(f"token  {made.token}")
    click.echo("The token is for the client, and is not shown again.", err=True)


def _show(found: PrincipalInfo, output: str, made: NewToken | None = None) -> None:
    _show_kept(made, found if made is None else {"token": made.token, "principal": found}, output)
    if output == "json":
        return
    rows = [("right", each) for each in found.rights] + [("certificate", each) for each in found.certificates]
    rows += [("subject", each) for each in found.subjects]
    limits = msgspec.structs.asdict(found.quota)
    rows += [("quota", f"{name} {most:,}") for name, most in limits.items() if most is not None]
    for each in found.tokens:
        rows.append(("token", f"{each.id}, expires {'never' if each.expires_ms is None else moment(each.expires_ms)}"))
    where = " (in node.toml)" if found.configured else ""
    click.echo(f"{found.principal}{where}")
    show_table(["HAS", "WHICH"], rows or [("-", "nothing")])
