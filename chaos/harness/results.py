"""The folder of results of a run, from which it can be judged again, here or by other tools."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..checkers.verdicts import Verdict
from ..history.history import Event
from ..history.tables import write_history
from .campaign import Options, Outcome
from .judging import Extent, Judgement, judge_files
from .round import RoundOver

HISTORY, LOGS, RUN, TABLE = "history.jsonl", "logs.parquet", "run.json", "history.parquet"
"""Names of the files; docs/chaos.md describes their content."""


class Summary(msgspec.Struct, frozen=True):
    """The content of ``run.json``: the options of a run, its rounds, and its verdicts."""

    options: Options
    setups: Sequence[str]
    nodes: int
    seconds: float
    operations: int
    records: int
    counts: dict[str, int]
    """Number of operations that began (``invoke``), and that ended in each way."""
    rounds: Sequence[RoundOver]
    verdicts: Sequence[Verdict]
    replicas: Sequence[Extent]

    @classmethod
    def of(
        cls, options: Options, setups: Sequence[str], nodes: int, outcome: Outcome, counts: dict[str, int]
    ) -> "Summary":
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
        """Write ``run.json``, and the history as Parquet; the history's own file must be closed."""
        text = msgspec.json.format(msgspec.json.encode(self), indent=1)
        (folder / RUN).write_bytes(text + b"\n")
        decoder = msgspec.json.Decoder(Event)
        with (folder / HISTORY).open("rb") as lines:
            write_history(folder / TABLE, map(decoder.decode, lines))


def judge_again(history: Path) -> Judgement:
    """Judge a history again, with the files in its folder. Raises ValueError, OSError."""
    summary = msgspec.json.decode((history.parent / RUN).read_bytes(), type=Summary)
    return judge_files(history, history.parent / LOGS, summary.replicas)
