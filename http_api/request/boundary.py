"""The same-origin check: only a node's own pages may read from the node, or change anything there, through a browser.

A page in a browser can reach each node that the browser reaches: on loopback, or behind a firewall. There are two
attacks. The page sends a form, or fetches without a preflight: the browser then names the page in Origin. Or the name
server of the page's domain later resolves the domain to 127.0.0.1 (DNS rebinding): the browser takes the node for the
page's own origin, and only Host shows the domain.

So a request with an Origin is refused unless that is the origin of the request itself, or one of ``hosts``. And where
every caller has every right, a Host is refused that a stranger's name server can answer for: a name with a dot in it
that is not this node's. Safe are addresses (the browser asks no name server), localhost and what ends in .localhost
(RFC 6761), and names without a dot (the public name servers have none). With principals or with TLS, Host is not
looked at: a page under another name has no credentials, and no certificate for its name.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from multidict import CIMultiDict, CIMultiDictProxy

from ...partition.errors import PermissionDenied
from ..codec.parameters import printable

HOSTS_REMEMBERED_MAX = 1024
"""Host headers whose verdict is cached."""

_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::(\d*))?")
_ORIGIN = re.compile(r"(https?)://([^/?#@\s]+)")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


class Boundary:
    """The hosts by which clients reach a node: ``host``, on any port, or ``host:port``."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = frozenset(map(_parts, hosts))
        self._names = frozenset(name for name, _ in self._hosts)
        self.is_safe: Callable[[str], bool] = lru_cache(HOSTS_REMEMBERED_MAX)(self._is_safe)
        """Whether a Host header has a name that cannot be the target of DNS rebinding (cached)."""

    def check(
        self,
        headers: CIMultiDict[str] | CIMultiDictProxy[str],
        *,
        is_open: bool,
        is_encrypted: Callable[[], bool],
    ) -> None:
        """Raises PermissionDenied for a request that a foreign page may have made a browser send. ``is_open``: every
        caller has every right; ``is_encrypted``: the client speaks TLS with this node.
        """
        hosts = headers.getall("Host", ())
        for host in hosts:
            if is_open and not self.is_safe(host) and not is_encrypted():
                raise PermissionDenied(reason="foreign_host", host=printable(host))
        for origin in headers.getall("Origin", ()):
            if not self._is_own(origin, hosts, is_encrypted=is_encrypted()):
                raise PermissionDenied(reason="foreign_page", origin=printable(origin))

    def _is_safe(self, host: str) -> bool:
        name, _ = _parts(host)
        labels = name.split(".")
        is_address = name.startswith("[") or labels[-1].isdigit()  # browsers take such a name for an address
        return len(labels) == 1 or is_address or labels[-1] == "localhost" or name in self._names

    def _is_own(self, origin: str, hosts: Iterable[str], *, is_encrypted: bool) -> bool:
        found = _ORIGIN.fullmatch(origin.lower())
        if found is None:  # "null", say: a page without an origin
            return False
        scheme, authority = found.groups()
        name, port = _parts(authority)
        port = port or _DEFAULT_PORTS[scheme]
        if (name, "") in self._hosts or (name, port) in self._hosts:
            return True
        # A proxy that terminates TLS passes on the Host of https pages. A TLS request never has an http:// origin.
        is_like_it = scheme == "https" or not is_encrypted
        return is_like_it and authority in (host.lower() for host in hosts)


def _parts(host: str) -> tuple[str, str]:
    """The name in a Host header, in lower case and without a final dot, and the port ("": none)."""
    found = _HOST.match(host.lower())
    assert found is not None, "the pattern matches the empty text"
    return found[1].removesuffix("."), found[2] or ""
