"""The folders of deleted topics that still have to be removed from the store: a note on this disk for each folder.

Every node that held a replica of the partition notes its folder before it forgets the replica, and removes its content.
Uploads and removals of a node run one after the other in one thread, so the removal comes after the node's last upload
to that folder: none of its own is left behind.
"""

import asyncio
import hashlib
import logging
from functools import partial
from pathlib import Path

from ...partition.log.fsutil import erase_durably, make_directory, names_in, write_durably
from .store import EXPECTED, FOLDER, TieredStore

PERIOD_S = 30.0
"""Between two tries."""
FOLDERS_A_ROUND = 100
FAILURES_A_ROUND = 3
_NOTES = "deleted"

_log = logging.getLogger(__name__)


class Debts:
    """The notes of folders to be removed, and the task that removes these. ``store`` None: the notes stay until this
    node has a store.
    """

    def __init__(self, data: Path, store: TieredStore | None) -> None:
        self._notes = data / FOLDER / _NOTES
        self._store = store
        self._failed: set[str] = set()  # notes of folders that could not be removed
        self._is_due = asyncio.Event()
        self._is_due.set()  # there may be notes of an earlier run

    async def owe(self, folder: str) -> None:
        """Note a folder, durably."""
        path = self._notes / hashlib.blake2b(folder.encode(), digest_size=16).hexdigest()
        await asyncio.to_thread(write_durably, path, folder.encode())
        self._is_due.set()

    async def run(self) -> None:
        """Remove the noted folders. Runs until cancelled; does nothing without a store."""
        while self._store is not None:
            await self._is_due.wait()
            self._is_due.clear()
            if await self.settle(self._store):
                asyncio.get_running_loop().call_later(PERIOD_S, self._is_due.set)

    async def settle(self, store: TieredStore) -> bool:
        """Try once to remove the folders; returns whether notes are left. Folders that failed before come last, so they
        hold up no other; a round ends after FAILURES_A_ROUND, since then the store itself may be away.
        """
        names = await asyncio.to_thread(self._names)
        self._failed.intersection_update(names)
        failures = 0
        for name in sorted(names, key=self._failed.__contains__)[:FOLDERS_A_ROUND]:
            path, folder = self._notes / name, name
            try:
                folder = (await asyncio.to_thread(path.read_bytes)).decode()
                work = partial(store.remove_all, folder, set[str]())
                while not await store.run(work):
                    pass
                await asyncio.to_thread(erase_durably, path)
            except (*EXPECTED, TimeoutError) as error:
                _log.warning("%s of a deleted topic stays in %s for now: %s", folder, store.name, error)
                self._failed.add(name)
                failures += 1
                if failures == FAILURES_A_ROUND or isinstance(error, TimeoutError):
                    break
            else:
                _log.info("removed %s of a deleted topic from %s", folder, store.name)
        return bool(await asyncio.to_thread(self._names))

    def _names(self) -> list[str]:
        make_directory(self._notes)
        return sorted(name for name in names_in(self._notes) if "." not in name)
