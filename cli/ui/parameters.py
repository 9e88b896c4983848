"""Options and types of arguments that several commands have: modes, partitions, times, settings of a topic."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, get_args

import click
import msgspec

from ...partition.api.topics import TOPIC_RETENTION_MS, Mode, TopicConfig
from .manual import Adding

SHORT_MODES: dict[str, Mode] = {
    "shared": "Shared",
    "exclusive": "Exclusive",
    "fencing": "ExclusiveWithFencing",
    "wait": "WaitForExclusive",
}
"""Short forms that ``--mode`` also accepts. Output always has the full names."""


def collected(kind: Callable[..., Any], name: str, options: Sequence[Adding]) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that adds ``options`` to a command and passes their values as one argument ``name``: a NamedTuple of
    type ``kind``.
    """
    fields: tuple[str, ...] = getattr(kind, "_fields")  # noqa: B009 - typing has no name for a NamedTuple's class

    def decorate(command: Callable[..., Any]) -> Any:
        @wraps(command)
        def collecting(*args: Any, **given: Any) -> Any:
            return command(*args, **{name: kind(**{field: given.pop(field) for field in fields})}, **given)

        decorated: Any = collecting
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


class WholeNumber(click.IntRange):
    """A whole number within bounds. Messages about a wrong value say "whole number", not click's "integer range"."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return "NUMBER" if isinstance(param, click.Option) else None  # an argument is called by its own name


class Number(click.FloatRange):
    """A number within bounds. Messages about a wrong value say "number", not click's "float range"."""

    name = "number"


ROWS_MAX = 1_000
"""Rows of a list that a command requests at most."""


class ModeType(click.Choice[str]):
    """The name of an access mode, or its short form."""

    def __init__(self) -> None:
        super().__init__(get_args(Mode))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(SHORT_MODES.get(str(value), value), param, ctx)


mode_option: Adding = click.option(
    "--mode",
    type=ModeType(),
    default="Exclusive",
    show_default=True,
    help="Shared: beside other Shared holders. Exclusive: refused if a partition has a holder. ExclusiveWithFencing:"
    " evict the present holders. WaitForExclusive: wait in the queue for a turn. Short: shared, exclusive, fencing,"
    " wait.",
)

partitions_option: Adding = click.option(
    "--partition", "partitions", multiple=True, type=WholeNumber(0), help="Repeat it for several. Default: all."
)
all_option: Adding = click.option(
    "--all", "internal", is_flag=True, help="Also what Stockade and its clients made for themselves."
)
prefix_option: Adding = click.option("--prefix", default="", help="List only names that begin with this.")


class InstantType(click.ParamType[int]):
    """A time in one of the forms of MomentType, in ms since 1970. ``is_to_come``: a time that has passed is refused."""

    name = "TIME"

    def __init__(self, *, is_to_come: bool = False) -> None:
        self._is_to_come = is_to_come

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = _unix_ms(str(value))
        if found is None:
            self.fail(f"{value!r} is not {_TIME}", param, ctx)
        if self._is_to_come and found <= time.time() * 1000:
            self.fail(f"{value!r} has passed", param, ctx)
        return found


class MomentType(click.ParamType[str | int]):
    """A word, or a time: ISO 8601 (without a zone it is UTC), or milliseconds since 1970 in UNIX_MS_DIGITS digits."""

    name = "earliest|latest|max_timestamp|TIME"

    def __init__(self, hint: str = "") -> None:
        """``hint``: the end of the message about any other text."""
        self._hint = hint

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        if value in ("earliest", "latest", "max_timestamp"):
            return str(value)
        found = _unix_ms(str(value))
        if found is None:
            self.fail(f"{value!r} is neither earliest, latest, max_timestamp nor {_TIME}{self._hint}", param, ctx)
        return found


class DurationType(click.ParamType[float]):
    """A duration in seconds, given as a whole number with its unit."""

    name = "NUMBER[s|m|h|d]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        if text[-1:] not in _UNITS or not text[:-1].isdecimal() or not int(text[:-1]):
            self.fail(f"{value!r} is not a duration such as 30s, 15m, 6h or 7d", param, ctx)
        return float(int(text[:-1]) * _UNITS[text[-1]])


UNIX_MS_DIGITS = 13
"""Digits of the times from 2001 to 2286 in ms since 1970. A number with fewer or more digits is refused: 20300101 is
rather a date.
"""
_TIME = f"a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970 ({UNIX_MS_DIGITS} digits)"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _unix_ms(text: str) -> int | None:
    """The time that a text names, in ms since 1970; None if it names none."""
    if text.isdecimal():
        return int(text) if len(text) == UNIX_MS_DIGITS else None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


FIELDS = {field.name: field for field in msgspec.structs.fields(TopicConfig)}
_DEFAULTS = {**msgspec.structs.asdict(TopicConfig()), "retention_ms": TOPIC_RETENTION_MS}

SETTINGS_HELP = (
    "A setting of the topic; repeat the option for several. "
    + ", ".join(
        f"{name} ({'none' if default is None else msgspec.json.encode(default).decode()})"
        for name, default in _DEFAULTS.items()
    )
    + ". Defaults of new topics are in brackets; that of retention_ms is for topics without retention_bytes, and nodes"
    " may have another one. Times are milliseconds; -1 means unlimited."
)


def topic_settings(_ctx: click.Context, _param: click.Parameter, given: Sequence[str]) -> dict[str, Any]:
    """The settings that NAME=VALUE options give, by name, checked against the fields of TopicConfig. Raises
    BadParameter with all faults.
    """
    settings, faults = {}, []
    for setting in given:
        name, found, text = setting.partition("=")
        field = FIELDS.get(name)
        if not found or field is None:
            faults.append(f"{setting!r} is not NAME=VALUE with one of {', '.join(FIELDS)}")
            continue
        if name in settings:
            faults.append(f"{name} is given twice")
        try:
            wanted = None if text == "none" and field.default is None else text
            settings[name] = msgspec.convert(wanted, field.type, strict=False)
        except msgspec.ValidationError:
            faults.append(f"{name}: {text!r} is not {'true or false' if field.type is bool else 'a whole number'}")
    if faults:
        raise click.BadParameter("; ".join(faults))
    return settings
