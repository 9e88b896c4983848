"""Topics that grow or change, and fences on purpose (SEMANTICS 7.4)."""

import pytest

from stockade.cluster.controller.commands import (
    DeleteTopic,
    FencedPartition,
    FenceRef,
    FenceTopic,
    GrantState,
    RaiseFeatureLevel,
    TicketState,
    TopicChanged,
    TopicDeleted,
    TopicFenced,
)
from stockade.cluster.controller.topology.catalog import group_id
from stockade.partition.api.ownership import grants_digest
from stockade.partition.errors import (
    InconsistentTopicId,
    InvalidFencingToken,
    InvalidRequest,
    PlanChanged,
    ProducerFenced,
    UnknownTopicOrPartition,
)

from ..driver import MODES, House, house


def test_a_grant_of_all_partitions_grows_and_an_ordinary_one_does_not() -> None:
    driver = house(partitions=1)
    grant = driver.granted("a", None)
    driver.settle()
    driver.change(partitions=3)
    grown = driver.grant(grant.grant_id)
    assert grown is not None
    assert (grown.partitions, grown.epochs, grown.pending) == ([0, 1, 2], [1, 1, 1], [1, 2])
    driver.settle()
    assert driver.may_write(grown, 2)
    assert not driver.may_write(None, 2)
    assert driver.acquire("a", None) == driver.grant(grant.grant_id), "the same again is the same grant"


def test_shared_grants_on_all_partitions_grow() -> None:
    driver = house(partitions=1)
    seat = driver.granted("a", None, "Shared")
    listed = driver.granted("b", [0], "Shared")
    driver.change(partitions=2)
    driver.settle()
    grown = driver.grant(seat.grant_id)
    assert grown is not None
    assert driver.may_write(grown, 1)
    assert driver.grant(listed.grant_id) is not None
    assert driver.machine.slots.grants.of_session("b")[0].partitions == [0]


def test_a_ticket_for_all_partitions_grows() -> None:
    driver = house(partitions=1, sessions="abc")
    driver.granted("a", [0])
    ticket = driver.waiting("b", None)
    driver.change(partitions=2)
    assert driver.waiting("c", [1]).position == 1, "the new partition is waited for too"
    driver.close("a")
    granted = driver.machine.ticket(ticket.ticket_id, "b")
    assert isinstance(granted, GrantState)
    assert granted.partitions == [0, 1]


def test_a_new_partition_is_free_when_no_grant_has_all() -> None:
    driver = house(partitions=1)
    driver.granted("a", [0])
    driver.change(partitions=2)
    assert driver.holders() == ["a", None]
    assert driver.granted("b", [1]).epoch == 1


def grown_after_a_grant(level: int) -> House:
    """A session had all partitions at epoch 1; after it had left them, a third one came."""
    driver = house(partitions=2)
    if level == 2:
        driver.do(RaiseFeatureLevel(now_ms=0, level=2, supporting=["n1", "n2", "n3"]))
    driver.granted("a", None)
    driver.close("a")
    driver.change(partitions=3)
    return driver


@pytest.mark.parametrize("mode", MODES)
def test_an_epoch_of_all_partitions_is_resumed_though_the_topic_has_grown_meanwhile(mode: str) -> None:
    driver = grown_after_a_grant(level=2)
    assert driver.acquire("b", None, mode, resume=2) == InvalidFencingToken(current_epoch=1)
    assert driver.acquire("b", None, mode, resume=0) == ProducerFenced(current_epoch=1, reason="superseded")
    assert driver.acquire("b", [0, 2], mode, resume=1) == InvalidFencingToken(current_epoch=0), "a set that is named"
    grant = driver.granted("b", None, mode, resume=1)
    assert (grant.epoch, grant.epochs) == ((None, [1, 1, 0]) if mode == "Shared" else (1, [1, 1, 1]))
    driver.settle()
    assert driver.may_write(grant, 2)
    assert driver.may_write(None, 2) == (mode == "Shared")


def test_an_epoch_is_resumed_on_no_partition_that_has_another_one() -> None:
    driver = grown_after_a_grant(level=2)
    driver.fence([2])
    driver.fence([2])
    assert driver.acquire("b", None, resume=1) == ProducerFenced(current_epoch=2, reason="superseded")
    assert driver.acquire("b", None, resume=2) == InvalidFencingToken(current_epoch=1)


def test_at_level_1_a_new_partition_refuses_to_resume_all_as_in_older_software() -> None:
    driver = grown_after_a_grant(level=1)
    assert driver.acquire("b", None, resume=1) == InvalidFencingToken(current_epoch=0)


def test_a_topic_change_states_the_wanted_values() -> None:
    driver = house(partitions=2)
    topic = driver.machine.catalog.topics()[0]
    same = driver.change(partitions=2, seal=False, require_fence=False)
    assert same == TopicChanged(topic.topic_id, topic.topic_id), "nothing changed, so no partition has to be told"
    changed = driver.change(require_fence=True, seal=True)
    assert changed == TopicChanged(topic.topic_id, driver.index)
    assert (topic.config.require_fence, topic.sealed) == (True, True)
    assert driver.change(seal=False) == changed, "unsealing does not exist"
    assert driver.machine.catalog_index == driver.index


def test_a_change_that_is_refused_changes_nothing() -> None:
    driver = house(partitions=2)
    assert isinstance(driver.change(partitions=1, require_fence=True), InvalidRequest)
    assert isinstance(driver.change(partitions=10_001), InvalidRequest)
    assert isinstance(driver.change(no_such_field=1), InvalidRequest)
    assert isinstance(driver.change(max_producers="many"), InvalidRequest)
    assert isinstance(driver.change("no"), UnknownTopicOrPartition)
    assert not driver.machine.catalog.topics()[0].config.require_fence


def test_a_change_in_an_old_log_to_the_retired_durability_changes_nothing_else_and_is_not_refused() -> None:
    driver = house(partitions=2)
    topic = driver.machine.catalog.topics()[0]
    changed = driver.change(durability="replicated")
    assert changed == TopicChanged(topic.topic_id, topic.topic_id)
    grown = driver.change(partitions=3, durability="replicated")
    assert (isinstance(grown, TopicChanged), len(topic.placements)) == (True, 3)


def test_an_operators_fence_ends_whole_grants_and_grants_nothing() -> None:
    driver = house(partitions=3)
    victim = driver.granted("a", [0, 1])
    seat = driver.granted("b", [2], "Shared")
    driver.settle()
    topic = driver.machine.catalog.topics()[0]
    answer = driver.fence([1, 2], reason="drill")
    assert isinstance(answer, TopicFenced)
    order = answer.partitions[0].order
    assert answer.partitions == [
        FencedPartition(1, 2, order, [victim.grant_id]),
        FencedPartition(2, 1, order, [seat.grant_id]),
    ]
    assert (driver.holders(), driver.epochs()) == ([None, None, None], [1, 2, 1])
    refs = [FenceRef(group_id(topic.topic_id, partition), order) for partition in (1, 2)]
    assert not any(driver.machine.is_over(ref) for ref in refs)
    driver.settle()
    assert all(driver.machine.is_over(ref) for ref in refs)
    assert driver.append(victim, 1) == ProducerFenced(current_epoch=2, reason="superseded")
    assert driver.append(victim, 0) == ProducerFenced(current_epoch=1, reason="slot_free")
    assert driver.append(seat, 2) == ProducerFenced(current_epoch=1, reason="superseded")
    tenure = driver.partition(refs[0].group_id).tenures()[0]
    assert (tenure.client_id, tenure.end, tenure.refused) == ("c-a", "fenced: drill", 1)


def test_an_operators_fence_promotes_the_next_ticket() -> None:
    driver = house()
    driver.granted("a", [0])
    ticket = driver.waiting("b", [0])
    driver.fence()
    granted = driver.machine.ticket(ticket.ticket_id, "b")
    assert isinstance(granted, GrantState)
    assert (granted.epoch, driver.epochs()) == (3, [3, 1])


def test_a_grant_fenced_by_an_operator_cannot_be_resumed() -> None:
    driver = house()
    grant = driver.granted("a")
    driver.fence([0])
    assert driver.acquire("a", resume=grant.epoch) == ProducerFenced(current_epoch=2, reason="superseded")


def test_a_fence_that_is_refused_changes_nothing() -> None:
    driver = house()
    driver.granted("a")
    assert isinstance(driver.fence([2]), UnknownTopicOrPartition)
    assert isinstance(driver.fence([]), InvalidRequest)
    assert isinstance(driver.fence(topic="no"), UnknownTopicOrPartition)
    assert isinstance(driver.fence(reason="x" * 201), InvalidRequest)
    assert driver.holders() == ["a", None]


def test_the_tenures_of_a_slot_have_owner_operation_and_end() -> None:
    driver = house(partitions=1, sessions="abcd")
    first = driver.granted("a")
    driver.settle()
    driver.granted("b", mode="ExclusiveWithFencing")
    driver.settle()
    driver.waiting("c")
    driver.close("b")
    driver.settle()
    driver.close("c")
    driver.settle()
    driver.granted("d", resume=3)
    driver.settle()
    tenures = driver.partition(group_id(first.topic_id, 0)).tenures()
    assert [(tenure.client_id, tenure.operation, tenure.end) for tenure in tenures] == [
        ("c-d", "resume", None),
        ("c-c", "promotion", "closed"),
        ("c-b", "eviction", "closed"),
        ("c-a", "acquire", "evicted"),
    ]


def test_tickets_of_other_topics_are_left_alone() -> None:
    driver = house()
    driver.topic("u")
    driver.granted("a", [0])
    driver.acquire("b", [0], "Exclusive", topic="u")
    answer = driver.acquire("c", [0], "WaitForExclusive", topic="u")
    assert isinstance(answer, TicketState)
    driver.close("a")
    assert driver.machine.slots.queue.by_id.get(answer.ticket_id) is not None


def test_a_change_of_another_incarnation_is_refused() -> None:
    driver = house()
    answer = driver.acquire("a", topic_id=99)
    assert isinstance(answer, InconsistentTopicId)


def test_a_fence_that_names_the_grants_ends_these_and_no_others() -> None:
    driver = house(partitions=3)
    first, second = driver.granted("a", [0, 1]).grant_id, driver.granted("b", [2], "Shared").grant_id
    for named in ([], [second], [first, second]):
        order = FenceTopic(now_ms=driver.now_ms, topic="t", partitions=[0], if_grants=named)
        assert driver.do(order) == PlanChanged(grants=[first])
    assert driver.grant(first) is not None
    assert isinstance(driver.do(FenceTopic(now_ms=0, topic="t", partitions=[0], if_grants=[first])), TopicFenced)
    assert (driver.grant(first), driver.grant(second) is None) == (None, False)
    assert isinstance(driver.do(FenceTopic(now_ms=0, topic="t", partitions=[0], if_grants=[])), TopicFenced)


def test_a_deletion_that_names_the_grants_ends_these_and_no_others() -> None:
    driver = house(partitions=2)
    grants = sorted((driver.granted("a", [0]).grant_id, driver.granted("b", [1]).grant_id))
    for named in ([], grants[:1], [*grants, "g-9-9"]):
        order = DeleteTopic(now_ms=driver.now_ms, name="t", if_grants=grants_digest(named))
        assert driver.do(order) == PlanChanged(grants=grants)
    order = DeleteTopic(now_ms=driver.now_ms, name="t", if_grants=grants_digest(reversed(grants)))
    assert isinstance(driver.do(order), TopicDeleted)
