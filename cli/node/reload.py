"""Certificates that a running node takes from their files again: when a file changes, and on SIGHUP.

Open connections go on. Files that cannot be used are refused with a line in the log, and those before them stay.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

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
        """Read the files again. Raises TlsFault, and changes nothing then."""
        ...


class Reloader:
    """Watches the files of a node's certificates, by the name of the section that names them."""

    def __init__(self, sections: Mapping[str, Reloadable]) -> None:
        self._sections = dict(sections)

    def reload(self) -> None:
        """Read the files of all sections."""
        if not self._sections:
            _log.info("SIGHUP: the configuration names no certificates, so there is nothing to read again")
        for name in self._sections:
            self._reload(name)

    async def watch(self) -> None:
        """Read the files of a section when one of them changes, until cancelled."""
        while self._sections:
            await asyncio.sleep(RELOAD_CHECK_S)
            self.look()

    def look(self) -> None:
        """Read the files of the sections of which one has changed."""
        for name, section in self._sections.items():
            if section.has_changed():
                self._reload(name)

    def _reload(self, name: str) -> None:
        try:
            self._sections[name].reload()
        except TlsFault as fault:
            _log.error("[%s]: the new files are refused, and those before stay in use: %s", name, fault)
        else:
            _log.info("[%s]: new connections use the files as they are now", name)
