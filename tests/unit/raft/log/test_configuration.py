"""Changes of configurations: each adds or removes one voter at most, or is refused with a reason."""

import pytest

from stockade.raft.log.configuration import (
    CONFIGURATION,
    MEMBERS_MAX,
    AddLearner,
    Change,
    Configuration,
    Demote,
    InvalidChange,
    Promote,
    RemoveMember,
    apply_change,
    founding_configuration,
)

THREE = founding_configuration({"a": 1, "b": 2, "c": 3})
WITH_LEARNER = Configuration({"a": 1, "b": 2}, {"c": 3})


def test_an_entry_holds_the_whole_configuration() -> None:
    assert WITH_LEARNER.entry()[:1] == CONFIGURATION
    assert Configuration.of_entry(WITH_LEARNER.entry()) == WITH_LEARNER


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (THREE, AddLearner("d", 4), Configuration(THREE.voters, {"d": 4})),
        (WITH_LEARNER, AddLearner("c", 9), Configuration({"a": 1, "b": 2}, {"c": 9})),
        (WITH_LEARNER, Promote("c"), THREE),
        (THREE, Demote("c", 9), Configuration({"a": 1, "b": 2}, {"c": 9})),
        (THREE, RemoveMember("c"), Configuration({"a": 1, "b": 2})),
        (WITH_LEARNER, RemoveMember("c"), Configuration({"a": 1, "b": 2})),
    ],
)
def test_a_change_is_one_step(before: Configuration, change: Change, after: Configuration) -> None:
    assert apply_change(before, change) == after
    assert len(before.voters.items() ^ after.voters.items()) <= 1


@pytest.mark.parametrize(
    ("before", "change", "reason"),
    [
        (THREE, AddLearner("a", 1), "a is a voter already"),
        (WITH_LEARNER, AddLearner("c", 3), "c is a learner already"),
        (THREE, Promote("a"), "a is no learner"),
        (THREE, Demote("c", 3), "c is no voter with another disk"),
        (WITH_LEARNER, Demote("c", 9), "c is no voter"),
        (founding_configuration({"a": 1}), Demote("a", 2), "a is the only voter"),
        (founding_configuration({"a": 1}), RemoveMember("a"), "a is the only voter"),
        (THREE, RemoveMember("d"), "d is no member"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(before: Configuration, change: Change, reason: str) -> None:
    with pytest.raises(InvalidChange, match=reason):
        apply_change(before, change)


@pytest.mark.parametrize(("members", "fits"), [(MEMBERS_MAX - 1, True), (MEMBERS_MAX, False)])
def test_a_group_has_a_largest_size(members: int, fits: bool) -> None:
    before = founding_configuration({f"n{number}": number for number in range(members)})
    if fits:
        assert len(apply_change(before, AddLearner("new", 1)).members) == MEMBERS_MAX
    else:
        with pytest.raises(InvalidChange, match="64 members"):
            apply_change(before, AddLearner("new", 1))
