"""What the client commands share: reaching the cluster, saying what went wrong, ending with the right exit code.

Exit codes: 0 done; 1 refused; 2 wrong usage; 3 the outcome is unknown; 4 no node can be reached; 130 interrupted.
"""

import functools
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import click
import uvloop

from ..client.config import DEFAULT_BOOTSTRAP, ClientConfig, InvalidConfig
from ..client.errors import ClusterUnreachable
from ..partition.errors import (
    FencingTokenRequired,
    HoldAndWait,
    LeaderNotAvailable,
    MessageTooLarge,
    NotEnoughReplicas,
    OffsetOutOfRange,
    ProducerBusy,
    ProducerFenced,
    RequestTimedOut,
    SessionExpired,
    StockadeError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

REFUSED, UNKNOWN_OUTCOME, UNREACHABLE, INTERRUPTED = 1, 3, 4, 130

EXIT_CODES = "Exit codes: 0 done, 1 refused, 2 wrong usage, 3 outcome unknown, 4 no node reached, 130 interrupted."

ADVICE: dict[type[StockadeError], str] = {
    ClusterUnreachable: "Start a cluster with `stockade cluster`, or name a running node with --url.",
    UnknownTopicOrPartition: "`stockade topic list` and `stockade topic describe TOPIC` show what there is.",
    TopicAlreadyExists: "Choose another name, or look at it with `stockade topic describe`.",
    ProducerBusy: "Wait until the other writer leaves, or take its place with --fencing.",
    ProducerFenced: "Somebody took over; look at what is stored before you send the rest.",
    SessionExpired: "Look at what is stored, then start again.",
    FencingTokenRequired: "Write with --exclusive.",
    HoldAndWait: "Release what the session holds first.",
    MessageTooLarge: "Use shorter records, or a topic with a larger max_batch_bytes.",
    OffsetOutOfRange: "Choose an offset between log_start and log_end with --from.",
    RequestTimedOut: "Look at what is stored before you repeat it.",
    LeaderNotAvailable: "Wait a moment; if it lasts, see which nodes run.",
    NotEnoughReplicas: "Start the nodes that are missing.",
}
"""What to do next, by class of refusal."""


_url = click.option(
    "--url",
    envvar="STOCKADE_URL",
    default=",".join(DEFAULT_BOOTSTRAP),
    help="Base URL of a node, or several separated by commas. Environment: STOCKADE_URL.",
)
_timeout = click.option(
    "--timeout",
    "timeout_s",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="Seconds to go on trying while the cluster does not decide.",
)


def connected(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a coroutine function with a first parameter ``config`` the body of a command with --url and --timeout."""

    @_url
    @_timeout
    @functools.wraps(command)
    def run(*args: Any, url: str, timeout_s: float, **options: Any) -> None:
        try:
            uvloop.run(command(configured(url, timeout_s), *args, **options))
        except StockadeError as error:
            fail(error)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            # Whoever read our output has had enough. What is still buffered has nowhere to go.
            sys.stdout = None
            sys.exit(0)

    return run


def configured(url: str, timeout_s: float) -> ClientConfig:
    """The client's configuration. Raises click.UsageError with every fault."""
    timeout_ms = int(timeout_s * 1000)
    try:
        config = ClientConfig.of(url)
        return replace(
            config,
            request_timeout_ms=min(timeout_ms, config.request_timeout_ms),
            delivery_timeout_ms=timeout_ms + config.linger_ms,
        )
    except InvalidConfig as error:
        raise click.UsageError(str(error)) from error


def explain(error: StockadeError) -> str:
    """One line: what happened, and what to do next."""
    advice = next((text for kind, text in ADVICE.items() if isinstance(error, kind)), "")
    return f"{sentence(error)} {advice}".rstrip()


def sentence(error: StockadeError) -> str:
    """What happened, as a sentence, with the code that programs read."""
    detail = error.detail.rstrip(".")
    return f"{detail[:1].upper()}{detail[1:]} ({error.code})."


def exit_code(error: StockadeError) -> int:
    """By what is known of the outcome."""
    if isinstance(error, ClusterUnreachable):
        return UNREACHABLE
    return REFUSED if error.no_side_effects else UNKNOWN_OUTCOME


def fail(error: StockadeError) -> NoReturn:
    """Explain on standard error and end."""
    click.echo(f"Error: {explain(error)}", err=True)
    sys.exit(exit_code(error))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns aligned with blanks: easy to read, and to cut with other tools."""
    cells = [[str(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)
