"""How commands end: exit codes that scripts can use, and errors that say what to do next.

This is the only table of exit codes. A number never changes its meaning.
"""

import json
import sys
from typing import Any, NoReturn

import click

from ...client.errors import ClusterUnreachable
from ...partition.errors import (
    InvalidProducerEpoch,
    PlanChanged,
    ProducerFenced,
    RequestTimedOut,
    SessionExpired,
    StockadeError,
    UnknownSession,
)
from ...partition.refusal_texts import writer_of
from .times import moment, seconds

OK, REFUSED, USAGE, UNKNOWN_OUTCOME, UNREACHABLE, FENCED, CHANGED, NOT_RUN, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 127, 130

MEANINGS = {
    OK: "Done.",
    REFUSED: "Refused; the cluster changed nothing. Or a check found something wrong.",
    USAGE: "Wrong usage: options, arguments or configuration. Nothing was sent.",
    UNKNOWN_OUTCOME: "The outcome is unknown, or was not printed: it may have been done. Check before you repeat it.",
    UNREACHABLE: "No node could be reached, or none answered a question. Nothing was changed.",
    FENCED: "Fenced: another writer took over, or the session ended. Later writes were refused.",
    CHANGED: "The state has changed since the plan was shown. Nothing was done; the new plan is shown.",
    NOT_RUN: "COMMAND could not be run.",
    INTERRUPTED: "Interrupted by Ctrl-C.",
}

LOCAL = (OK, REFUSED, USAGE)
"""Exit codes of a command that talks to no cluster."""
CLIENT = (OK, REFUSED, USAGE, UNKNOWN_OUTCOME, UNREACHABLE, INTERRUPTED)
"""Exit codes of a command that talks to a cluster."""
JUDGED = {
    OK: "No violation.",
    REFUSED: "A checker found a violation; the report names it.",
    USAGE: "Wrong usage, or the run could not be carried out; a message says why.",
}
"""Exit codes of a command that starts a cluster, injects faults and checks the history."""
PLANNED = (OK, REFUSED, USAGE, UNKNOWN_OUTCOME, UNREACHABLE, CHANGED, INTERRUPTED)
"""Exit codes of a command with --plan, which shows beforehand what it would change."""
WRITER = (OK, REFUSED, USAGE, UNKNOWN_OUTCOME, UNREACHABLE, FENCED, INTERRUPTED)
"""Exit codes of a command that may be fenced."""


def explain(error: StockadeError) -> str:
    """One line for a message: what happened, which holder is in the way, and what to do next."""
    return " ".join(filter(None, (sentence(error), _holding(error), error.hint_on("cli"))))


def _holding(error: StockadeError) -> str:
    """A sentence about the holder that the error names: since when it has the slot, and for how long at most. It has
    the holder's name unless the detail has it. Empty if the error names no holder.
    """
    holder: Any = error.fields.get("holder")
    if not isinstance(holder, dict):
        return ""
    since, left_ms = holder.get("since_unix_ms"), holder.get("expires_in_ms")
    times = [f"since {moment(since)}"] if since is not None else []
    times += [f"for {seconds(left_ms)} more at most unless its session is renewed"] if left_ms is not None else []
    by = "" if (writer := writer_of(holder)) in error.detail else f"by {writer} "
    return f"Held {by}{', '.join(times)}." if times else ""


def sentence(error: StockadeError) -> str:
    """The error's detail as a sentence, with its code."""
    detail = error.detail.rstrip(".")
    is_word = detail.partition(" ")[0].rstrip(",").isalpha()  # an address, field or node id keeps its case
    return f"{detail[:1].upper() + detail[1:] if is_word else detail} ({error.code})."


def exit_code(error: StockadeError) -> int:
    """The exit code for an error: it says whether the request may have taken effect."""
    # ``no_side_effects`` covers all attempts: no earlier one can have had effects either.
    if isinstance(error, ClusterUnreachable | RequestTimedOut) and error.no_side_effects:
        return UNREACHABLE
    if isinstance(error, ProducerFenced | InvalidProducerEpoch | SessionExpired | UnknownSession):
        return FENCED
    if isinstance(error, PlanChanged):
        return CHANGED
    return REFUSED if error.no_side_effects else UNKNOWN_OUTCOME


def fail(error: StockadeError, *, as_json: bool = False) -> NoReturn:
    """Explain the error on standard error, and end the process with its exit code."""
    click.echo(_problem(error) if as_json else f"Error: {explain(error)}", err=True)
    sys.exit(exit_code(error))


def refuse(code: str, detail: str, *, as_json: bool, no_side_effects: bool) -> NoReturn:
    """Like ``fail``, for a refusal by the command itself, not by a node. ``code``: for programs, like a node's."""
    about = {"code": code, "detail": detail, "hint": "", "exit_code": REFUSED}
    policy = {"retriable": False, "no_side_effects": no_side_effects}
    click.echo(json.dumps(about | policy) if as_json else f"Error: {detail}", err=True)
    sys.exit(REFUSED)


def _problem(error: StockadeError) -> str:
    """The problem document of the HTTP interface as JSON, with the hint for this command line and the exit code."""
    about = {"code": error.code, "detail": error.detail, "hint": error.hint_on("cli"), "exit_code": exit_code(error)}
    policy = {"retriable": error.retriable, "no_side_effects": error.no_side_effects}
    return json.dumps({**error.fields, **about, **policy}, default=str)
