"""What keeps a node that has just started from serving."""

import msgspec

from .book import Book
from .founding import Founding
from .registrar import Registrar


class Starting(msgspec.Struct, frozen=True):
    """The steps of a start."""

    founding: Founding
    registrar: Registrar

    def missing(self, book: Book) -> str | None:
        """What is missing; None: nothing."""
        if book.is_removed:
            return "this node was removed from the cluster"
        return self.founding.status() or (None if self.registrar.is_done else "not registered with the controller yet")
