"""How commands end: exit codes that scripts can use, and errors that say what to do next.

This is the one table of exit codes. A number never changes its meaning.
"""

import json
import sys
from typing import NoReturn

import click

from ..client.errors import ClusterUnreachable
from ..partition.errors import (
    FencingTokenRequired,
    GenerationFenced,
    HoldAndWait,
    InvalidProducerEpoch,
    LeaderNotAvailable,
    MessageTooLarge,
    NotEnoughReplicas,
    NotFound,
    NotOwner,
    OffsetOutOfRange,
    ProducerBusy,
    ProducerFenced,
    RequestTimedOut,
    SessionExpired,
    StockadeError,
    TopicAlreadyExists,
    UnknownSession,
    UnknownTopicOrPartition,
)
from ..partition.request_errors import PermissionDenied, Unauthenticated

OK, REFUSED, USAGE, UNKNOWN_OUTCOME, UNREACHABLE, FENCED, NOT_RUN, INTERRUPTED = 0, 1, 2, 3, 4, 5, 127, 130

MEANINGS = {
    OK: "Done.",
    REFUSED: "Refused; what was refused changed nothing. Or what was looked at is not well.",
    USAGE: "Wrong usage: options, arguments or configuration. Nothing was sent.",
    UNKNOWN_OUTCOME: "The outcome is unknown: it may have been done. Look before you repeat it.",
    UNREACHABLE: "No node could be reached. Nothing was sent.",
    FENCED: "Fenced: somebody took over, or the session ended. What came after that was refused.",
    NOT_RUN: "COMMAND could not be run.",
    INTERRUPTED: "Interrupted by Ctrl-C.",
}

LOCAL = (OK, REFUSED, USAGE)
"""Exit codes of a command that asks no cluster."""
CLIENT = (OK, REFUSED, USAGE, UNKNOWN_OUTCOME, UNREACHABLE, INTERRUPTED)
"""Exit codes of a command that does."""
JUDGED = {
    OK: "No violation.",
    REFUSED: "A promise was broken: the report says which.",
    USAGE: "Wrong usage, or it could not be carried out as planned, and says why.",
}
"""What exit codes mean of a command that breaks a cluster of its own, and judges."""
WRITER = (OK, REFUSED, USAGE, UNKNOWN_OUTCOME, UNREACHABLE, FENCED, INTERRUPTED)
"""Exit codes of a command that may be fenced."""

ADVICE: dict[type[StockadeError], str] = {
    ClusterUnreachable: "Start a cluster with `stockade cluster`, or name a running node with --url.",
    UnknownTopicOrPartition: "`stockade topics list` and `stockade topics describe TOPIC` show what there is.",
    TopicAlreadyExists: "Choose another name, or look at it with `stockade topics describe`.",
    ProducerBusy: "See who it is with `stockade grants list TOPIC`; wait until they leave, or take their place with"
    " --fencing (--mode fencing).",
    ProducerFenced: "Somebody took over; `stockade grants describe TOPIC` tells who. Look at what is stored before you"
    " send the rest.",
    InvalidProducerEpoch: "A newer instance of this producer runs; `stockade producers status NAME` tells its epoch.",
    SessionExpired: "Look at what is stored, then start again.",
    UnknownSession: "Sessions end by themselves when nobody renews them: open another one.",
    FencingTokenRequired: "Write with --exclusive.",
    GenerationFenced: "See who owns it with `stockade groups describe GROUP`; a higher --generation takes it over.",
    NotOwner: "See who owns it with `stockade groups describe GROUP`.",
    NotFound: "`stockade producers list`, `stockade cluster status` and the like show what there is.",
    HoldAndWait: "Release what the session holds first.",
    MessageTooLarge: "Use shorter records, or a topic with a larger max_batch_bytes.",
    OffsetOutOfRange: "Choose one (--from, --to-offset) that `stockade topics offsets TOPIC` tells.",
    RequestTimedOut: "Look at what is stored before you repeat it.",
    LeaderNotAvailable: "Wait a moment; if it lasts, `stockade doctor` tells what is missing.",
    Unauthenticated: "Give a token that the cluster knows with --token-file, or in STOCKADE_TOKEN.",
    PermissionDenied: "Use a token that has the right to do this.",
    NotEnoughReplicas: "Start the nodes that are missing; `stockade doctor` names them.",
}
"""What to do next, by class of refusal; the first that fits."""


def explain(error: StockadeError) -> str:
    """One line: what happened, and what to do next."""
    return f"{sentence(error)} {hint(error)}".rstrip()


def hint(error: StockadeError) -> str:
    """What to do next; maybe nothing."""
    return next((text for kind, text in ADVICE.items() if isinstance(error, kind)), "")


def sentence(error: StockadeError) -> str:
    """What happened, as a sentence, with the code that programs read."""
    detail = error.detail.rstrip(".")
    is_address = "://" in detail.partition(" ")[0]
    return f"{detail if is_address else detail[:1].upper() + detail[1:]} ({error.code})."


def exit_code(error: StockadeError) -> int:
    """By what is known of the outcome."""
    if isinstance(error, ClusterUnreachable):
        return UNREACHABLE
    if isinstance(error, ProducerFenced | InvalidProducerEpoch | SessionExpired):
        return FENCED
    return REFUSED if error.no_side_effects else UNKNOWN_OUTCOME


def fail(error: StockadeError, *, as_json: bool = False) -> NoReturn:
    """Explain on standard error and end."""
    click.echo(_problem(error) if as_json else f"Error: {explain(error)}", err=True)
    sys.exit(exit_code(error))


def _problem(error: StockadeError) -> str:
    """The problem document of the HTTP interface, with what to do next and the exit code."""
    about = {"code": error.code, "detail": error.detail, "hint": hint(error), "exit_code": exit_code(error)}
    policy = {"retriable": error.retriable, "no_side_effects": error.no_side_effects}
    return json.dumps({**error.fields, **about, **policy}, default=str)
