"""Every act is done in the browser, and the cluster has done it: each shows what it hits before, and can be left."""

from collections.abc import Iterator
from typing import Any

import pytest
from integration.api import call, eventually, expect

from .looking import Console
from .scene import Scene, Writer

DIALOG = "dialog[open]"


@pytest.fixture
def topic(scene: Scene, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    name = f"t-{request.node.name}"[:60].replace("[", "-").replace("]", "")
    scene.topic(name)
    return name


def closed(console: Console) -> None:
    console.until(lambda: not console.find(DIALOG), "the dialog is gone", lambda: console.text(DIALOG))


def asks_to_evict(console: Console, topic: str, words: str) -> None:
    """The page of partition 0 asks whether its writer shall be evicted, with these words."""
    console.open(f"topics/{topic}/0", f"{topic}/0")
    console.press("Evict the writer")
    console.sees(words, DIALOG)


def partition(scene: Scene, topic: str) -> Any:
    return scene.get(f"/v1/topics/{topic}")["partitions"][0]


def test_a_topic_is_created(console: Console, scene: Scene) -> None:
    console.open("topics", "Topics")
    console.press("Create a topic", "main")
    console.fill("Name", "made-here", DIALOG)
    console.fill("Partitions", "4", DIALOG)
    console.fill("Keep records for", "48", DIALOG)
    console.picture("act-create")
    assert console.findings() == []
    console.press("Create", DIALOG)
    console.until(lambda: console.text("h1") == "made-here", "the new topic", lambda: console.text(DIALOG))
    made = scene.get("/v1/topics/made-here")
    assert len(made["partitions"]) == 4
    assert (made["config"]["retention_ms"], made["config"]["require_fence"]) == (48 * 3600 * 1000, True)


def test_a_name_that_is_taken_is_refused_in_the_dialog(console: Console) -> None:
    console.open("topics?create=1", "Topics")
    console.fill("Name", "orders", DIALOG)
    console.fill("Partitions", "9", DIALOG)
    console.press("Create", DIALOG)
    console.sees("TOPIC_ALREADY_EXISTS", DIALOG)
    console.press("Cancel", DIALOG)
    closed(console)


def test_a_topic_is_changed_and_a_change_that_cannot_be_undone_says_so(
    console: Console, scene: Scene, topic: str
) -> None:
    console.open(f"topics/{topic}", topic)
    console.press("Change")
    console.fill("Partitions", "3", DIALOG)
    console.field("Sealed", DIALOG).click()
    console.sees("This cannot be undone.", DIALOG)
    console.picture("act-change")
    console.press("Change", DIALOG)
    closed(console)
    changed = scene.get(f"/v1/topics/{topic}")
    assert (len(changed["partitions"]), changed["sealed"]) == (3, True)
    console.sees("takes no more records")


def test_a_topic_is_deleted_when_its_name_is_typed(console: Console, scene: Scene, topic: str) -> None:
    console.open(f"topics/{topic}", topic)
    console.press("Delete")
    console.sees("There is no way back.", DIALOG)
    assert not console.button("Delete for good", DIALOG).is_enabled()
    console.fill("Type", topic, DIALOG)
    console.picture("act-delete")
    assert console.findings() == []
    console.press("Delete for good", DIALOG)
    console.until(lambda: console.text("h1") == "Topics", "the list of topics")
    assert topic not in [each["name"] for each in scene.get("/v1/topics")["topics"]]


def test_a_writer_is_evicted_and_its_name_is_shown_before(console: Console, scene: Scene, topic: str) -> None:
    writer = Writer(scene.url, "pod-e").acquire(topic, "erin")
    console.open(f"topics/{topic}/0", f"{topic}/0")
    console.sees("erin", ".pen")
    console.press("Evict the writer")
    console.sees("erin of pod-e loses its grant of epoch 1", DIALOG)
    console.fill("Reason", "night shift", DIALOG)
    console.picture("act-evict")
    console.press("Evict", DIALOG)
    closed(console)
    console.sees("No writer", ".pen")
    console.sees("an operator fenced it: night shift")
    assert writer.write("late", topic=topic) == 403


def test_the_log_is_trimmed(console: Console, scene: Scene, topic: str) -> None:
    scene.call("PATCH", f"/v1/topics/{topic}", {"config": {"require_fence": False}})
    records = {"records": [{"value": str(number)} for number in range(10)]}
    scene.call("POST", f"/v1/topics/{topic}/partitions/0/records", records)
    console.open(f"topics/{topic}/0", f"{topic}/0")
    console.press("Trim")
    console.fill("Drop records before offset", "4", DIALOG)
    console.sees("4 of 10 records, offsets 0 to 3,", DIALOG)
    console.press("Drop them for good", DIALOG)
    closed(console)
    assert scene.get(f"/v1/topics/{topic}/partitions/0/offsets?at=earliest")["log_start"] == 4


def test_a_grant_is_ended_from_the_list_of_sessions(console: Console, scene: Scene, topic: str) -> None:
    Writer(scene.url, "pod-g").acquire(topic, "greta")
    console.open("sessions?find=pod-g", "Sessions and grants")
    console.press("End grant")
    console.sees("greta of pod-g loses its grant of epoch 1", DIALOG)
    console.press("Evict", DIALOG)
    closed(console)
    console.sees("No such client holds anything")
    assert partition(scene, topic)["holder"] is None


def test_a_session_is_ended_with_all_that_it_holds_and_its_writer_is_refused(
    console: Console, scene: Scene, topic: str
) -> None:
    writer = Writer(scene.url, "pod-s").acquire(topic, "stella")
    owned = {"claims": [{"resource": "shard-1"}]}
    expect(200, call("POST", f"{scene.url}/v1/groups/ending/own", owned, headers=writer.headers))
    [listed] = scene.get("/v1/sessions?prefix=pod-s")["sessions"]
    console.open("sessions?find=pod-s", "Sessions and grants")
    console.sees(listed["handle"])
    console.press("End session")
    console.sees("stella loses its grant of 1 partition of", DIALOG)
    console.sees("1 resource of groups has no owner any more", DIALOG)
    console.sees(f"stockade sessions fence {listed['handle']} --confirm", DIALOG)
    console.picture("act-end-session")
    assert console.findings() == []
    console.fill("Reason", "it's hung", DIALOG)
    console.sees(r"--reason 'it'\''s hung'", DIALOG)
    console.press("End it", DIALOG)
    closed(console)
    console.sees("No such client holds anything")
    assert writer.write("late", topic=topic) == 403
    assert scene.get(f"/v1/topics/{topic}/partitions/0/fences")["fences"][0]["end"] == "fenced: it's hung"
    assert scene.get("/v1/groups/ending/resources")["resources"][0]["owned"] is False


def test_a_resource_is_freed_and_its_owner_is_refused_from_then_on(console: Console, scene: Scene) -> None:
    owner = Writer(scene.url, "worker-9")
    own = f"{scene.url}/v1/groups/freed/own"
    [claimed] = expect(200, call("POST", own, {"claims": [{"resource": "left"}]}, headers=owner.headers))["results"]
    console.open("groups/freed", "freed")
    console.press("Free")
    console.sees("worker-9 owns it no more", DIALOG)
    console.picture("act-free")
    assert console.findings() == []
    console.press("Free it", DIALOG)
    closed(console)
    console.sees("no owner")
    [row] = scene.get("/v1/groups/freed/resources")["resources"]
    assert (row["owned"], row["fence_epoch"] > claimed["fence_epoch"]) == (False, True)
    assert not [each for each in scene.get("/v1/sessions")["sessions"] if each["client_id"] == "console"]


def test_a_producer_is_fenced(console: Console, scene: Scene, topic: str) -> None:
    writer = Writer(scene.url, "pod-f").acquire(topic, "frida")
    assert writer.write("stored", topic=topic) == 200
    console.open("producers/frida", "frida")
    console.press("Fence")
    console.sees("1 partition and everywhere else", DIALOG)
    console.press("Fence it", DIALOG)
    closed(console)
    assert writer.write("late", topic=topic) == 403
    assert scene.get("/v1/producers/frida")["producer_epoch"] == 1


def test_a_node_is_added_and_removed_and_one_that_cannot_go_says_why(console: Console, scene: Scene) -> None:
    console.open("cluster", "Cluster")
    console.press("Remove", "tbody tr:nth-child(3)")
    console.sees("NOT_ENOUGH_REPLICAS", DIALOG)
    console.picture("act-remove")
    console.fill("Type", "n3", DIALOG)
    assert not console.button("Remove it", DIALOG).is_enabled()
    console.press("Cancel", DIALOG)
    closed(console)
    console.press("Add a node")
    for label, text in (("Node id", "n9"), ("Base URL", "http://127.0.0.1:9"), ("Raft address", "127.0.0.1:10")):
        console.fill(label, text, DIALOG)
    console.press("Add", DIALOG)
    closed(console)
    console.sees("n9")
    console.press("Remove", "tbody tr:nth-child(4)")
    console.sees("0 groups move to other nodes", DIALOG)
    console.fill("Type", "n9", DIALOG)
    console.press("Remove it", DIALOG)
    closed(console)
    console.until(lambda: "n9" not in [each["node_id"] for each in scene.get("/v1/cluster")["nodes"]], "n9 has gone")


def digest(console: Console) -> str:
    console.until(lambda: console.find(f"{DIALOG} .digest code"), "a plan", lambda: console.text(DIALOG))
    return console.text(f"{DIALOG} .digest code")


def test_a_plan_has_the_digest_that_the_command_line_tells(console: Console, scene: Scene, topic: str) -> None:
    writer = Writer(scene.url, "pod-p").acquire(topic, "päule")
    assert writer.write("one", "two", "three", topic=topic) == 200
    console.open(f"topics/{topic}", topic)
    console.press("Evict writers")
    assert digest(console) == scene.plan("fence", topic)
    console.press("Cancel", DIALOG)
    console.press("Delete")
    assert digest(console) == scene.plan("topics", "delete", topic)
    console.open(f"topics/{topic}/0", f"{topic}/0")
    console.press("Trim")
    console.fill("Drop records before offset", "2", DIALOG)
    console.sees("2 of 3 records", DIALOG)
    console.sees("This is refused while a writer holds the slot alone.", DIALOG)
    assert digest(console) == scene.plan("topics", "trim", topic, "--partition", "0", "--before", "2")


def test_an_act_on_a_state_that_has_changed_since_its_plan_is_not_done_but_shown_anew(
    console: Console, scene: Scene, topic: str
) -> None:
    Writer(scene.url, "pod-q").acquire(topic, "quinn")
    asks_to_evict(console, topic, "quinn of pod-q loses its grant")
    Writer(scene.url, "pod-r").acquire(topic, "rosa")
    console.press("Evict", DIALOG)
    console.sees("The state has changed since you looked", DIALOG)
    console.sees("rosa of pod-r loses its grant", DIALOG)
    console.picture("act-changed")
    assert console.findings() == []
    assert partition(scene, topic)["holder"]["producer_name"] == "rosa"
    console.press("Evict", DIALOG)
    closed(console)
    assert partition(scene, topic)["holder"] is None


@pytest.fixture
def by_hand(scene: Scene) -> Iterator[None]:
    """Nothing is balanced by itself, and nodes count as well after a second."""
    scene.call("PATCH", "/v1/cluster/balance", {"mode": "off", "stable_ms": 1_000})
    yield
    scene.call("PATCH", "/v1/cluster/balance", {"mode": "on", "stable_ms": 60_000})


def test_a_plan_of_balance_is_shown_with_its_reasons_and_done_as_it_was_seen(
    console: Console, scene: Scene, topic: str, by_hand: None
) -> None:
    leader = eventually(lambda: partition(scene, topic)["leader_node"])
    replicas = sorted(partition(scene, topic)["replicas"], key=lambda node_id: node_id == leader)
    home = replicas[0]
    scene.call("POST", "/v1/cluster/reassignments", {"topic": topic, "partition": 0, "replicas": replicas})
    eventually(lambda: topic in {each["topic"] for each in scene.get("/v1/cluster/balance")["leaders"]})
    console.open("cluster", "Cluster")
    row = f"{topic}/0\n{leader}\n{home}\n0 B\nits leader goes home"
    console.sees(row, "section[aria-label='Balance']")
    console.sees("nothing by itself", "section[aria-label='Balance']")
    console.press("Balance now")
    assert digest(console) == scene.plan("cluster", "balance")
    console.sees("home. Writers of these partitions wait for a moment.", DIALOG)
    console.picture("act-balance")
    assert console.findings() == []
    console.press("Begin all of it", DIALOG)
    closed(console)
    eventually(lambda: partition(scene, topic)["leader_node"] == home)
    console.until(lambda: topic not in console.text("section[aria-label='Balance']"), "an empty plan")


def test_a_change_is_of_all_partitions_whichever_of_them_the_page_shows(console: Console, scene: Scene) -> None:
    """The form had the partitions of the page: with 256 it offered 100, and with a filter it asked for fewer."""
    scene.topic("broad", 3)
    console.open("topics/broad?find=1", "broad")
    console.until(lambda: len(console.find("tbody tr")) == 1, "one of three partitions")
    console.press("Change")
    console.until(lambda: console.field("Partitions", DIALOG).get_attribute("value") == "3", "all three partitions")
    console.sees("dropped from all 3 partitions", DIALOG)
    console.fill("Partitions", "4", DIALOG)
    console.press("Change", DIALOG)
    closed(console)
    assert len(scene.get("/v1/topics/broad")["partitions"]) == 4


LOST = """
const fetched = window.fetch;
window.fetch = async (url, options) => {
  if (options?.method !== 'POST') return fetched(url, options);
  await fetched(url, options);
  throw new TypeError('Failed to fetch');
};
"""
"""The connection ends after the node has done what it was asked for."""


def test_an_act_without_an_answer_is_not_told_as_one_that_was_not_done(
    console: Console, scene: Scene, topic: str
) -> None:
    Writer(scene.url, "pod-l").acquire(topic, "lena")
    asks_to_evict(console, topic, "lena of pod-l loses its grant")
    console.script(LOST)
    console.press("Evict", DIALOG)
    console.sees("It may have been done, or not", DIALOG)
    assert partition(scene, topic)["holder"] is None


def test_a_question_that_is_left_while_its_act_goes_on_says_so(console: Console, scene: Scene, topic: str) -> None:
    """Its button was called Cancel, and the act was done."""
    asks_to_evict(console, topic, "No writer holds a slot here")
    console.script("window.fetch = () => new Promise(() => {})")
    console.press("Evict", DIALOG)
    console.sees("closing this takes nothing back", DIALOG)
    assert console.findings() == []
    console.press("Close", DIALOG)
    closed(console)


def test_a_name_cannot_turn_around_the_text_beside_it(console: Console, scene: Scene, topic: str) -> None:
    """U+202E in the name of a writer drew what the console said of it from right to left."""
    Writer(scene.url, "pod-\u202ex").acquire(topic, "mia\u202e")
    console.open(f"topics/{topic}/0", f"{topic}/0")
    console.sees("mia\\u202e\npod-\\u202ex; acquired a free slot", ".pen")
    console.press("Evict the writer")
    console.sees("mia\\u202e of pod-\\u202ex loses its grant of epoch 1", DIALOG)
    for path in (f"topics/{topic}", "sessions?find=pod-", "producers?find=mia", ""):
        console.open(path)
        console.sees("\\u202e")
        assert "\u202e" not in console.text("main")


def test_a_dialog_is_left_by_escape_and_nothing_is_done(console: Console, scene: Scene, topic: str) -> None:
    Writer(scene.url, "pod-h").acquire(topic, "henri")
    asks_to_evict(console, topic, "henri of pod-h loses its grant")
    console.keys("\ue00c")
    closed(console)
    assert partition(scene, topic)["holder"]["producer_name"] == "henri"


def test_the_drill_shows_a_zombie_refused_and_leaves_nothing_behind(console: Console, scene: Scene) -> None:
    console.open("drill?start=1", "Fence drill")
    console.sees("Refused: PRODUCER_FENCED")
    console.sees("The certificate: absent.")
    console.sees("Nothing of the drill runs any more.")
    console.until(lambda: console.find(".cross"), "the zombie's write on the timeline")
    console.picture("drill-played")
    assert console.findings() == []
    assert partition(scene, "fence-drill")["holder"] is None
    assert not [each for each in scene.get("/v1/sessions")["sessions"] if each["client_id"].startswith("drill-")]


def test_a_drill_on_a_partition_in_use_asks_first(console: Console, scene: Scene, topic: str) -> None:
    Writer(scene.url, "pod-i").acquire(topic, "inga")
    console.open(f"topics/{topic}/0", f"{topic}/0")
    console.press("Fence drill", ".page-head")
    console.until(lambda: console.text("h1") == "Fence drill", "the drill")
    console.press("Start the drill")
    console.sees("inga of pod-i loses its grant of epoch 1", DIALOG)
    assert not console.button("Take the slot over", DIALOG).is_enabled()
    console.press("Cancel", DIALOG)
    closed(console)
    assert partition(scene, topic)["holder"]["producer_name"] == "inga"
    console.press("Start the drill")
    console.fill("Type", f"{topic}/0", DIALOG)
    console.press("Take the slot over", DIALOG)
    console.sees("Refused: PRODUCER_FENCED")
    console.sees("Nothing of the drill runs any more.")
