"""`stockade canary`: runs rounds of the canary until it is stopped; or a single one, with --once."""

import asyncio
import logging
import signal
import sys
from contextlib import ExitStack, suppress

import click
import msgspec

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...partition.errors import StockadeError
from ..ui.connection import with_config
from ..ui.exits import INTERRUPTED, OK, REFUSED, UNKNOWN_OUTCOME, USAGE
from ..ui.manual import Manual
from ..ui.output import output_option
from ..ui.parameters import Number, WholeNumber
from .figures import Figures
from .rounds import NoRound, Rounds
from .verdict import Verdict, judge

TOPIC = "stockade-canary"
ROUND_S = 60.0
"""Seconds after which a round is given up; it counts as unproven then."""

_log = logging.getLogger(__name__)


class AddressType(click.ParamType[tuple[str, int]]):
    """host:port."""

    name = "HOST:PORT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        host, _, port = str(value).rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(f"{value!r} is not host:port", param, ctx)
        return host.strip("[]"), int(port)


@click.command(
    cls=Manual,
    short_help="Prove on a running cluster that a replaced writer is refused.",
    exits=(OK, REFUSED, USAGE, UNKNOWN_OUTCOME, INTERRUPTED),
    means={
        OK: "With --once: a proof. Otherwise: stopped, and no round was a violation.",
        REFUSED: "A violation: the log has a record of a writer that was replaced.",
        UNKNOWN_OUTCOME: "With --once: neither. The output says what is missing for a proof.",
    },
    examples=[
        ("As a service, for Prometheus", "stockade canary --metrics 0.0.0.0:9479"),
        ("In a pipeline, or from cron", "stockade canary --once"),
    ],
)
@click.option(
    "--topic", default=TOPIC, show_default=True, help="Topic of the canary; it is created if it is not there."
)
@click.option(
    "--partitions",
    default=3,
    show_default=True,
    type=WholeNumber(1, 100),
    help="Of the topic, if it is created. Each round takes the next one, so that several leaders are tried.",
)
@click.option(
    "--every",
    "every_s",
    default=60.0,
    show_default=True,
    type=Number(1, 86_400),
    metavar="SECONDS",
    help="From round to round.",
)
@click.option(
    "--metrics",
    "address",
    type=AddressType(),
    default="127.0.0.1:9479",
    show_default=True,
    help="Where Prometheus finds /metrics, while the canary goes on. Port 0: a free one.",
)
@click.option("--once", is_flag=True, help="One round; the exit code says what it has shown. Nothing is served.")
@output_option
@with_config
async def canary(
    config: ClientConfig,
    topic: str,
    partitions: int,
    every_s: float,
    address: tuple[str, int],
    *,
    once: bool,
    output: str,
) -> None:
    """Prove that a writer that was replaced is refused, on a partition of a topic of its own, again and again. It
    touches no partition that another writer holds, or has written to last.

    Each round takes the partition over from a writer, lets that one write once more, and reads the log. A proof: the
    late write came to the partition and was refused with PRODUCER_FENCED and a certificate, and the log has nothing of
    it. One line for each round goes to standard output.

    Its principal needs the rights read, produce and acquire on the topic, and admin on it to create it.
    """
    figures = Figures()
    async with Client(config) as client:
        rounds = Rounds(client, topic, partitions)
        if once:
            verdict = await _round(rounds, figures, output)
            sys.exit({"proof": OK, "violation": REFUSED, "unproven": UNKNOWN_OUTCOME}[verdict.judged])
        with ExitStack() as stack:
            try:
                port = stack.enter_context(figures.served(*address))
            except OSError as error:
                raise click.UsageError(f"--metrics: {error}") from error
            click.echo(f"metrics at http://{address[0]}:{port}/metrics", err=True)
            await _go_on(rounds, figures, every_s, output)
    sys.exit(REFUSED if figures.violations else OK)


async def _go_on(rounds: Rounds, figures: Figures, every_s: float, output: str) -> None:
    """Run a round every ``every_s`` seconds, until SIGTERM or SIGINT, which cancels the round under way."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    due = loop.time()
    stopped = asyncio.create_task(stopping.wait())
    while not stopping.is_set():
        playing = asyncio.create_task(_round(rounds, figures, output))
        await asyncio.wait((playing, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not playing.done():  # a cancelled round still ends its sessions
            playing.cancel()
            with suppress(asyncio.CancelledError):
                await playing
            break
        playing.result()
        due = max(due + every_s, loop.time())
        try:
            async with asyncio.timeout_at(due):
                await stopping.wait()
        except TimeoutError:
            continue


async def _round(rounds: Rounds, figures: Figures, output: str) -> Verdict:
    """Run one round; count its verdict, print it and return it."""
    takeover_s: float | None = None
    try:
        async with asyncio.timeout(ROUND_S):
            seen = await rounds.next()
        verdict, takeover_s = judge(seen), seen.takeover_s
    except NoRound as error:
        verdict = Verdict("unproven", error.reason, str(error))
    except StockadeError as error:
        verdict = Verdict("unproven", error.code, f"{error.detail} ({error.code})")
    except TimeoutError:
        verdict = Verdict("unproven", "too slow", f"a round took longer than {ROUND_S:.0f} s")
    figures.count(verdict, takeover_s)
    _tell(verdict, takeover_s, output)
    return verdict


def _tell(verdict: Verdict, takeover_s: float | None, output: str) -> None:
    if verdict.judged == "violation":
        _log.critical("a replaced writer's record is stored: %s", verdict.why)
    if output == "json":
        facts = {"judged": verdict.judged, "reason": verdict.reason, "why": verdict.why, "takeover_s": takeover_s}
        click.echo(msgspec.json.encode(facts).decode())
    else:
        word = "VIOLATION" if verdict.judged == "violation" else verdict.judged
        took = "" if takeover_s is None else f" (takeover in {takeover_s * 1000:.0f} ms)"
        click.echo(f"{word}: {verdict.why}{took}")
    sys.stdout.flush()
