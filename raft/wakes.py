"""Who waits for the disk. Pure."""

from collections.abc import Callable

Wake = Callable[[], None]


class Wakes:
    """Those who want to be called when what they have appended is on disk, and not for each sync before it."""

    def __init__(self) -> None:
        self._waiting: dict[Wake, int] = {}

    def add(self, wake: Wake, lsn: int) -> None:
        """Call once, when the records up to ``lsn``, the last one that there is, are on disk.

        Whoever waits already is called for what it had appended then.
        """
        self._waiting.setdefault(wake, lsn)

    def call(self, durable_lsn: int) -> None:
        """The records up to this one are on disk. Whoever is called may wait again."""
        due = [wake for wake, lsn in self._waiting.items() if lsn <= durable_lsn]
        for wake in due:
            del self._waiting[wake]
        for wake in due:
            wake()
