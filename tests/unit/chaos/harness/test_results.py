"""The folder of a run can be read again, however the run ended."""

from pathlib import Path

import msgspec
import pytest

from stockade.chaos.harness.campaign import Options, Outcome
from stockade.chaos.harness.judging import Judgement
from stockade.chaos.harness.results import HISTORY, RUN, Summary
from stockade.chaos.harness.round import RoundOver


@pytest.mark.parametrize("recovered_s", [0.5, None])
def test_the_summary_of_a_run_is_read_again_also_when_no_node_came_back(
    tmp_path: Path, recovered_s: float | None
) -> None:
    """As all that judges a run again does, and the soak."""
    over = RoundOver(1, 1, recovered_s, ["kill-all: it failed"], ["n1", "n2"], ["kill-all"], {"kill-one": "no node"})
    options = Options(["append"], ["kill-all"], 1, 5.0)
    summary = Summary.of(options, ["processes"], 2, Outcome(Judgement(), [over], [], 1.0), {})
    (tmp_path / HISTORY).touch()
    summary.write(tmp_path)
    assert msgspec.json.decode((tmp_path / RUN).read_bytes(), type=Summary).rounds == [over]
