"""The folder that a run leaves behind, so that it can be judged again, by us or by others."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from .campaign import Options, Outcome
from .checkers import Verdict
from .history import Event
from .judging import Extent, Judgement, judge_files
from .round import RoundOver
from .tables import write_history

HISTORY, LOGS, RUN, TABLE = "history.jsonl", "logs.parquet", "run.json", "history.parquet"
"""Names of the files; docs/chaos.md says what is in them."""


class Summary(msgspec.Struct, frozen=True):
    """``run.json``."""

    options: Options
    setups: Sequence[str]
    nodes: int
    seconds: float
    operations: int
    records: int
    counts: dict[str, int]
    """Operations that began (``invoke``) and how they ended."""
    rounds: Sequence[RoundOver]
    verdicts: Sequence[Verdict]
    replicas: Sequence[Extent]

    @classmethod
    def of(
        cls, options: Options, setups: Sequence[str], nodes: int, outcome: Outcome, counts: dict[str, int]
    ) -> "Summary":
        """Of a run that is over."""
        judged = outcome.judged
        return cls(
            options,
            setups,
            nodes,
            outcome.seconds,
            judged.operations,
            judged.records,
            counts,
            outcome.rounds,
            judged.verdicts,
            outcome.extents,
        )

    def write(self, folder: Path) -> None:
        """Beside the history, which is made a table here; that file must be closed."""
        text = msgspec.json.format(msgspec.json.encode(self), indent=1)
        (folder / RUN).write_bytes(text + b"\n")
        decoder = msgspec.json.Decoder(Event)
        with (folder / HISTORY).open("rb") as lines:
            write_history(folder / TABLE, map(decoder.decode, lines))


def judge_again(history: Path) -> Judgement:
    """Judge a history by the dumps that lie beside it. Raises ValueError, OSError."""
    summary = msgspec.json.decode((history.parent / RUN).read_bytes(), type=Summary)
    return judge_files(history, history.parent / LOGS, summary.replicas)
