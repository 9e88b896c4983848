"""The checker catches every known mistake: an engine that makes it does not survive its seeds, and ends by what the
mistake breaks.
"""

import re
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
COPIES = "entry [0-9]+ was committed with [0-9]+ copies"
EARLY_ACK = "acked [0-9]+ before it was on disk"
IN_NO_ROUND = "round [0-9]+ was answered and not begun"
OTHER_ENTRY = "committed entry [0-9]+ is another one"
STALE_READ = "a read misses an acked entry"
LEADERLESS = "after healing, not _is_led"
RESTLESS = "after healing, not _is_quiet"
VIOLATIONS = {
    "acks_an_offer": EARLY_ACK,
    "acks_before_the_disk": EARLY_ACK,
    "acks_many_before_the_disk": EARLY_ACK,
    "acks_of_any_term": IN_NO_ROUND,
    "acks_of_frames_of_any_term": IN_NO_ROUND,
    "answers_in_another_order": "wrong result",
    "answers_the_wrong_proposal": "is not where acked",
    "applies_the_first_alone": "[0-9]+ applied as another one",
    "changes_before_its_own_term": "changes the members before it has committed anything",
    "changes_twice_at_once": "changes the members while entry [0-9]+ does is not committed",
    "commits_old_terms": "committed up to an entry of an older term",
    "commits_what_is_not_verified": OTHER_ENTRY,
    "counts_a_leader_that_left": COPIES,
    "counts_a_wiped_disk": COPIES,
    "counts_learners": COPIES,
    "forgets_configurations": "leads term [0-9]+ without the votes of a majority",
    "forgets_the_vote": "voted twice in term",
    "gives_up_when_it_left": LEADERLESS,
    "ignores_offers": RESTLESS,
    "in_force_on_commit_only": COPIES,
    "keeps_a_stray_tail": "contradicts the committed entry",
    "keeps_what_was_verified": "the leader contradicts entry",
    "leader_counts_its_memory": COPIES,
    "minority_commits": COPIES,
    "never_wakes": LEADERLESS,
    "offers_commit": OTHER_ENTRY,
    "promotes_at_once": "promotes n[0-9], which has not caught up",
    "reads_before_its_own_term": STALE_READ,
    "reads_without_a_round": STALE_READ,
    "refusals_of_another_term_name_their_round": IN_NO_ROUND,
    "rejects_what_it_appended": "was rejected, and committed at",
    "quiesces_too_early": "n[0-9] is quiescent, and n[0-9] lacks",
    "sends_what_the_peer_does_not_speak": "does not know a Commit",
    "spares_every_full_disk": "not within [0-9.]+ s|commits nothing after healing",
    "success_rewinds": "next_index of n[0-9] went back",
    "takes_back_no_wiped_voter": RESTLESS,
    "takes_silence_for_an_ack": COPIES,
    "truncates_in_memory_only": "a hole in the log",
    "truncates_no_configuration": RESTLESS,
    "truncates_what_matches": COPIES,
    "votes_before_the_disk": "RequestVote before its term [0-9]+ was on disk",
    "votes_for_shorter_logs": "leader n[0-9] lacks committed entry",
    "votes_twice": "voted twice in term",
}
"""What each mutant breaks. A seed that ends by another violation does not count: it may show another mistake."""


@pytest.mark.parametrize("mutant", [*MUTANTS, *MEMBER_MUTANTS], ids=lambda mutant: str(mutant.__name__))
def test_each_mutant_of_the_engine_violates_the_invariant_that_it_breaks(mutant: Mutant) -> None:
    accident, shown = ACCIDENTS.get(mutant.__name__), VIOLATIONS[mutant.__name__]
    coalescing = (9,) if mutant in FRAME_MUTANTS else (0,)
    changes = 1.0 if mutant in (*MEMBER_MUTANTS, never_wakes) else 0.0
    found = []
    with patch.multiple("simulation.schedule", REAL=0.0, CHANGES=changes, COALESCING=coalescing), mutant():
        for seed in range(SEEDS):
            try:
                run_seed(seed, accident)
            except Violation as violation:
                assert not isinstance(violation.__cause__, TypeError), "the mutant itself is broken"
                found.append(str(violation))
                if re.search(shown, found[-1]):
                    return
    pytest.fail(f"{len(found)} other violations, the first: {found[:1]}")
