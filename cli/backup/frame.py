"""Shared by the commands of `stockade backup`: the argument PLACE, the end by an error, messages, progress bars."""

import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ...partition.places.place import CannotReach
from ...partition.places.urls import place_fault
from ..ui.exits import refuse
from ..ui.manual import Adding
from .begin import CannotBackUp
from .manifest import Damaged
from .restore import CannotRestore

CODES = {
    CannotBackUp: "CANNOT_BACK_UP",
    CannotReach: "PLACE_UNREACHABLE",
    CannotRestore: "CANNOT_RESTORE",
    Damaged: "BACKUP_UNREADABLE",
}
"""The errors with which a command of backups itself fails, and not a node, with their codes for programs. No code ever
changes.
"""
FAILURES: tuple[type[Exception], ...] = tuple(CODES)


class PlaceType(click.ParamType[str]):
    """A folder or a URL. A message that refuses it never quotes it, because it may have credentials."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if fault := place_fault(str(value)):
            self.fail(fault, param, ctx)
        return str(value)


place_argument: Adding = click.argument("place", type=PlaceType())
name_option: Adding = click.option("--name", help="Of a backup that `stockade backup list` shows. Default: the newest.")


def explained(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """Decorate a command: one of FAILURES ends it with a line that says why, or with JSON if that is its output."""

    @wraps(command)
    async def body(*args: Any, **options: Any) -> None:
        try:
            await command(*args, **options)
        except FAILURES as error:
            end_with(error, options["output"])

    return body


def end_with(error: Exception, output: str, *, no_side_effects: bool = True) -> NoReturn:
    """End the process because of ``error``, one of FAILURES. ``no_side_effects``: it is certain that nothing was
    changed.
    """
    code = next(code for kind, code in CODES.items() if isinstance(error, kind))
    refuse(code, str(error), as_json=output == "json", no_side_effects=no_side_effects)


def local(work: Callable[[], Any], output: str, *, no_side_effects: bool = True) -> Any:
    """The result of ``work``, for a command that asks no node; CannotReach and Damaged end the command."""
    try:
        return work()
    except (CannotReach, Damaged) as error:
        end_with(error, output, no_side_effects=no_side_effects)


def say(text: str) -> None:
    """Print a line on standard error. A failure to write it is ignored: it does not concern the work."""
    with suppress(OSError):
        click.echo(text, err=True)


def written(show: Callable[[], None]) -> OSError | None:
    """Run ``show``, which prints on standard output; returns the error if that cannot be written. Then standard output
    is closed to further output: bytes in its buffer would fail again at the process's end and change its exit code.
    """
    try:
        show()
    except OSError as error:
        sys.stdout = None
        return error
    return None


@contextmanager
def progress_bar(what: str, total: int = 0) -> Iterator[tuple[Progress, TaskID]]:
    """A progress bar on standard error during the block, if that is a terminal."""
    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar, bar.add_task(what, total=total)
