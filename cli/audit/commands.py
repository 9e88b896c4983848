"""`stockade audit ledger|who-could-write|export|verify`: shows, exports, verifies and queries the ledger."""

from collections.abc import AsyncIterator
from pathlib import Path

import click

from ...client.api.client import Client
from ...partition.api.ledger import HashedEntry, LedgerPage
from ...partition.api.topics import Topic
from ...partition.errors import PermissionDenied, UnknownTopicOrPartition
from ..ui.completion_names import TOPIC
from ..ui.connection import with_client
from ..ui.manual import Manual
from ..ui.output import output_option, show_json, show_table
from ..ui.parameters import ROWS_MAX, WholeNumber
from ..ui.times import moment
from .export import Chain, Fault, export, stored
from .writers import CouldWrite, Writer, incarnation, who_could_write

WAIT_MS = 20_000
"""How long one request waits for the next entry."""
HEADINGS = ["NUMBER", "AT (UTC)", "WHO", "ACT", "ABOUT", "OUTCOME", "DETAIL"]
DETAIL_CHARACTERS_MAX = 100


@click.group(short_help="The ledger: who changed who may write, and who administered what.")
def audit() -> None:
    """The ledger of the cluster: each change of who may write and each act of administration, in a chain of hashes that
    no request can change. Needs the right admin cluster.
    """


@audit.command(
    cls=Manual,
    short_help="Show entries of the ledger.",
    examples=[
        ("The latest acts", "stockade audit ledger --latest 50"),
        ("Who changed the rights?", "stockade audit ledger --act principal.put"),
        ("Keep an eye on one topic", "stockade audit ledger --topic orders --follow --json"),
    ],
)
@click.option("--from", "first", type=WholeNumber(1), help="The first number to show. Default: the ledger's first.")
@click.option("--latest", type=WholeNumber(1, 1_000_000), help="Only so many of the last entries, before any choice.")
@click.option("--topic", type=TOPIC, help="Only entries about this topic.")
@click.option("--principal", help="Only what this principal did.")
@click.option("--act", help="Only entries of this kind: grant, topic.delete, principal.put …")
@click.option("--follow", is_flag=True, help="Go on with entries as they come, until Ctrl-C.")
@output_option
@with_client
async def ledger(
    client: Client,
    first: int | None,
    latest: int | None,
    topic: str | None,
    principal: str | None,
    act: str | None,
    output: str,
    *,
    follow: bool,
) -> None:
    """Show entries of the ledger, ascending. WHO is a principal, an address where there are no principals, or the
    cluster itself. With --json, one object on each line, with its hash.
    """
    begin = first or 1
    if latest is not None:
        begin = max(begin, (await client.ledger(1, 1)).end - latest)
    choice = {"topic": topic, "principal": principal, "act": act}
    is_first = True
    async for page in _pages(client, begin, choice, follow=follow):
        if output == "json":
            for entry in page.entries:
                show_json(entry)
        elif page.entries or is_first:
            show_table(HEADINGS, [_row(entry) for entry in page.entries], is_first=is_first)
            is_first = False


async def _pages(
    client: Client, first: int, choice: dict[str, str | None], *, follow: bool
) -> AsyncIterator[LedgerPage]:
    number, wait_ms = first, 0
    while True:
        page = await client.ledger(number, ROWS_MAX, wait_ms=wait_ms, **choice)
        yield page
        number, is_end = max(number, page.next), page.next >= page.end
        if is_end and not follow:
            return
        wait_ms = WAIT_MS if is_end else 0


async def _all(client: Client, **choice: str) -> tuple[int, list[HashedEntry]]:
    """The number of the ledger's first entry, and all entries that ``choice`` (topic, principal, act) selects."""
    first, entries = 1, list[HashedEntry]()
    async for page in _pages(client, 1, {"topic": None, "principal": None, "act": None} | choice, follow=False):
        first = page.first
        entries += page.entries
    return first, entries


def _row(entry: HashedEntry) -> tuple[object, ...]:
    about = entry.name or "-"
    if entry.topic is not None:
        about = entry.topic if not entry.partitions else f"{entry.topic}/{entry.partitions}"
    outcome = entry.outcome if entry.code is None else f"{entry.outcome} ({entry.code})"
    detail = entry.after if entry.after is not None else entry.before
    told = "" if detail is None else ", ".join(f"{name}={value}" for name, value in detail.items() if value is not None)
    return entry.number, moment(entry.at_ms), _who(entry), entry.act, about, outcome, told[:DETAIL_CHARACTERS_MAX]


def _who(entry: HashedEntry) -> str:
    if entry.principal is None:
        return "(cluster)"
    return entry.principal or entry.client or "(anonymous)"


@audit.command(
    "who-could-write",
    cls=Manual,
    short_help="Say who could write to a partition at an offset.",
    examples=[("Who could have written record 4711?", "stockade audit who-could-write orders 0 4711")],
)
@click.argument("topic", type=TOPIC)
@click.argument("partition", type=WholeNumber(0))
@click.argument("offset", type=WholeNumber(0))
@click.option("--topic-id", type=WholeNumber(1), help="An earlier topic of this name. Default: the latest.")
@output_option
@with_client
async def who_could_write_command(
    client: Client, topic: str, partition: int, offset: int, topic_id: int | None, output: str
) -> None:
    """Say which grant could write OFFSET of a partition: whose it was, from when until when, for which offsets, why it
    ended, and the entries of the ledger that say so. It says, too, when every caller could, and when the ledger does
    not reach back so far.

    `stockade audit verify` says up to which entry the ledger is as it was written.
    """
    first, entries = await _all(client, topic=topic)
    _, gaps = await _all(client, act="ledger.gap")
    found = topic_id or incarnation(entries)
    if found is None or all(entry.topic_id != found for entry in entries):
        raise click.ClickException(
            f"the ledger has no entry about topic {topic}" + ("" if topic_id is None else f" with the id {topic_id}")
        )
    described = await _described(client, topic, found)
    if described is not None and partition >= len(described.partitions):
        raise UnknownTopicOrPartition(topic=topic, partition=partition)
    answer = who_could_write(entries, topic, found, partition, offset, first=first, gaps=gaps)
    if output == "json":
        show_json(answer)
        return
    _show(answer)
    end = None if described is None else described.partitions[partition].log_end
    if end is not None and offset >= end:
        click.echo(f"note       no record has this offset yet: the log ended at {end} on the replica that was asked")


async def _described(client: Client, topic: str, topic_id: int) -> Topic | None:
    """The topic, with all partitions that it ever had; None: it is gone, or the caller may not see it."""
    try:
        found = await client.topic(topic, patience_ms=0)
    except (UnknownTopicOrPartition, PermissionDenied):
        return None
    return found if found.topic_id == topic_id else None


def _show(answer: CouldWrite) -> None:
    until = "now" if answer.until_offset is None else str(answer.until_offset - 1)
    since = "?" if answer.from_offset is None else str(answer.from_offset)
    click.echo(f"{answer.topic}/{answer.partition} (topic id {answer.topic_id}), offset {answer.offset}")
    click.echo(f"who        {_summary(answer)}")
    click.echo(f"why        {answer.why}")
    click.echo(f"offsets    {since} to {until}")
    for title, writers in (("writer", answer.writers), ("possible", answer.possible)):
        for writer in writers:
            click.echo(f"{title:<10} {_told(writer)}")
    if answer.possibly_any:
        click.echo("possible   every caller with the right to produce, meanwhile")
    if answer.writer_group is not None:
        click.echo(f"besides    the writer had to own the partition in group {answer.writer_group}")
    click.echo(f"proof      entries {', '.join(map(str, answer.proof)) or '-'}")


def _summary(answer: CouldWrite) -> str:
    if answer.who != "grants":
        told = {"any": "every caller with the right to produce", "none": "no caller"}
        return told.get(answer.who, "the ledger does not know")
    return ", ".join(each.principal or each.client_id or each.producer_name for each in answer.writers)


def _told(writer: Writer) -> str:
    until = "now" if writer.until_ms is None else f"{moment(writer.until_ms)} ({writer.reason})"
    owner = f"principal {writer.principal}" if writer.principal else "no principal"
    epoch = "" if writer.epoch is None else f", epoch {writer.epoch}"
    return (
        f"{writer.grant} of {owner}, client {writer.client_id}, producer {writer.producer_name}, {writer.mode}{epoch},"
        f" from {moment(writer.since_ms)} until {until}"
    )


@audit.command(
    "export",
    cls=Manual,
    short_help="Write the ledger into an Arrow file.",
    examples=[("For an auditor without access", "stockade audit export ledger.arrow")],
)
@click.argument("file", type=click.Path(dir_okay=False, writable=True, path_type=Path))
@output_option
@with_client
async def export_command(client: Client, file: Path, output: str) -> None:
    """Write the whole ledger into FILE, which only you may read, and follow its chain meanwhile. FILE can be verified
    with pyarrow alone, by people who have no access to the cluster: docs/how-to/ledger.md has the script.

    Note the head that is printed, elsewhere: it proves this entry and all below. The chain has no key, so without a
    head, and above one, each entry could have been made anew.
    """
    try:
        chain = await export(client, file, (await client.cluster()).cluster_id)
    except Fault as fault:
        raise click.ClickException(f"the ledger is damaged: {fault}") from fault
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror or error}") from error
    _show_chain(chain, output)


@audit.command(
    cls=Manual,
    short_help="Follow the chain of the ledger.",
    examples=[
        ("Does the chain hold?", "stockade audit verify"),
        ("Is the ledger up to there as it was last month?", "stockade audit verify --head 4711:5f1d…"),
    ],
)
@click.option("--head", help="NUMBER:HASH that was printed earlier: fails unless the entry is there and has this hash.")
@output_option
@with_client
async def verify(client: Client, head: str | None, output: str) -> None:
    """Follow the chain of hashes through the whole ledger, and say up to which entry HEAD proves it. Exit code 1: the
    chain does not hold, or not with HEAD.

    The chain has no key. Who can change an entry where it is kept can make all after it anew, and the chain holds. So
    only a head that was noted elsewhere proves anything: its entry, and all below; nothing above it is proved.
    """
    number, _, wanted = (head or "").partition(":")
    if head is not None and not (number.isdecimal() and wanted):
        raise click.BadParameter("not NUMBER:HASH", param_hint="--head")
    chain = Chain()
    is_met = head is None
    try:
        async for entries in stored(client, 1):
            for each, encoded in entries:
                chain.follow(each, encoded)
                is_met = is_met or (each == int(number) and chain.head == wanted.lower())
    except Fault as fault:
        raise click.ClickException(f"the ledger is damaged: {fault}") from fault
    if not is_met:
        raise click.ClickException(_why_not(chain, int(number)))
    _show_chain(chain, output, proved=int(number or 0))


def _why_not(chain: Chain, number: int) -> str:
    """Why the head of entry ``number`` is not met: another entry, an end that was cut off, or a head that is too old
    to say anything.
    """
    if chain.first is not None and number < chain.first:
        return (
            f"the ledger begins with entry {chain.first}, so the head of entry {number} proves nothing: its retention"
            " is over, or the beginning was cut off. Give a later head"
        )
    if number > chain.last:
        return f"the ledger ends with entry {chain.last}: entry {number}, which was there, was cut off"
    return f"the ledger has no entry {number} with this hash: it is not the one of that time"


def _show_chain(chain: Chain, output: str, proved: int = 0) -> None:
    """Print the chain. ``proved``: number of the entry whose head was noted earlier and matches; 0 without one."""
    count = 0 if chain.first is None else chain.last - chain.first + 1
    if output == "json":
        show_json({"first": chain.first, "last": chain.last, "entries": count, "head": chain.head, "proved": proved})
        return
    click.echo(f"entries    {count:,}, from {chain.first or '-'} to {chain.last}")
    if count:
        click.echo(f"time       {moment(chain.began_ms)} to {moment(chain.ended_ms)}")
    click.echo("chain      each entry has the hash of the one before it")
    click.echo(f"head       {chain.last}:{chain.head}")
    if proved:
        click.echo(f"proved     entries up to {proved}, by the head that was given; nothing above {proved}")
    else:
        click.echo("proved     nothing: the chain has no key, and no head that was noted earlier is compared with it")
