"""A checkpoint is also due when it would set much of the disk free: what a trimmed partition dropped must not stay."""

from pathlib import Path

from stockade.raft.keeper import Kept

from .filing import Filing


class Dropping(Filing):
    """A machine that drops a hundred bytes of files with every command."""

    reclaimable = 0

    def apply(self, index: int, term: int, command: bytes) -> object:
        self.reclaimable += 100
        return super().apply(index, term, command)


def test_what_a_checkpoint_would_set_free_counts_as_what_was_applied(tmp_path: Path) -> None:
    machine, asked = Dropping(), []
    machine.start(tmp_path)
    kept = Kept(machine, None, lambda: asked.append(machine.count), checkpoint_bytes=500)  # type: ignore[arg-type]
    for index in range(1, 6):
        kept.apply(index, 1, b"x")
        kept.flush()
    assert (asked, kept.is_due) == ([5], True)
    machine.reclaimable = 0
    assert not kept.is_due
