"""Owning resources on three real nodes: cases of SEMANTICS 11, numbered in the names."""

from typing import Any

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster

from .api import Answer, Topic, Writer, call, eventually, expect


class Owner:
    """A session that owns things in a group."""

    def __init__(self, cluster: LocalCluster, group: str, node: int = 0, ttl_ms: int = 300_000) -> None:
        self.node = cluster.nodes[node].url
        self.url = f"{self.node}/v1/groups/{group}"
        self.group = group
        body = {"client_id": "owner", "ttl_ms": ttl_ms}
        self.session = expect(201, call("POST", f"{self.node}/v1/sessions", body))["session"]

    def ask(self, *claims: dict[str, Any], **more: Any) -> Answer:
        body = {"claims": list(claims), **more}
        return call("POST", f"{self.url}/own", body, headers={"Stockade-Session": self.session})

    def own(self, resource: str, generation: int | None = None, sever: str = "resource") -> tuple[int, int]:
        """(generation, fence_epoch) after it was granted."""
        claim = {"resource": resource} | ({} if generation is None else {"generation": generation})
        (result,) = expect(200, self.ask(claim, sever=sever))["results"]
        assert result["granted"] is True
        return result["generation"], result["fence_epoch"]

    def is_refused(self, resource: str, generation: int) -> Any:
        refusal = expect(409, self.ask({"resource": resource, "generation": generation}, sever="resource"))
        assert refusal["code"] == "GENERATION_FENCED"
        return refusal

    def owned(self) -> set[str]:
        """What has an owner in the group."""
        return {r["resource"] for r in expect(200, call("GET", f"{self.url}/resources"))["resources"] if r["owned"]}


def test_032_033_034_a_claim_needs_a_higher_generation_than_the_owners(cluster: LocalCluster) -> None:
    one, two = Owner(cluster, "up"), Owner(cluster, "up", 1)
    assert one.own("r") == (1, 1)
    assert one.own("r", 5) == (5, 2)
    refusal = two.is_refused("r", 4)
    assert (refusal["generation"], refusal["fence_epoch"]) == (5, 2)
    assert two.own("r", 6) == (6, 3)


def test_035_claiming_the_owners_generation_takes_over_and_its_repetition_is_refused(cluster: LocalCluster) -> None:
    one, two = Owner(cluster, "same"), Owner(cluster, "same", 1)
    assert one.own("r", 5) == (1, 1)  # never seen before: it begins at 1
    assert one.own("r", 5) == (5, 2)
    assert two.own("r", 5) == (6, 3)
    one.is_refused("r", 5)


def test_036_generation_0_always_wins_and_the_fence_epoch_still_grows(cluster: LocalCluster) -> None:
    one, two = Owner(cluster, "zero"), Owner(cluster, "zero", 2)
    one.own("r")
    _, before = one.own("r", 9)
    assert two.own("r", 0) == (1, before + 1)


def test_037_a_severed_owner_loses_its_session_s_resources_or_the_claimed_one(cluster: LocalCluster) -> None:
    one, two, three = Owner(cluster, "sever"), Owner(cluster, "sever", 1), Owner(cluster, "sever", 2)
    for resource in ("a", "b", "c"):
        one.own(resource)
    two.own("a", 2, sever="resource")
    assert one.owned() == {"a", "b", "c"}
    three.own("b", 2, sever="session")
    assert one.owned() == {"a", "b"}
    assert two.own("a") == (2, 2)


def test_038_groups_do_not_know_of_each_other(cluster: LocalCluster) -> None:
    assert Owner(cluster, "left").own("x") == (1, 1)
    assert Owner(cluster, "right").own("x") == (1, 1)


def test_039_anything_can_be_owned(cluster: LocalCluster) -> None:
    one = Owner(cluster, "things")
    for resource in ("not/a/partition", "ä b", "nowhere/0", "/", "%2F"):
        assert one.own(resource) == (1, 1)
        assert one.own(resource) == (1, 1)
    assert one.owned() == {"not/a/partition", "ä b", "nowhere/0", "/", "%2F"}


def test_040_atomic_claims_are_granted_all_or_none(cluster: LocalCluster) -> None:
    one, two = Owner(cluster, "atomic"), Owner(cluster, "atomic", 1)
    one.own("held")
    one.own("held", 5)
    refusal = expect(409, two.ask({"resource": "free"}, {"resource": "held", "generation": 1}))
    assert refusal["resource"] == "held"
    assert [result["resource"] for result in refusal["results"]] == ["free", "held"]
    assert two.owned() == {"held"}


def test_041_a_read_under_guard_is_refused_once_another_session_owns_the_partition(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "guarded")
    topic.create()
    expect(200, topic.append("x"))
    one, two = Owner(cluster, "readers"), Owner(cluster, "readers", 1)
    _, first = one.own("guarded/0")
    guarded = f"{topic.records()}?group=readers&fence_epoch="
    assert len(expect(200, call("GET", f"{guarded}{first}"))["records"]) == 1
    _, second = two.own("guarded/0", 2)
    refusal = expect(403, call("GET", f"{guarded}{first}"))
    assert (refusal["code"], refusal["fence_epoch"]) == ("NOT_OWNER", second)
    expect(200, call("GET", f"{guarded}{second}"))
    position = f"{topic.node}/v1/groups/readers/positions/guarded/0"
    expect(403, call("PUT", position, {"offset": 1, "fence_epoch": first}))
    expect(200, call("PUT", position, {"offset": 1, "fence_epoch": second}))


@pytest.mark.parametrize("end", ["closed", "expired"])
def test_042_a_former_owners_write_is_refused_after_its_session_ended(cluster: LocalCluster, end: str) -> None:
    topic = Topic(cluster.nodes[0].url, f"written-{end}")
    topic.create(config={"writer_group": "writers"})
    resource = f"{topic.name}/0"
    one, two = Owner(cluster, "writers", ttl_ms=5_000 if end == "expired" else 300_000), Owner(cluster, "writers", 1)
    _, first = one.own(resource)

    def write(fence_epoch: int) -> Answer:
        url = f"{topic.records()}?fence_epoch={fence_epoch}"
        return call("POST", url, b"x\n", headers={"Content-Type": "text/plain"})

    if end == "closed":
        expect(200, write(first))
        assert call("DELETE", f"{one.node}/v1/sessions/{one.session}").status == 204
    eventually(lambda: two.ask({"resource": resource}).status == 200)  # while the owner lives, it is refused
    _, second = two.own(resource)
    assert second > first
    assert expect(403, write(first))["code"] == "NOT_OWNER"
    expect(200, write(second))


def test_037_the_severed_lose_their_grants_too(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "severed")
    topic.create()
    writer = Writer(topic, "severed-1", [0])
    expect(201, writer.answer)
    one, two = Owner(cluster, "grants"), Owner(cluster, "grants", 1)
    one.session = writer.session
    one.own("r")
    two.own("r", 2, sever="session")
    assert expect(403, writer.append("late", 0))["code"] == "PRODUCER_FENCED"
