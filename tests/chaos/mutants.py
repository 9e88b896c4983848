"""Every defect is caught by the checker meant for it, and the healthy server passes the same run: `make chaos-mutants`.

Takes minutes; those of which ``test_mutants.py`` has the quick ones.
"""

from pathlib import Path

import pytest

from .broken_node import DEFECTS
from .mutating import MUTANTS, Mutant, run


@pytest.fixture(params=MUTANTS)
def mutant(request: pytest.FixtureRequest) -> Mutant:
    found = MUTANTS[request.param]
    if found.why_not is not None:
        pytest.skip(found.why_not)
    return found


def test_every_defect_has_a_run_that_brings_it_out() -> None:
    assert set(MUTANTS) == set(DEFECTS)


@pytest.mark.timeout(600)
def test_a_broken_server_is_caught_by_the_checker_meant_for_it(mutant: Mutant, tmp_path: Path) -> None:
    verdict = run(mutant, tmp_path / "broken", is_broken=True)
    assert verdict.code == 1 and set(mutant.checkers) <= set(verdict.violations), verdict


@pytest.mark.timeout(600)
def test_the_healthy_server_passes_the_same_run(mutant: Mutant, tmp_path: Path) -> None:
    verdict = run(mutant, tmp_path / "healthy", is_broken=False)
    assert verdict.code == 0 and verdict.operations and verdict.violations == {}, verdict
