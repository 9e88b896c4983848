"""The checker catches every known mistake: an engine that makes it does not survive its seeds."""

from unittest.mock import patch

import pytest
from simulation.checker import Violation
from simulation.member_mutants import MEMBER_MUTANTS
from simulation.mutants import FRAME_MUTANTS, MUTANTS, Mutant, never_wakes
from simulation.schedule import run_seed

SEEDS = 400
ACCIDENTS = {
    "acks_of_any_term": "late_acks",
    "acks_of_frames_of_any_term": "late_acks",
    "commits_what_is_not_verified": "stray_tail",
    "forgets_the_vote": "lost_ballots",
    "keeps_what_was_verified": "late_acks",
    "reads_without_a_round": "isolate_leader",
    "refusals_of_another_term_name_their_round": "late_refusals",
    "truncates_what_matches": "stray_tail",
}
"""What brings them out soon, for those that are caught late otherwise: within ten or twenty seeds on average."""


@pytest.mark.parametrize("mutant", [*MUTANTS, *MEMBER_MUTANTS], ids=lambda mutant: str(mutant.__name__))
def test_a_broken_engine_is_caught(mutant: Mutant) -> None:
    accident = ACCIDENTS.get(mutant.__name__)
    coalescing = (9,) if mutant in FRAME_MUTANTS else (0,)
    changes = 1.0 if mutant in (*MEMBER_MUTANTS, never_wakes) else 0.0
    with (
        patch.multiple("simulation.schedule", REAL=0.0, CHANGES=changes, COALESCING=coalescing),
        mutant(),
        pytest.raises(Violation) as found,
    ):
        for seed in range(SEEDS):
            run_seed(seed, accident)
    assert not isinstance(found.value.__cause__, TypeError), "the mutant itself is broken"
