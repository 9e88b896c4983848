"""What a run says at its end about faults that did not strike, and about rounds that could not be carried out."""

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest

from stockade.chaos.harness import campaign
from stockade.chaos.harness.campaign import Options, Outcome, Status, run
from stockade.chaos.harness.round import RoundOver
from stockade.chaos.harness.schedule import Planned
from stockade.chaos.history.history import History
from stockade.chaos.system.waiting import NotInTime


class StrikesAsPlanned:
    """A round in which every planned fault strikes."""

    def __init__(self, seed: int, *_: object) -> None:
        self._seed = seed
        self.broken = list

    async def run(self, plan: list[Planned], *_: object) -> tuple[RoundOver, dict[Any, Any]]:
        return RoundOver(self._seed, len(plan), 0.0, [], struck=[planned.fault for planned in plan]), {}


@pytest.mark.parametrize(("seconds", "is_told"), [(5.0, True), (60.0, False)])
def test_a_fault_that_a_workload_brings_and_no_round_has_time_for_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, is_told: bool
) -> None:
    """Such a workload tests nothing. Kept apart, the first strike is later than a round of 5 s ends."""
    monkeypatch.setattr(campaign, "Round", StrikesAsPlanned)
    options = Options(["rolling-restart"], [], 1, seconds, seconds, ["rolling-restart"], apart_s=8.0)
    there: Any = object()

    async def carried_out() -> Outcome:
        with History(io.BytesIO()) as history:
            return await run(options, there, history, Status(history, 1), tmp_path)

    told = "rolling-restart never struck: the rounds, of 5 s, have no time for it"
    assert asyncio.run(carried_out()).never_struck == [told] * is_told


def test_a_round_that_could_not_be_carried_out_did_not_recover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NeverStarts(StrikesAsPlanned):
        async def run(self, *_: object) -> Any:
            raise NotInTime("not every partition has taken a write within 120 s")

    monkeypatch.setattr(campaign, "Round", NeverStarts)
    there: Any = object()

    async def carried_out() -> Outcome:
        with History(io.BytesIO()) as history:
            return await run(Options(["append"], [], 1, 5.0), there, history, Status(history, 1), tmp_path)

    [over] = asyncio.run(carried_out()).rounds
    assert (len(over.failures), over.recovered_s) == (1, None)
