"""toxiproxy-python, the library that talks to a toxiproxy server; a subclass mends three things of its version 0.1.1.

The library knows one server, whose address is a class attribute; it waits for an answer without a limit; and it takes
every status but 400, 404 and 409 for success, so a cut that the server failed to make would look like a cut that the
system under test survived. This module is imported late: it needs the extra ``chaos``.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from toxiproxy import Proxy, Toxiproxy
from toxiproxy import proxy as proxy_module
from toxiproxy import server as server_module
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

__all__ = ["Proxy", "Refused", "Toxiproxy", "calls_to"]

CALL_TIMEOUT_S = 5.0
"""The server must answer a call within this time."""
_swapping = threading.Lock()


class Refused(Exception):
    """The server did not do what it was told, or did not answer in time."""


class _Consumer(APIConsumer):  # type: ignore[misc]  # the library has no types
    """The library's requests with a time limit; every status but success raises Refused."""

    @classmethod
    def get(cls, url: str, params: Any = None, **options: Any) -> Any:
        return _checked(super().get(url, params, timeout=CALL_TIMEOUT_S, **options))

    @classmethod
    def post(cls, url: str, data: Any = None, json: Any = None, **options: Any) -> Any:
        return _checked(super().post(url, data, json, timeout=CALL_TIMEOUT_S, **options))

    @classmethod
    def delete(cls, url: str, **options: Any) -> Any:
        return _checked(super().delete(url, timeout=CALL_TIMEOUT_S, **options))


def _checked(answer: Any) -> Any:
    if not answer.ok:
        raise Refused(f"{answer.status_code} {answer.text}")
    return answer


@contextmanager
def calls_to(port: int) -> Iterator[None]:
    """While the context lasts, the library's calls go to the server on this port of the loopback address.

    One context at a time, in any thread: the library's modules find the class with the address by its name. Raises
    Refused for every failure of a call.
    """
    consumer = type("Consumer", (_Consumer,), {"port": port})
    with _swapping:
        proxy_module.APIConsumer = server_module.APIConsumer = consumer
        try:
            yield
        except (InvalidToxic, NotFound, ProxyExists, OSError) as error:  # what requests raises is an OSError
            raise Refused(_words(error)) from error
        finally:
            proxy_module.APIConsumer = server_module.APIConsumer = APIConsumer


def _words(error: Exception) -> str:
    """The message of an error; an error of the library holds the body of the answer, as bytes."""
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace").strip() if isinstance(said, bytes) else str(error)
