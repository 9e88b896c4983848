"""The sink is exact in every history of crashes, zombies, late requests and failovers; mistakes in it are not."""

import os
from collections import Counter

import pytest

from stockade.spark.sink import committer
from stockade.spark.sink.committer import SinkCommitter

from ..sink_history import History, Wrong
from ..sink_mutants import MUTANTS

SEEDS_PER_MUTANT = 1000
"""Most are found within ten."""
HISTORIES = 150 * int(os.environ.get("FUZZ_FACTOR", "1"))


def test_every_history_has_every_row_once_and_in_the_order_that_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "TRIM_EVERY", 4)
    happened: Counter[str] = Counter()
    for seed in range(HISTORIES):
        history = History(seed)
        try:
            history.play()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        happened += history.tallies
    assert min(happened[what] for what in ("RunRetired", "CheckpointWentBack", "decided by another")) > 0, happened


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_fuzz_finds_every_mutant_of_the_committer(mutant: type[SinkCommitter]) -> None:
    for seed in range(SEEDS_PER_MUTANT):
        try:
            History(seed, mutant).play()
        except Wrong:
            return
    raise AssertionError(f"{SEEDS_PER_MUTANT} histories do not tell {mutant.__name__} from the committer")
