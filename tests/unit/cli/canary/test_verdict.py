"""What a round is: a proof, a violation, or neither."""

from typing import Any

import pytest
from msgspec.structs import replace

from stockade.cli.canary.figures import Figures
from stockade.cli.canary.verdict import Late, Round, Verdict, judge

REFUSED: dict[str, Any] = {"current_epoch": 8, "holder": {"grant": "g-1-8"}, "outcome": {"state": "absent"}}
FENCED = Late("PRODUCER_FENCED", None, REFUSED)
OWN = {"first": 10, "taken": 11, "closing": 12}
PROOF = Round(0, "g-1-8", 8, 0.01, FENCED, 10, 12, [10, 11, 12], OWN, [])


def refused(**fields: Any) -> Late:
    return Late("PRODUCER_FENCED", None, REFUSED | fields)


def test_a_late_write_that_was_refused_with_a_certificate_and_is_not_in_the_log_is_a_proof() -> None:
    assert judge(PROOF).judged == "proof"


@pytest.mark.parametrize(
    "seen",
    [
        replace(PROOF, zombies=[13]),
        replace(PROOF, zombies=[3]),
        replace(PROOF, zombies=[13], late=Late("REQUEST_TIMED_OUT", is_known=False)),
        replace(PROOF, late=Late(None, 12)),
        replace(PROOF, late=Late(None, None)),
        replace(PROOF, late=refused(outcome={"state": "committed"})),
    ],
)
def test_a_late_write_that_is_stored_or_said_to_be_is_a_violation(seen: Round) -> None:
    assert judge(seen).judged == "violation"


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (replace(PROOF, late=Late("REQUEST_TIMED_OUT", is_known=False)), "unknown outcome"),
        (replace(PROOF, late=replace(FENCED, is_known=False)), "unknown outcome"),
        (replace(PROOF, late=Late("INVALID_PRODUCER_EPOCH", None, REFUSED)), "another refusal"),
        (replace(PROOF, late=Late("LEADER_NOT_AVAILABLE")), "another refusal"),
        (replace(PROOF, late=refused(current_epoch=7)), "another holder"),
        (replace(PROOF, late=refused(current_epoch=9)), "another holder"),
        (replace(PROOF, late=refused(holder=None)), "another holder"),
        (replace(PROOF, late=refused(holder={"grant": "g-1-7"})), "another holder"),
        (replace(PROOF, late=refused(outcome={"state": "unknown"})), "no certificate"),
        (
            replace(PROOF, late=Late("PRODUCER_FENCED", None, {k: v for k, v in REFUSED.items() if k != "outcome"})),
            "no certificate",
        ),
        (replace(PROOF, offsets=[10, 12]), "not read"),
        (replace(PROOF, offsets=[10, 11]), "not read"),
        (replace(PROOF, own={"first": 10, "taken": 11}), "not read"),
        (replace(PROOF, own={"first": 10, "taken": 12, "closing": 11}), "not read"),
    ],
)
def test_a_round_that_lacks_something_is_neither(seen: Round, reason: str) -> None:
    verdict = judge(seen)
    assert (verdict.judged, verdict.reason) == ("unproven", reason)


def test_the_time_since_a_proof_ends_with_a_proof_alone() -> None:
    now = [100.0]
    figures = Figures(lambda: now[0])

    def value(name: str, **labels: str) -> float | None:
        return figures.registry.get_sample_value(name, labels)

    now[0] = 160.0
    figures.count(Verdict("unproven", "too slow", ""), None)
    figures.count(Verdict("violation", "violation", ""), 0.5)
    assert value("stockade_canary_seconds_since_proof") == 60.0
    figures.count(judge(PROOF), 0.02)
    now[0] = 165.0
    assert value("stockade_canary_seconds_since_proof") == 5.0
    assert value("stockade_canary_proofs_total") == value("stockade_canary_violations_total") == 1.0
    assert value("stockade_canary_unproven_total", reason="too slow") == 1.0
    assert value("stockade_canary_takeover_seconds_count") == 2.0
