"""Two broken servers are caught, in seconds; `make chaos-mutants` does it with all of them."""

from pathlib import Path

import pytest

from .mutating import MUTANTS, run


@pytest.mark.parametrize("defect", ["dedupe", "epoch-check"])
@pytest.mark.timeout(600)
def test_a_broken_server_is_caught_by_the_checker_meant_for_it(defect: str, tmp_path: Path) -> None:
    verdict = run(MUTANTS[defect], tmp_path / "broken", is_broken=True)
    assert verdict.code == 1 and set(MUTANTS[defect].checkers) <= set(verdict.violations), verdict
