"""Certificates and keys of issuers that a running node takes from their files again, when one changes and on SIGHUP;
and principals, which it takes from its configuration on SIGHUP alone: a file that people edit is not read half-way.

Open connections go on. Files that cannot be used are refused with a line in the log, and those before them stay.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from ...cluster.access.issuers import KeysFault
from ...cluster.access.principals import Access
from ...cluster.condition import aligned_s
from ...cluster.config import ConfigError, NodeConfig
from ...raft.net.tls import TlsFault

RELOAD_CHECK_S = 2.0
"""Between two looks whether a file of a certificate has changed."""

_log = logging.getLogger("stockade")


class Reloadable(Protocol):
    """Something made of files."""

    def has_changed(self) -> bool:
        """Whether a file is another than at the last ``reload``."""
        ...

    def reload(self) -> None:
        """Read the files again. Raises TlsFault, KeysFault or ConfigError, and changes nothing then."""
        ...


class Principals:
    """[[principals]] and [[tokens]] of the configuration; ``read`` reads all of it again."""

    def __init__(self, access: Access, read: Callable[[], NodeConfig]) -> None:
        self._access = access
        self._read = read

    def has_changed(self) -> bool:
        """As Reloadable wants it: a signal says when."""
        return False

    def reload(self) -> None:
        """As Reloadable wants it. What else has changed in the configuration takes a restart."""
        config = self._read()
        try:
            self._access.configure(config.tokens, config.principals)
        except ValueError as fault:
            raise ConfigError([f"principals: {fault}"]) from fault


class Reloader:
    """Watches the files of a node's certificates and keys, by the name of the section that names them, and runs what
    asks elsewhere for such (``following``).
    """

    def __init__(
        self, sections: Mapping[str, Reloadable], following: Sequence[Callable[[], Awaitable[None]]] = ()
    ) -> None:
        self._sections = dict(sections)
        self._following = following

    def reload(self) -> None:
        """Read the files of all sections."""
        for name in self._sections:
            self._reload(name)

    async def watch(self) -> None:
        """Read the files of a section when one of them changes, until cancelled."""
        await asyncio.gather(self._watch_files(), *(follow() for follow in self._following))

    async def _watch_files(self) -> None:
        while self._sections:
            await asyncio.sleep(aligned_s(RELOAD_CHECK_S))
            self.look()

    def look(self) -> None:
        """Read the files of the sections of which one has changed."""
        for name, section in self._sections.items():
            if section.has_changed():
                self._reload(name)

    def _reload(self, name: str) -> None:
        try:
            self._sections[name].reload()
        except (ConfigError, KeysFault, TlsFault) as fault:
            _log.error("[%s]: the new files are refused, and those before stay in use: %s", name, fault)
        else:
            _log.info("[%s]: new connections and requests use the files as they are now", name)
