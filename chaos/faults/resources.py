"""Faults of resource limits of a process: memory, processor, open files, file size."""

import asyncio
import random
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..system import cgroups
from ..system.undo import is_gone
from .fault import Arena, Broken, NothingToBreak
from .targets import one, pid_of, running

MEMORY_BYTES = 1 << 20
"""Less than any node uses: the kernel refuses the next page."""
FILE_BYTES = 4096
"""Shorter than any file that a node appends to."""


class OutOfMemory:
    """The kernel's OOM killer kills a node at its next page."""

    name = "memory-oom"
    about = "the kernel kills a node when it next needs memory (cgroup)"

    def why_not(self, _: Arena) -> str | None:
        return cgroups.why_not("memory")

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        node = one(running(arena), chance)
        group = await asyncio.to_thread(_bounded, lambda: cgroups.memory(MEMORY_BYTES), pid_of(arena, node))

        async def heal() -> None:
            await asyncio.to_thread(group.close)
            arena.start(node)

        return Broken(f"{node} out of memory", heal, [node])


class SlowProcessor:
    """A node gets a small part of a processor."""

    name = "cpu-quota"
    about = "a node gets 2 to 20 % of a processor (cgroup)"

    def why_not(self, _: Arena) -> str | None:
        return cgroups.why_not("cpu")

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        node, share = one(running(arena), chance), chance.choice([0.02, 0.05, 0.2])
        group = await asyncio.to_thread(_bounded, lambda: cgroups.cpu(share), pid_of(arena, node))

        async def heal() -> None:
            await asyncio.to_thread(group.close)

        return Broken(f"{node} has {share:.0%} of a processor", heal)


class FewFiles:
    """A node may open no more files: neither connections nor segments."""

    name = "file-descriptors"
    about = "a node may open no more files or connections (prlimit --nofile)"

    def why_not(self, _: Arena) -> str | None:
        return None  # a process may limit its own children

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Set the limit to the lowest free number: the kernel gives a new file that one, and refuses it at the limit.
        Files that are open stay so, also those with higher numbers.
        """
        node = one(running(arena), chance)
        pid = pid_of(arena, node)
        try:
            most = _lowest_free(pid)
        except FileNotFoundError:
            raise NothingToBreak(f"{node} has just ended") from None
        return _limited(arena, node, resource.RLIMIT_NOFILE, most, f"{node} can open no more files")


class FileTooLarge:
    """Every write beyond the first 4 KiB of a file fails with EFBIG, as on a file system that takes no longer files."""

    name = "file-limit"
    about = "a node's writes beyond the first 4 KiB of a file fail (ulimit -f)"

    def why_not(self, _: Arena) -> str | None:
        return None

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        node = one(running(arena), chance)
        return _limited(arena, node, resource.RLIMIT_FSIZE, FILE_BYTES, f"{node} cannot append to files")


def _lowest_free(pid: int) -> int:
    """The lowest descriptor that the process does not use. Raises FileNotFoundError if it has ended."""
    used = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in range(len(used) + 1) if number not in used)


def _limited(arena: Arena, node: str, kind: int, most: int, what: str) -> Broken:
    """Lower the soft limit. Healing raises it to the hard one, as nodes do when they start: the strike may have found
    the limit of another one, which is healed by then.
    """
    pid = pid_of(arena, node)
    try:
        _, hard = resource.prlimit(pid, kind)
        resource.prlimit(pid, kind, (most, hard))
    except ProcessLookupError:
        raise NothingToBreak(f"{node} has just ended") from None

    async def heal() -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, kind, (hard, hard))
        arena.start(node)

    return Broken(what, heal, [node])


def _bounded(make: Callable[[], cgroups.Cgroup], pid: int) -> cgroups.Cgroup:
    group = make()
    try:
        group.add([pid])
    except (cgroups.CgroupFailed, FileNotFoundError) as error:
        group.close()
        if not is_gone(pid):
            raise
        raise NothingToBreak(str(error)) from error
    return group


RESOURCE_FAULTS = (OutOfMemory(), SlowProcessor(), FewFiles(), FileTooLarge())
