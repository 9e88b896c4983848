"""Options of Spark users: each is checked by itself, and all faults are reported together. Pure, without Spark.

An option is parsed by a function of (name, text) that raises ValueError; reads and writes share these functions.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ..client.config import Credentials
from ..partition.errors import StockadeError

P = ParamSpec("P")
T = TypeVar("T")


class OptionsError(ValueError):
    """The options have faults: ``faults`` lists them, and the message names them all."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__(f"correct the options: {'; '.join(faults)}")


IN_A_CATALOG = (
    "the options are missing: CREATE TABLE makes a table for which Spark hands a data source in Python none of its"
    " options; say CREATE TEMPORARY VIEW ... USING stockade OPTIONS (...)"
)


OF_CREDENTIALS = ("authToken", "authTokenFile", "tlsCa", "tlsCertificate", "tlsKey")
"""The options of `Credentials`, in the order of its fields."""


class GivenOptions:
    """The options of a user, by lower-case name, and the faults found so far."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value.strip() for name, value in options.items()}
        self.faults: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def refuse_unknown(self, known: Iterable[str], kind: str) -> None:
        """Note a fault for each option that is not among ``known``, the options of a ``kind``, read or write. Case
        does not matter.

        A fault names the most similar known option. If an option has no similar one, the last fault lists all. A table
        of Spark's catalog gets options of Spark's own when it is created, and none in a query: one fault tells of that.
        """
        if not self._values or "provider" in self._values:
            self.faults.append(IN_A_CATALOG)
            return
        names = {name.lower(): name for name in known}
        unknown = sorted(self._values.keys() - names.keys())
        similar = {name: difflib.get_close_matches(name, names, n=1) for name in unknown}
        for name in sorted(unknown, key=lambda name: not similar[name]):
            advice = f" (did you mean {names[similar[name][0]]}?)" if similar[name] else ""
            self.faults.append(f"unknown option {name} of a {kind}{advice}")
        if not all(similar.values()):
            self.faults[-1] += f" (its options are {', '.join(names.values())})"

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Note a fault for each of ``names`` that is given, with a reason such as "has no meaning in a batch read"."""
        self.faults += [f"{name} {reason}" for name in names if name in self]

    def take(self, read: Callable[[str, str], Any], name: str, default: str | None) -> Any:
        """The value that ``read`` parses from the option's text, or else from ``default``; None without either. If
        ``read`` raises ValueError, its message is noted as a fault, and the value is None.
        """
        text = self._values.get(name.lower(), default)
        if text is None:
            return None
        try:
            return read(name, text)
        except ValueError as error:
            self.faults.append(str(error))
            return None


def credentials(given: GivenOptions) -> Credentials:
    """The credentials in the options authToken or authTokenFile, tlsCa, tlsCertificate and tlsKey."""
    names = dict(zip(("token", "token_file", "ca", "certificate", "key"), OF_CREDENTIALS, strict=True))
    access = Credentials(**{field: given.take(text, name, None) for field, name in names.items()})
    if access.token and access.token_file:
        given.faults.append("authToken and authTokenFile exclude each other")
    elif access.token_file and access.token_now() is None:
        given.faults.append(f"authTokenFile: {access.token_file} cannot be read, or has no token")
    if access.key and not access.certificate:
        given.faults.append("tlsKey needs tlsCertificate")
    return access


def urls(name: str, text: str) -> tuple[str, ...]:
    """Parse base URLs of nodes, separated by commas; without duplicates and final slashes."""
    found = tuple(dict.fromkeys(part.strip().rstrip("/") for part in text.split(",")))
    if not all(url.startswith(("http://", "https://")) for url in found):
        raise ValueError(f"{name} must be a node's base URL, like http://127.0.0.1:7101, or several between commas")
    return found


def text(name: str, text: str) -> str:
    """Parse a text that must not be empty."""
    if not text:
        raise ValueError(f"{name} must not be empty")
    return text


def positive(name: str, text: str) -> int:
    """Parse a whole number above 0."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise ValueError(f"{name} must be a whole number above 0, not {text!r}")
    return int(text)


def flag(name: str, text: str) -> bool:
    """Parse ``true`` or ``false``, in any case."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{name} must be true or false, not {text!r}")
    return text.lower() == "true"


def short(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method so that its refusals have one frame of this package in their tracebacks, not all frames.

    Spark shows users the whole traceback before the message.
    """

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except (OptionsError, StockadeError) as refusal:
            raise refusal.with_traceback(None) from None

    return called
