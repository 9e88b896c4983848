"""A running node reads files again: certificates, and keys of issuers, when a file changes and on SIGHUP; principals of
its configuration on SIGHUP alone, because a file that is being edited must not be read half-way.

Open connections go on. Files that cannot be used are refused with a line in the log; the node goes on with what it had
read before.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from ...cluster.access.issuers import KeysFault
from ...cluster.access.principals import Access
from ...cluster.condition import aligned_s
from ...cluster.config import ConfigError, NodeConfig
from ...raft.net.tls import TlsFault

RELOAD_CHECK_S = 2.0
"""Seconds between two checks whether a file has changed."""
REFUSED_CHECK_S = 30.0
"""Seconds after which refused files of a certificate are read again as they are: it was not valid yet, say."""

_log = logging.getLogger("stockade")


class Reloadable(Protocol):
    """State of a node that is read from files."""

    def has_changed(self) -> bool:
        """Whether a file has changed since the last ``reload``."""
        ...

    def reload(self) -> None:
        """Read the files again. Raises TlsFault, KeysFault or ConfigError; then the state is as before."""
        ...


class _Refused(NamedTuple):
    """Why the files of a section were refused when they were read last, at ``at_s`` of the monotonic clock."""

    why: str
    at_s: float


class Principals:
    """The [[principals]] and [[tokens]] of a node's configuration. ``read`` reads the configuration again, without the
    files that it names: a certificate that has expired must not keep a token in force that was taken out.
    """

    def __init__(self, access: Access, read: Callable[[], NodeConfig]) -> None:
        self._access = access
        self._read = read

    def has_changed(self) -> bool:
        """Always False: only SIGHUP reloads principals."""
        return False

    def reload(self) -> None:
        """Put the principals and tokens of the configuration into force; its other changes need a restart."""
        config = self._read()
        try:
            self._access.configure(config.tokens, config.principals)
        except ValueError as fault:
            raise ConfigError([f"principals: {fault}"]) from fault


class Reloader:
    """Watches a node's reloadable files, each under the name of its section of the configuration, and runs
    ``following``: the loops that ask issuers for their keys.
    """

    def __init__(
        self, sections: Mapping[str, Reloadable], following: Sequence[Callable[[], Awaitable[None]]] = ()
    ) -> None:
        self._sections = dict(sections)
        self._following = following
        self._refused: dict[str, _Refused] = {}

    def reload(self) -> None:
        """Read the files of all sections."""
        for name in self._sections:
            self._reload(name)

    async def watch(self) -> None:
        """Reload each section when one of its files changes, and run ``following``, until cancelled."""
        await asyncio.gather(self._watch_files(), *(follow() for follow in self._following))

    async def _watch_files(self) -> None:
        while self._sections:
            await asyncio.sleep(aligned_s(RELOAD_CHECK_S))
            self.look()

    def look(self) -> None:
        """Reload the sections that have a changed file, or certificates that were refused REFUSED_CHECK_S ago."""
        for name, section in self._sections.items():
            refused = self._refused.get(name)
            if section.has_changed():
                self._reload(name)
            elif refused is not None and monotonic() >= refused.at_s + REFUSED_CHECK_S:
                self._reload(name, refused.why)

    def _reload(self, name: str, told: str | None = None) -> None:
        """Reload a section. ``told``: the fault of the same files that the log has."""
        self._refused.pop(name, None)
        try:
            self._sections[name].reload()
        except (ConfigError, KeysFault, TlsFault) as fault:
            if str(fault) != told:
                _log.error("[%s]: the new files are refused, and those before stay in use: %s", name, fault)
            if isinstance(fault, TlsFault):
                self._refused[name] = _Refused(str(fault), monotonic())
        else:
            _log.info("[%s]: new connections and requests use the files as they are now", name)
