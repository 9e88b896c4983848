"""Which URLs of places are accepted, and which part of one may be shown. Pure, and without the libraries that open a
place.
"""

import re
from urllib.parse import parse_qsl

_SECRETS = frozenset({"access_key", "secret_key", "session_token", "password", "account_key", "sas_token"})
_PASSWORD = re.compile(r"[^:/]+://[^/?#@\[]*:(?!\d+(?:[/?#]|$))[^@]*@")
"""A URL with a password. A password for S3 may contain a slash, so that it looks like a port with a path after it."""


def without_arguments(url: str) -> str:
    """A URL without its query, user name and password, so that it may be shown to others."""
    scheme, is_url, rest = url.partition("://")
    if not is_url:
        return url
    host, slash, path = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def place_fault(place: str) -> str | None:
    """Why a configured place is refused; None if it is not. The text does not quote the place, so it may be shown."""
    if not place:
        return "a folder, or a URL such as s3://BUCKET/PATH"
    named = {name.lower() for name, _ in parse_qsl(place.partition("?")[2], keep_blank_values=True)}
    if "://" in place and (_PASSWORD.match(place) or named & _SECRETS):
        return "no credentials in the URL: they belong where other tools of the store take them from"
    return None
