"""The configurations in a log, oldest first. Pure."""

from .configuration import Configuration


class Configurations:
    """The one that the log builds upon, and those in its entries; a configuration counts from its index on."""

    def __init__(self, index: int, configuration: Configuration) -> None:
        self._known = [(index, configuration)]

    @property
    def latest(self) -> tuple[int, Configuration]:
        """Index and configuration that is in force, committed or not."""
        return self._known[-1]

    def at(self, index: int) -> Configuration:
        """The one in force at ``index``, which is not before the first."""
        return next(known for begins, known in reversed(self._known) if begins <= index)

    def since(self, index: int) -> list[Configuration]:
        """The one in force at ``index``, which is not before the first, and all that follow."""
        return [self.at(index), *(known for begins, known in self._known if begins > index)]

    def add(self, index: int, payload: bytes) -> None:
        """The entry at ``index`` holds one."""
        self._known.append((index, Configuration.of_entry(payload)))

    def cut(self, from_index: int) -> None:
        """The entries from ``from_index`` on are gone; the first configuration is before them."""
        while self._known[-1][0] >= from_index:
            self._known.pop()

    def begin_at(self, index: int, configuration: Configuration) -> None:
        """What came before ``index`` counts no more."""
        self._known = [(index, configuration), *[each for each in self._known if each[0] > index]]
