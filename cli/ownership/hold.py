"""`stockade hold`: run a command only while this process owns the partitions."""

import sys
from collections.abc import Sequence

import click

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.fencing import Fence, Session
from ..client.model import Mode
from .child import grace_option, run_while, ttl_option
from .connection import connected
from .exits import FENCED, NOT_RUN, OK, WRITER, explain
from .manual import Manual
from .modes import mode_option
from .names import TOPIC

RUN_EXITS = (*WRITER, NOT_RUN)
RUN_MEANS = {
    OK: "COMMAND ran to its end; otherwise its exit code is ours, 128 + its number if a signal ended it.",
    FENCED: "The ownership was lost, and COMMAND was ended.",
}


@click.command(
    cls=Manual,
    short_help="Run a command only while it owns partitions.",
    exits=RUN_EXITS,
    means=RUN_MEANS,
    examples=[
        ("A nightly job that must never run twice", "stockade hold jobs -- ./run-the-nightly-job"),
        (
            "A standby that takes over when the other one dies",
            "stockade hold jobs --mode wait --partition 0 -- ./worker",
        ),
    ],
)
@click.argument("topic", type=TOPIC)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--partition", "partitions", multiple=True, type=click.IntRange(0), help="Repeatable. Default: all.")
@mode_option
@click.option("--name", default="hold", show_default=True, help="Who this is, shown to others.")
@ttl_option
@grace_option
@connected
async def hold(
    config: ClientConfig,
    topic: str,
    command: Sequence[str],
    partitions: Sequence[int],
    mode: Mode,
    name: str,
    ttl_s: float,
    grace_s: float,
) -> None:
    """Own partitions of TOPIC, run COMMAND, and end it with all that it started as soon as they are lost.

    COMMAND finds the fencing token in STOCKADE_GRANT, STOCKADE_EPOCH and STOCKADE_SESSION, and TOPIC in STOCKADE_TOPIC:
    what it appends with the token is refused by the log once somebody else owns the partition, however late the signal
    comes. Write `--` before COMMAND.

    On Linux that is everything that descends from COMMAND, also what left its session, and also when COMMAND ends by
    itself or this process is killed; elsewhere, its process group. What another service starts for it (a container
    engine, cron, systemd) is not ended: give that the token.
    """
    async with (
        Client(config) as client,
        Session(client, name, ttl_ms=int(ttl_s * 1000)) as session,
    ):
        fence = await session.acquire(topic, list(partitions) or None, mode=mode)
        code = await run_while(command, _token(fence, session), fence.lost, lambda: _why(fence), grace_s)
        if fence.error is None:
            await session.release(fence)
    sys.exit(code)


def _token(fence: Fence, session: Session) -> dict[str, str]:
    grant = fence.grant
    return {"GRANT": grant.grant, "EPOCH": str(fence.epoch), "SESSION": session.id, "TOPIC": grant.topic}


def _why(fence: Fence) -> str:
    assert fence.error is not None
    return f"lost {fence.grant.topic}: {explain(fence.error)}"
