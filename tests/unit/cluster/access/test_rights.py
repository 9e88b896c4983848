"""Rights on names: what none allows is denied, and a refusal names what is missing."""

import pytest

from stockade.cluster.access.rights import KINDS, NAME_CHARACTERS_MAX, Caller, Right, Rights, parse
from stockade.partition.errors import PermissionDenied
from stockade.partition.internal_names import LEDGER_TOPIC


def rights(*texts: str) -> Rights:
    return Rights(right for text in texts for right in parse(text))


def caller(*texts: str) -> Caller:
    return Caller("principal p", texts, "p")


@pytest.mark.parametrize("text", ["produce topic:orders", "read topic:orders-*", "own resource:g/r", "admin cluster"])
def test_a_right_is_written_as_it_is_read(text: str) -> None:
    (right,) = parse(text)
    assert str(right) == text


def test_all_is_every_verb_on_every_kind() -> None:
    assert {(right.verb, right.kind) for right in parse("all")} == {
        (verb, kind) for verb, kinds in KINDS.items() for kind in kinds
    }
    everything = rights("all")
    assert all(everything.allow(verb, kind, "any") for verb, kinds in KINDS.items() for kind in kinds)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is not VERB KIND:NAME"),
        ("produce", "is not VERB KIND:NAME"),
        ("produce topic:a b", "is not VERB KIND:NAME"),
        ("produce topic:a*b", "is not VERB KIND:NAME"),
        ("write topic:a", "no verb write"),
        ("trim group:g", "trim is a right on topic"),
        ("read topic", "everything else has one"),
        ("read topic:", "1 to 512"),
        ("read cluster:c", "a cluster has no name"),
        (f"read topic:{'x' * (NAME_CHARACTERS_MAX + 1)}", "1 to 512"),
    ],
)
def test_a_malformed_right_is_refused_with_the_reason(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse(text)


def test_a_name_of_the_greatest_length_is_a_name() -> None:
    assert parse(f"read topic:{'x' * NAME_CHARACTERS_MAX}")


def test_an_exact_name_and_a_prefix_allow_no_other_name_verb_or_kind() -> None:
    some = rights("produce topic:orders", "read topic:log-*")
    allowed = [
        (verb, name)
        for verb in ("produce", "read", "acquire")
        for name in ("orders", "orders-2", "log-", "log-a", "log", "lo")
        if some.allow(verb, "topic", name)
    ]
    assert allowed == [("produce", "orders"), ("read", "log-"), ("read", "log-a")]
    assert not some.allow("read", "group", "log-a")


def test_a_right_on_a_group_counts_for_its_resources_and_not_the_other_way_round() -> None:
    group, resource = rights("own group:g"), rights("own resource:g/r")
    assert group.allow("own", "resource", "g/anything")
    assert not group.allow("own", "resource", "gg/r")
    assert resource.allow("own", "resource", "g/r")
    assert not resource.allow("own", "resource", "g/q")
    assert not resource.allow("own", "group", "g")


def test_any_right_on_a_name_allows_to_see_it() -> None:
    one = caller("trim topic:orders")
    one.require_sight("topic", "orders")
    assert not one.may_see("topic", "others")
    with pytest.raises(PermissionDenied, match=r"principal p lacks the right: read topic:others\n"):
        one.require_sight("topic", "others")


def test_a_refusal_names_the_right_that_is_missing() -> None:
    one = caller("read topic:orders")
    one.require("read", "topic", "orders")
    with pytest.raises(PermissionDenied, match=r"principal p lacks the right: produce topic:orders\n"):
        one.require("produce", "topic", "orders")
    with pytest.raises(PermissionDenied, match=r"lacks the right: admin cluster\n"):
        one.require("admin", "cluster", "")
    one.require_some("read", "topic")
    with pytest.raises(PermissionDenied, match=r"lacks the right: own group:NAME, for any NAME\n"):
        one.require_some("own", "group")


def test_a_prefix_that_is_empty_is_every_name() -> None:
    assert parse("read topic:*") == [Right("read", "topic", "", is_prefix=True)]
    assert rights("read topic:*").allow("read", "topic", "orders")


def test_the_ledgers_topic_is_read_with_admin_cluster_and_changed_with_no_right() -> None:
    for name in ("all", "admin cluster"):
        everything = caller(name)
        assert everything.may("read", "topic", LEDGER_TOPIC)
        assert everything.may_see("topic", LEDGER_TOPIC)
        for verb in ("produce", "acquire", "evict", "trim", "admin"):
            with pytest.raises(PermissionDenied, match="keeps the ledger"):
                everything.require(verb, "topic", LEDGER_TOPIC)
    for verb in ("read", "admin", "produce"):
        other = caller(f"{verb} topic:*", f"{verb} topic:{LEDGER_TOPIC}", "read cluster")
        assert not other.may_see("topic", LEDGER_TOPIC)
        with pytest.raises(PermissionDenied, match="lacks the right: admin cluster"):
            other.require("read", "topic", LEDGER_TOPIC)
        with pytest.raises(PermissionDenied, match="lacks the right: admin cluster"):
            other.require_sight("topic", LEDGER_TOPIC)
    assert caller(f"own group:{LEDGER_TOPIC}").may("own", "group", LEDGER_TOPIC), "a group may have this name"
