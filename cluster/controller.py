"""The controller group's machine: applies commands to catalog, sessions, ownership, groups and registry.

Every replica applies the same commands and so reaches the same state (SEMANTICS 8): time is what commands
carry, ids come from the log index. The parts raise refusals, always before they change anything, and apply
returns them. The questions are for the leader's shell, after a read barrier; nothing here knows who leads.
"""

from collections.abc import Sequence

from ..partition.errors import StockadeError
from ..partition.image import FileExtent, Image, ImageDamaged
from .commands import Result, TopicCreated, TopicDeleted, decode_command
from .decisions import Decisions
from .membership_commands import Arranged
from .questions import Questions
from .state import decode, encode
from .topic_commands import TopicChanged


class ControllerMachine(Questions):
    """Implements raft.machine.CheckpointedMachine; apply answers commands.Result or the StockadeError instance."""

    def __init__(self) -> None:
        super().__init__()
        self._decisions = Decisions(self)

    def apply(self, index: int, term: int, command: bytes) -> Result | StockadeError:
        """Let time pass up to the command, then decide it; last, give what came free to those who wait."""
        decoded = decode_command(command)
        self.applied_index = index
        self._decisions.advance_clock(term, decoded.now_ms)
        try:
            result = self._decisions.decide(index, decoded)
        except StockadeError as refusal:
            return refusal.with_traceback(None)
        self.ownership.promote()
        if isinstance(result, TopicCreated | TopicChanged | TopicDeleted | Arranged):
            self.catalog_index = index
        return result

    def start(self, directory: object) -> None:
        """Begin with no state; this machine keeps no files."""
        self.begin()

    def capture(self) -> Image:
        """The whole state as bytes: equal on every replica that has applied the same commands."""
        return Image(encode(self.save()))

    def restore(self, directory: object, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Be what was captured. Raises ImageDamaged, and changes nothing then."""
        self.inspect(directory, captured, files)
        self.load(decode(captured))

    def inspect(self, directory: object, captured: bytes, files: Sequence[FileExtent]) -> None:
        """Raises ImageDamaged unless these bytes can be restored."""
        if files:
            raise ImageDamaged("the controller keeps no files")
        decode(captured)
