"""Reads and writes JSON. The only file of this folder that imports orjson.

Reading is stricter than any parser's default, and keeps numbers as they were written: a number with a point or an
exponent, or beyond 64 bits, stays text. No integer field accepts it, and ``value_json`` stores it unchanged.
"""

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import orjson
from msgspec import UNSET, UnsetType

from ...partition.errors import InvalidRequest, MessageTooLarge

NESTING_MAX = 64
"""Deepest nesting of arrays and objects in a JSON body."""

VALUES_MAX = 2_000_000
"""Most values in a JSON body, names not counted: each becomes an object of some 50 bytes or more."""

_UINT64_MAX = (1 << 64) - 1
_INT64_MIN = -(1 << 63)
_LONGEST_INTEGER = 20  # characters of both bounds

_struct_encoder = msgspec.json.Encoder()
_TO_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_STRUCTURE = bytes(set(range(256)) - set(b'[]{},"'))
_TEXT = re.compile(rb'"[^"]*"')
_SHOWN_MAX = 200  # characters of a text from outside
_PLACE = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
_CHARACTERS = re.compile(
    r"Expected `str` matching regex '\^(?P<dots>\(\?!\S+?\))?"
    r"\[A-Za-z0-9(?P<others>[^\]]*)\]\{(?P<least>\d+),(?P<most>\d+)\}\\+Z'"
)
"""msgspec's message for a name with the wrong characters or length. It is put into words, because users of programs
should not have to read regular expressions.
"""
_PLAIN = re.compile(r"Expected `str` matching regex '\^\[\^\\+x00-\S+'")
_DIGITS = re.compile(r"Expected `str` matching regex '\^\[0-9a-f\]\{(?P<count>\d+)\}\\+Z'")

_T = TypeVar("_T")


class NotJson(ValueError):
    """The text is not JSON, or not as strict as this API demands. The message says why, without a quote of the text."""


def parse(body: bytes) -> Any:
    """The value of a JSON text in UTF-8.

    Raises NotJson, also for NaN and infinities, a name that occurs twice in one object, half surrogates, and nesting
    deeper than NESTING_MAX; MessageTooLarge for more than VALUES_MAX values. A number that is no 64-bit integer comes
    back as an opaque value that only ``dump`` understands.
    """
    if body.count(b",") >= VALUES_MAX and _skeleton(body).count(b",") >= VALUES_MAX:
        raise MessageTooLarge(limit=VALUES_MAX, unit="values")
    if not is_nested_at_most(body, NESTING_MAX):
        raise NotJson(f"nested more than {NESTING_MAX} deep")
    try:
        if rb"\ud" in body.lower():
            orjson.loads(body)  # the reader below would take half surrogates, which have no UTF-8
        return _decoder.decode(body.decode())
    except UnicodeDecodeError:
        raise NotJson("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at character {error.pos}") from None


def read(body: bytes, shape: type[_T]) -> _T:
    """The JSON text decoded as ``shape``. Raises InvalidRequest, MessageTooLarge."""
    try:
        return msgspec.convert(parse(body), shape)
    except NotJson as error:
        raise InvalidRequest(f"body: {error}") from error
    except msgspec.ValidationError as error:
        place, problem = explain(error)
        raise InvalidRequest(f"{place or 'body'}: {problem}") from error


def explain(error: msgspec.ValidationError) -> tuple[str, str]:
    """The field that a ValidationError is about ("": the value itself), and what is wrong with it."""
    text = str(error)
    place = _PLACE.search(text)
    problem = _PLACE.sub("", text).replace("orjson.Fragment", "number that is no 64-bit integer")
    problem = _PLAIN.sub("must not have control characters", problem)
    problem = _DIGITS.sub(r"not \g<count> of the digits 0 to 9 and a to f", _CHARACTERS.sub(_in_words, problem))
    return (place.group(1)[:_SHOWN_MAX] if place else ""), problem[:_SHOWN_MAX]


def _in_words(pattern: re.Match[str]) -> str:
    least, most = pattern.group("least"), pattern.group("most")
    others = ", ".join(f"'{character}'" for character in pattern.group("others"))
    dots = " other than '.' and '..'" if pattern.group("dots") else ""
    return f"not {least} to {most} of letters, digits, {others}{dots}"


def or_none(value: _T | UnsetType) -> _T | None:
    """The value of an optional field; None when the field was absent."""
    return None if value is UNSET else value


def dump(value: Any) -> bytes:
    """Compact JSON in UTF-8: no spaces, members in their order. Structs become objects."""
    if isinstance(value, msgspec.Struct):
        return _struct_encoder.encode(value)
    return orjson.dumps(value, default=msgspec.to_builtins)


def dump_line(value: Any) -> bytes:
    """As ``dump``, followed by a line feed."""
    return orjson.dumps(value, default=msgspec.to_builtins, option=orjson.OPT_APPEND_NEWLINE)


def is_nested_at_most(body: bytes, depth: int) -> bool:
    """Whether the brackets outside strings nest at most ``depth`` deep. False also if they do not match and there are
    more than ``depth``.
    """
    if body.count(b"[") + body.count(b"{") <= depth:
        return True
    skeleton = _skeleton(body).replace(b",", b"")
    for _ in range(depth):
        skeleton = skeleton.replace(b"[]", b"")  # takes the innermost level away
    return not skeleton


def _skeleton(body: bytes) -> bytes:
    """The brackets and commas of a JSON text that are outside strings; braces are given as square brackets."""
    skeleton = body.replace(rb"\\", b"").replace(rb"\"", b"").translate(_TO_BRACKETS, _NO_STRUCTURE)
    return _TEXT.sub(b"", skeleton.replace(b'""', b""))  # most strings are empty by now


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise NotJson("a name occurs twice in one object")
    return found


def _integer(text: str) -> int | orjson.Fragment:
    if len(text) > _LONGEST_INTEGER:
        return orjson.Fragment(text)
    value = int(text)
    return value if _INT64_MIN <= value <= _UINT64_MAX else orjson.Fragment(text)


def _refuse(name: str) -> None:
    raise NotJson(f"{name} is not JSON")


_keep: Callable[[str], Any] = orjson.Fragment
_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_keep, parse_constant=_refuse)
