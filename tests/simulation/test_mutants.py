"""The checker catches every known mistake: an engine that makes it does not survive its seeds."""

import pytest
from simulation.checker import Violation
from simulation.mutants import MUTANTS, Mutant, acks_of_any_term
from simulation.schedule import run_seed

SEEDS = 400
FIRST_SEED = {
    "commits_what_is_not_verified": 202,
    "keeps_what_was_verified": 64,
    "refusals_of_another_term_name_their_round": 300525,
    "truncates_what_matches": 22,
}
"""Where to begin, for those that are caught late otherwise."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.__name__))
def test_a_broken_engine_is_caught(mutant: Mutant) -> None:
    accident = "late_acks" if mutant is acks_of_any_term else None
    first = FIRST_SEED.get(mutant.__name__, 0)
    with mutant(), pytest.raises(Violation):
        for seed in range(first, first + SEEDS):
            run_seed(seed, accident)
