"""`stockade hold`: run a command only while a session holds a grant on partitions."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import click
import msgspec

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...client.session.session import Fence, Session
from ...partition.api.topics import Mode
from ..ui.completion_names import TOPIC
from ..ui.connection import with_config
from ..ui.exits import FENCED, NOT_RUN, OK, WRITER, explain
from ..ui.manual import Manual
from ..ui.parameters import mode_option, partitions_option
from .child import Held, grace_option, reacquire_option, run_held, ttl_option

RUN_EXITS = (*WRITER, NOT_RUN)
RUN_MEANS = {
    OK: "COMMAND ended with 0. Any other exit code of COMMAND is passed on; 128 + N if signal N ended it.",
    FENCED: "The ownership was lost, so COMMAND was ended.",
}


@click.command(
    cls=Manual,
    short_help="Run a command only while it holds partitions.",
    exits=RUN_EXITS,
    means=RUN_MEANS,
    examples=[
        ("A nightly job that must never run twice at a time", "stockade hold jobs -- ./run-the-nightly-job"),
        (
            "A standby that takes over when the other one dies",
            "stockade hold jobs --mode WaitForExclusive --partition 0 -- ./worker",
        ),
    ],
)
@click.argument("topic", type=TOPIC)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@partitions_option
@mode_option
@click.option("--name", default="hold", show_default=True, help="Name of this holder, shown to others.")
@ttl_option
@grace_option
@reacquire_option
@with_config
async def hold(
    config: ClientConfig,
    topic: str,
    command: Sequence[str],
    partitions: Sequence[int],
    mode: Mode,
    name: str,
    ttl_s: float,
    grace_s: float,
    *,
    reacquire: bool,
) -> None:
    """Hold partitions of TOPIC while COMMAND runs; end COMMAND and all that it started as soon as they are lost.

    COMMAND finds the fencing token in STOCKADE_GRANT, STOCKADE_EPOCH and STOCKADE_SESSION, and TOPIC in STOCKADE_TOPIC:
    appends with this token pass until another holder has the partition; then the log refuses them, even if COMMAND has
    not noticed yet. Of a Shared grant STOCKADE_EPOCH is the highest; STOCKADE_EPOCHS has that of each partition, in
    JSON. Write `--` before COMMAND.

    On Linux all descendants of COMMAND are ended, also those that left its session, and also when COMMAND ends by
    itself or this process is killed; elsewhere, its process group. Processes that another service starts for it (a
    container engine, cron, systemd) go on: give them the token.
    """
    async with Client(config) as client:

        @asynccontextmanager
        async def held(again: bool) -> AsyncIterator[Held]:
            async with Session(client, name, ttl_ms=int(ttl_s * 1000)) as session:
                chosen = "WaitForExclusive" if again and mode != "Shared" else mode
                fence = await session.acquire(topic, list(partitions) or None, mode=chosen)
                if again:
                    click.echo(f"{topic}: acquired again with epoch {fence.epoch}; COMMAND is started again", err=True)
                yield Held(_token(fence, session), fence.lost, lambda: _why(fence))
                if fence.error is None:
                    await session.release(fence)

        code = await run_held(held, command, grace_s, reacquire=reacquire)
    sys.exit(code)


def _token(fence: Fence, session: Session) -> dict[str, str]:
    grant = fence.grant
    epochs = msgspec.json.encode(grant.epochs).decode()
    return {
        "GRANT": grant.grant,
        "EPOCH": str(fence.epoch),
        "EPOCHS": epochs,
        "SESSION": session.id,
        "TOPIC": grant.topic,
    }


def _why(fence: Fence) -> str:
    assert fence.error is not None
    return f"lost {fence.grant.topic}: {explain(fence.error)}"
