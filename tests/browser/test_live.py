"""What changes in the cluster shows on an open page, without a reload: also when a node is killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.api import call, expect
from selenium import webdriver

from stockade.cli.local_cluster.cluster import LocalCluster

from .looking import Console
from .scene import Scene, Writer


def test_a_takeover_shows_while_the_page_is_open(console: Console, scene: Scene) -> None:
    scene.topic("contested")
    first = Writer(scene.url, "pod-1").acquire("contested", "first")
    console.open("topics/contested/0", "contested/0")
    console.sees("first", ".pen")
    Writer(scene.url, "pod-2").acquire("contested", "second")
    console.sees("second", ".pen")
    assert first.write("late", topic="contested") == 403
    console.until(lambda: console.find(".cross"), "the zombie's write")


def test_records_show_as_they_are_stored(console: Console, scene: Scene) -> None:
    scene.topic("stream")
    writer = Writer(scene.url, "pod-s").acquire("stream", "sven")
    console.open("topics/stream/0?tab=log", "stream/0")
    console.press("Go live")
    for number in range(3):
        writer.write({"number": number}, topic="stream")
        console.sees(f'{{"number": {number}}}')


def test_a_page_of_a_cluster_without_a_topic_offers_the_drill(driver: webdriver.Chrome, tmp_path: Path) -> None:
    with LocalCluster(tmp_path, nodes_count=1, port_base=0) as cluster:
        console = Console(driver, f"http://{cluster.nodes[0].http}")
        console.reset()
        console.open("", "Overview")
        console.sees("See a zombie refused")
        console.picture("first-run")
        assert console.findings() == []
        console.press("Start the fence drill")
        console.sees("Refused: PRODUCER_FENCED")
        console.sees("Nothing of the drill runs any more.")
        console.check_log()


SLOW = """
window.asked = 0;
const fetched = window.fetch;
window.fetch = async (url, options) => {
  if (!String(url).startsWith(arguments[0])) return fetched(url, options);
  window.asked++;
  await new Promise((done) => setTimeout(done, 2500));
  return fetched(url, options);
};
"""
"""Answers under a path come after two and a half seconds."""


def storm(scene: Scene, topic: str) -> Writer:
    """A zombie on a topic of its own: each of its writes is one more change that the node tells."""
    scene.topic(topic)
    zombie = Writer(scene.url, "pod-z").acquire(topic, "zoe")
    assert zombie.write("mine", topic=topic) == 200
    Writer(scene.url, "pod-y").acquire(topic, "yann")
    return zombie


def refused_again(console: Console, zombie: Writer, topic: str) -> None:
    """The zombie writes once more, and the page shows that it was refused."""
    facts = "section[aria-label='Was refused'] .pen-fact"
    before = console.text(facts)
    assert zombie.write("late", topic=topic) == 403
    console.until(lambda: console.text(facts) != before, "one more")


def seek(console: Console, topic: str, answers: str) -> None:
    """Begin a search by key on partition 0, whose records are answered as the script ``answers`` says."""
    console.open(f"topics/{topic}/0?tab=log", f"{topic}/0")
    console.script(answers, f"/v1/topics/{topic}/partitions/0/records")
    console.fill("Key", "k0")
    console.press("Seek")


def test_answers_that_are_slower_than_changes_are_shown(console: Console, scene: Scene) -> None:
    """Each change began another reading, whose answer alone counted: while a zombie wrote on, there was never one."""
    zombie = storm(scene, "stormy")
    console.open("", "Overview")
    console.script(SLOW, "/v1/refused_writes")
    console.script("location.hash = '#/refused?topic=stormy'")
    console.until(lambda: zombie.write("late", topic="stormy") and "yann held epoch 2" in console.text("main"), "a row")


def test_a_search_ends_while_a_zombie_writes_on_and_is_not_made_again(console: Console, scene: Scene) -> None:
    zombie = storm(scene, "searched")
    seek(console, "searched", SLOW)
    console.until(lambda: "Reading" in console.text("main"), "no record of another key")
    told = "1 record with this key among 1 read"
    console.until(lambda: zombie.write("late", topic="searched") and told in console.text("main"), "what it found")
    asked = console.script("return window.asked")
    refused_again(console, zombie, "searched")
    assert console.script("return window.asked") == asked
    console.press("Seek")
    console.until(lambda: console.script("return window.asked") == asked + 1, "a person may ask again")


THROTTLED = """
window.asked = 0;
const fetched = window.fetch;
window.fetch = (url, options) => {
  if (!String(url).startsWith(arguments[0])) return fetched(url, options);
  window.asked++;
  const problem = {code: 'THROTTLING_QUOTA_EXCEEDED', detail: 'the quota is used'};
  return Promise.resolve(new Response(JSON.stringify(problem), {status: 429}));
};
"""
"""Answers under a path say that the caller has used its quota."""


def test_a_search_that_used_up_the_quota_is_not_made_again_at_each_change(console: Console, scene: Scene) -> None:
    """While a zombie wrote on, it was made once a second, and used up each new allowance."""
    zombie = storm(scene, "throttled")
    seek(console, "throttled", THROTTLED)
    console.sees("THROTTLING_QUOTA_EXCEEDED", "main")
    for _ in range(2):
        refused_again(console, zombie, "throttled")
    assert console.script("return window.asked") == 1
    console.press("Seek")
    console.until(lambda: console.script("return window.asked") == 2, "a person may ask again")


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[LocalCluster]:
    """Nodes that stay dead."""
    with LocalCluster(tmp_path, port_base=0, restart=False) as cluster:
        yield cluster


def test_a_node_that_is_killed_shows_at_once_and_again_when_it_is_back(
    driver: webdriver.Chrome, mortal: LocalCluster
) -> None:
    console = Console(driver, f"http://{mortal.nodes[0].http}")
    console.reset()
    console.open("", "Overview")
    console.sees("All 3 nodes are up")
    mortal.kill(mortal.nodes[2])
    console.sees("2 of 3 nodes are up")
    console.sees("n3 is away")
    console.picture("node-away")
    assert console.findings() == []
    mortal.start_node(mortal.nodes[2])
    console.sees("All 3 nodes are up")
    mortal.kill(mortal.nodes[0])
    console.sees("This node does not answer. It was last heard at", "body")
    other = console.button(f"n2 at {mortal.nodes[1].http}", ".banner")
    assert other.get_attribute("href") == f"http://{mortal.nodes[1].http}/#/"
    assert console.findings() == []
    console.sees("All 3 nodes are up")  # what was there stays
    console.picture("no-answer")
    mortal.start_node(mortal.nodes[0])
    console.until(lambda: "does not answer" not in console.text("body"), "the node answers again")
    driver.get_log("browser")


def test_partitions_of_which_all_replicas_are_on_nodes_that_are_away_are_told(
    driver: webdriver.Chrome, mortal: LocalCluster
) -> None:
    """No node that was left had a replica, so that none said that it knows no leader."""
    body = {"name": "alone", "partitions": 3, "replication_factor": 1}
    expect(201, call("POST", f"http://{mortal.nodes[0].http}/v1/topics", body))
    console = Console(driver, f"http://{mortal.nodes[0].http}")
    console.reset()
    console.open("", "Overview")
    console.sees("3 partitions have one replica")
    mortal.kill(mortal.nodes[2])
    console.sees("1 partition has no majority of its replicas: no writes until nodes are back.")
    console.open("topics", "Topics")
    console.sees("no majority of 1 of 3", "tbody .chip.bad")
    assert console.findings() == []
    mortal.start_node(mortal.nodes[2])
    console.until(lambda: not console.find("tbody .chip.bad"), "the node is back")
    driver.get_log("browser")
