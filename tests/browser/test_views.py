"""Each view shows what the cluster has, in light and dark, at the width of a phone, and axe has nothing against it."""

import json

import pytest
from integration.api import call

from .looking import PHONE, WIDE, Console
from .scene import Scene, Writer

VIEWS = [
    ("overview", "", "Overview", "refused in the last hour, on"),
    ("topics", "topics", "Topics", "ledger"),
    ("topic", "topics/orders", "orders", "orders/2"),
    ("slot", "topics/orders/0", "orders/0", "History"),
    ("line", "topics/orders/0?tab=line", "orders/0", "carol"),
    ("partition-producers", "topics/orders/0?tab=producers", "orders/0", "alice"),
    ("log", "topics/orders/0?tab=log", "orders/0", "Arrow"),
    ("sessions", "sessions", "Sessions and grants", "pod-b"),
    ("groups", "groups", "Groups", "workers"),
    ("group", "groups/workers", "workers", "worker-1"),
    ("producers", "producers", "Producers", "bob"),
    ("producer", "producers/alice", "alice", "orders/0"),
    ("refused", "refused", "Refused writes", "PRODUCER_FENCED"),
    ("ledger", "ledger", "Ledger", "topic.create"),
    ("cluster", "cluster", "Cluster", "s3://backups/orders"),
    ("settings", "cluster/settings", "Settings", "cluster_id"),
    ("drill", "drill", "Fence drill", "Alice stalls"),
    ("reports", "reports", "Reports", "nothing is uploaded"),
    ("runbooks", "runbooks", "Runbooks", "Disk low"),
    ("runbook", "runbooks/StockadeZombie", "Zombie", "What it means"),
    ("nothing", "nowhere", "Nothing here", "No view has this address"),
]


@pytest.mark.parametrize(("name", "path", "heading", "words"), VIEWS, ids=[view[0] for view in VIEWS])
def test_a_view_shows_its_content_also_in_the_dark_and_on_a_phone_and_axe_finds_nothing(
    console: Console, name: str, path: str, heading: str, words: str
) -> None:
    console.open(path, heading)
    console.sees(words)
    console.picture(name)
    assert console.findings() == []
    console.scheme("dark")
    console.picture(f"{name}-dark")
    assert console.findings() == []
    console.scheme("light")
    console.size(PHONE)
    console.picture(f"{name}-phone")
    assert console.script("return document.documentElement.scrollWidth") <= PHONE[0], "the page scrolls sideways"
    assert console.findings() == []


def test_the_timeline_tells_the_certificates_of_tenures_and_of_a_zombies_write(console: Console) -> None:
    console.open("topics/orders/0", "orders/0")
    console.until(lambda: len(console.find(".bar")) == 2, "two tenures")
    console.until(lambda: console.find(".cross"), "the zombie's write")
    console.script("document.querySelector('.timeline-box').focus()")
    told = []
    for _ in range(3):
        console.keys("\ue014")  # arrow right
        told.append(console.text(".certificate"))
    assert "alice of pod-a" in told[0]
    assert "another writer took over" in told[0]
    assert "Refused after its end\n1 write" in told[0]
    assert "bob of pod-b" in told[1]
    assert "PRODUCER_FENCED" in told[2]
    assert "absent" in told[2]
    console.picture("slot-certificate")


def test_an_entry_of_the_ledger_begins_with_its_act_also_on_a_phone(console: Console) -> None:
    """It began with whose, then how it ended, and what was done came last."""
    for size in (WIDE, PHONE):
        console.size(size)
        console.open("ledger?find=topic.create", "Ledger")
        console.until(lambda: console.find(".refused .record"), "an entry")
        at, act, about, who, outcome = (
            each.rect for each in console.find(".refused .record")[0].find_elements("css selector", ".record > span")
        )
        assert max(abs(at["y"] - act["y"]), abs(about["y"] - outcome["y"])) < 6
        assert about["x"] < outcome["x"]
        if size == PHONE:
            assert act["y"] < about["y"] < who["y"]
            assert act["x"] < at["x"]


def test_a_refused_write_names_the_next_step_and_the_outcome_of_the_batch(console: Console) -> None:
    console.open("refused?topic=orders&partition=0", "Refused writes")
    console.find(".refused .record")[0].click()
    console.sees("Stop this writer")
    console.sees("The batch: not stored.")
    console.sees("bob of pod-b")
    console.sees("alice of pod-a")
    console.picture("refused-open")
    assert console.findings() == []


def test_an_entry_of_the_ledger_tells_caller_and_change(console: Console) -> None:
    console.open("ledger?find=topic.create", "Ledger")
    console.until(lambda: console.find(".refused .record"), "an entry")
    console.find(".refused .record")[0].click()
    console.sees("replication_factor")
    console.sees("127.0.0.1")
    console.picture("ledger-open")
    assert console.findings() == []


def test_the_log_is_read_from_an_offset_by_key_and_as_json(console: Console) -> None:
    console.open("topics/orders/0?tab=log", "orders/0")
    console.until(lambda: len(console.find(".records li")) == 6, "six records")
    console.fill("Offset", "2")
    console.press("Seek")
    console.until(lambda: console.text(".records .offset") == "2", "the record at offset 2")
    console.find(".record")[0].click()
    console.sees('"order": 2', "pre")
    console.picture("log-record")
    console.press("Newest")
    console.fill("Key", "k1")
    console.press("Seek")
    console.sees("2 records with this key among 6 read")
    assert {each.text for each in console.find(".records .key")} == {"k1"}


def test_a_partition_says_who_may_write_who_wants_to_and_who_was_refused(console: Console) -> None:
    console.open("topics/orders/0", "orders/0")
    console.sees("bob\npod-b; took over from another", "section[aria-label='May write']")
    console.sees("carol\npod-c; first of 1 in line", "section[aria-label='Wants to write']")
    console.sees("alice\nsuperseded, with epoch 1", "section[aria-label='Was refused']")
    is_cut = "each => each.scrollWidth > each.clientWidth"
    cut = f"return [...document.querySelectorAll('[aria-label=Tenures] .cell')].filter({is_cut})"
    assert console.script(f"{cut}.map(each => each.innerText)") == []
    console.press("Waiting in line (1)")
    console.sees("when its session ends")


def test_writes_of_a_zombie_are_one_row_that_names_it_and_the_holder(console: Console, scene: Scene) -> None:
    scene.topic("haunted")
    zombie = Writer(scene.url, "pod-z").acquire("haunted", "zoe")
    Writer(scene.url, "pod-y").acquire("haunted", "yann")
    assert {zombie.write("late", topic="haunted") for _ in range(3)} == {403}
    console.open("refused?topic=haunted", "Refused writes")
    console.sees("zoe 3 writes")
    console.sees("yann held epoch 2; it wrote with 1")
    assert len(console.find(".refused > li")) == 1


def test_a_write_under_no_grant_has_no_holders_lane(console: Console, scene: Scene) -> None:
    """Its cross was on the lane of the writer that held the slot, as if that one had been refused."""
    scene.topic("stray")
    Writer(scene.url, "pod-s").acquire("stray", "stan")
    body = {"records": [{"value": "without a token"}]}
    assert call("POST", f"{scene.url}/v1/topics/stray/partitions/0/records", body).status == 428
    console.open("topics/stray/0", "stray/0")
    console.until(lambda: console.find(".cross"), "the write")
    lanes = "return [...document.querySelectorAll('.who')].map(lane => lane.firstChild.data)"
    assert console.script(lanes) == ["stan", "others"]
    cross, lane = console.find(".cross circle")[0].rect, console.find(".who")[1].rect
    assert abs(cross["y"] + cross["height"] / 2 - lane["y"] - lane["height"] / 2) < 10


def test_a_holder_of_any_partition_is_on_the_overview(console: Console, scene: Scene) -> None:
    """Of each topic the view looked at 24 partitions, and said that no writer held a slot."""
    scene.topic("a-wide-one", 30)
    Writer(scene.url, "pod-e").acquire("a-wide-one", "edgar", partition=29)
    console.open("", "Overview")
    console.sees("a-wide-one/29\nedgar", "section[aria-label='Who may write']")


def test_a_shared_writer_holds_no_slot(console: Console, scene: Scene) -> None:
    """The topic's page counted it, and the list of topics did not."""
    scene.topic("together")
    Writer(scene.url, "pod-t").acquire("together", "tom", "Shared")
    console.open("topics/together", "together")
    console.sees("shared", "tbody")
    console.sees("0\nslots held", ".figures")


def test_an_address_that_was_cut_or_typed_is_no_blank_page(console: Console) -> None:
    console.open("topics/100%", "100%")
    console.until(lambda: console.find("main .banner"), "what the node says of it")
    console.keys("gt")
    console.until(lambda: console.text("h1") == "Topics", "another view")


def test_a_search_by_key_goes_on_where_it_stopped(console: Console, scene: Scene) -> None:
    """It said from which offset, and the form forgot the key as soon as that was typed."""
    scene.topic("long", require_fence=False, max_batch_bytes=4_194_304)
    often, seldom = {"key": "often", "value": "x" * 80}, {"key": "seldom", "value": "found"}
    for records in (*[[often] * 10_000] * 3, [seldom]):
        scene.call("POST", "/v1/topics/long/partitions/0/records", {"records": records})
    console.open("topics/long/0?tab=log&key=seldom", "long/0")
    console.sees("0 records with this key among")
    console.press("Go on from there")
    console.sees("1 record with this key among")
    console.sees("found", ".records")


def test_a_search_by_key_shows_all_that_it_found_in_pages(console: Console, scene: Scene) -> None:
    """It told of 120 records and showed fifty, without a word of the others, nor a way to them."""
    scene.topic("hot", require_fence=False)
    records = [{"key": "often", "value": f"number {number}"} for number in range(120)]
    scene.call("POST", "/v1/topics/hot/partitions/0/records", {"records": records})
    console.open("topics/hot/0?tab=log&key=often", "hot/0")
    console.sees("120 records with this key among 120 read")
    console.sees("1–50 of 120", ".pager")
    console.press("Next", "main")
    console.sees("51–100 of 120", ".pager")
    console.press("Next", "main")
    console.sees("101–120 of 120", ".pager")
    assert [each.text for each in console.find(".records .offset")] == [str(offset) for offset in range(19, -1, -1)]
    assert console.findings() == []


def test_partitions_with_one_replica_are_told_where_there_are_nodes_for_three(console: Console, scene: Scene) -> None:
    """They were like all others on each page, while stockade doctor warned of them."""
    scene.call("POST", "/v1/topics", {"name": "alone", "partitions": 2, "replication_factor": 1})
    console.open("topics/alone", "alone")
    console.sees("Partitions 0-1 have one replica: each is lost with the disk of its node, and stops with that node.")
    console.sees("1\nreplica each", ".figures")
    command = console.text(".banner code")
    assert console.findings() == []
    console.open("topics/alone/1", "alone/1")
    console.sees("Partition 1 has one replica: it is lost with the disk of its node, and stops with that node.")
    console.open("topics?find=alone", "Topics")
    console.sees("1", "tbody .chip.warn")
    console.open("", "Overview")
    console.sees("2 partitions have one replica", "section[aria-label='Needs attention']")
    *order, nodes = command.split()
    assert order == ["stockade", "cluster", "move", "alone", "0"]
    for partition in (0, 1):
        move = {"topic": "alone", "partition": partition, "replicas": nodes.split(",")}
        scene.call("POST", "/v1/cluster/reassignments", move)
    console.until(lambda: "have one replica" not in console.text("main"), "three replicas")
    console.open("topics/alone", "alone")
    console.sees("3\nreplicas each", ".figures")
    assert not console.find("main .banner")


def test_values_that_are_binary_or_long_are_shown_as_such(console: Console, scene: Scene) -> None:
    scene.topic("shapes", require_fence=False)
    long = json.dumps({"rows": ["x" * 50] * 9000})
    values = [{"value_base64": "/9j/4AAQSkZJRg=="}, {"value": long}, {"value": None}]
    scene.call("POST", "/v1/topics/shapes/partitions/0/records", {"records": values})
    console.open("topics/shapes/0?tab=log", "shapes/0")
    console.until(lambda: len(console.find(".record")) == 3, "three records")
    console.find(".record")[2].click()
    console.sees("00000000  ff d8 ff e0 00 10 4a 46 49 46", "pre")
    console.sees("Binary, 10 B")
    console.find(".record")[1].click()
    console.sees("the beginning is shown")
    assert len(console.text("pre")) <= 200_000


def test_json_is_indented_and_stays_as_it_was_written(console: Console, scene: Scene) -> None:
    """Numbers of 64 bits were shown with other last digits, names that are numbers in another order, and twins once."""
    scene.topic("exact", require_fence=False)
    written = r'{"id":12345678901234567890, "2":[1.0, { }],"1":"a\" {,}","1":[]}'
    scene.call("POST", "/v1/topics/exact/partitions/0/records", {"records": [{"value": written}]})
    console.open("topics/exact/0?tab=log", "exact/0")
    console.until(lambda: console.find(".record"), "the record")
    console.find(".record")[0].click()
    console.sees("id", "pre")
    lines = ['"id": 12345678901234567890,', '"2": [', "  1.0,", "  {}", "],", r'"1": "a\" {,}",', '"1": []']
    assert console.text("pre").splitlines() == ["{", *(f"  {line}" for line in lines), "}"]


def test_an_open_record_shows_the_whole_of_its_key_and_of_its_headers(console: Console, scene: Scene) -> None:
    """A key of more than 20 characters was cut off, a long header, too, and one of bytes was taken for a text."""
    scene.topic("keyed", require_fence=False)
    key = "5f1d7a1e-0c55-4b0c-9d0a-2f6a5f7b1c3d"
    headers = [{"key": "trace", "value": "t" * 400}, {"key": "digest", "value_base64": "/9j/4AA="}]
    scene.call("POST", "/v1/topics/keyed/partitions/0/records", {"records": [{"key": key, "headers": headers}]})
    for size in (WIDE, PHONE):
        console.size(size)
        console.open("topics/keyed/0?tab=log", "keyed/0")
        console.until(lambda: console.find(".record"), "the record")
        console.find(".record")[0].click()
        console.sees(f"Key\n{key}", ".record-body")
        console.sees("digest: base64:/9j/4AA=", ".record-body")
        assert max(each.rect["x"] + each.rect["width"] for each in console.find(".record-body .chip")) <= size[0]


def test_long_names_are_cut_in_tables_and_no_page_scrolls_sideways(console: Console, scene: Scene) -> None:
    name = "long-" * 49 + "name"
    scene.topic(name)
    Writer(scene.url, "c" * 249).acquire(name, "w" * 249)
    for size in (WIDE, PHONE):
        console.size(size)
        for path in ("topics?find=long-", f"topics/{name}", f"topics/{name}/0", "sessions?find=ccc", ""):
            console.open(path)
            console.until(lambda: "long-" in console.text("main") or "ccc" in console.text("main"), "the long name")
            assert console.script("return document.documentElement.scrollWidth") <= size[0], path
            wider = "return [...document.querySelectorAll('.table-box')].some(b => b.scrollWidth > b.clientWidth + 1)"
            assert not console.script(wider), f"{path}: a table scrolls sideways"


def test_lists_are_searched_and_the_search_is_in_the_address(console: Console) -> None:
    console.open("topics/orders", "orders")
    console.fill("Filter partitions", "free")
    console.until(lambda: len(console.find("tbody")[0].find_elements("css selector", "tr")) == 2, "two free slots")
    assert console.driver.current_url.endswith("#/topics/orders?find=free")
    console.open("sessions?find=pod-b", "Sessions and grants")
    console.sees("1 session")
    assert "pod-a" not in console.text("main")


def test_anything_is_found_by_keys_alone(console: Console) -> None:
    console.open("", "Overview")
    console.keys("/")
    console.until(lambda: console.find("dialog[open]"), "the finder")
    console.keys("ord")
    console.until(lambda: [each.text for each in console.find("[role=option]")] == ["Topic\norders"], "the topic")
    console.picture("finder")
    assert console.findings() == []
    console.keys("\ue007")  # enter
    console.until(lambda: console.text("h1") == "orders", "the topic's view")
    console.keys("gr")
    console.until(lambda: console.text("h1") == "Refused writes", "the view at g r")
    console.keys("?")
    console.sees("find anything", "dialog[open]")
    console.keys("\ue00c")  # escape
    console.until(lambda: not console.find("dialog[open]"), "the list of keys is gone")


def test_single_keys_can_be_turned_off_and_on_again(console: Console) -> None:
    """WCAG 2.1.4: words of a person who dictates led from view to view."""
    console.open("", "Overview")
    console.press("Keys", ".side-bar")
    console.field("These keys are on", "dialog[open]").click()
    assert console.findings() == []
    console.press("Close", "dialog[open]")
    for _ in range(2):
        console.keys("gt/?")
        assert console.driver.current_url.endswith("/#/")
        assert not console.find("dialog[open]")
        console.open("", "Overview")  # the choice stays
    console.press("Keys", ".side-bar")
    console.field("These keys are on", "dialog[open]").click()
    console.press("Close", "dialog[open]")
    console.keys("gg")
    console.until(lambda: console.text("h1") == "Groups", "the view at g g")
    console.keys("t")  # it went on to the topics, as after another g
    console.keys("?")
    console.sees("find anything", "dialog[open]")
    assert console.text("h1") == "Groups"


FOCUSED = "return document.activeElement.textContent"


def test_the_focus_is_where_it_was_when_a_dialog_is_left_and_in_the_view_that_a_link_led_to(console: Console) -> None:
    """It was at the top of the page each time: who has no mouse went through all views again."""
    console.open("topics/orders/0", "orders/0")
    for key in ("\ue00c", "\ue007"):  # escape; enter on Cancel
        console.script("arguments[0].focus()", console.button("Evict the writer"))
        console.keys("\ue007")
        cancel = console.button("Cancel", "dialog[open]")
        if key == "\ue007":
            console.script("arguments[0].focus()", cancel)
        console.keys(key)
        console.until(lambda: not console.find("dialog[open]"), "the dialog is gone")
        assert console.script(FOCUSED) == "Evict the writer"
    console.open("topics", "Topics")
    console.script("arguments[0].focus()", console.button("orders", "main"))
    console.keys("\ue007")
    console.until(lambda: console.text("h1") == "orders", "the topic's view")
    console.until(lambda: console.script("return document.activeElement.id") == "main", "the focus in the view")
    console.sees("orders/0")
    console.keys("\ue004")  # tab
    assert console.script(FOCUSED) == "Topics"
    assert console.script("return Boolean(document.activeElement.closest('.crumbs'))")


def test_every_control_is_reached_by_tab_and_shows_where_it_is(console: Console) -> None:
    console.open("topics/orders", "orders")
    reached = set()
    for _ in range(40):
        console.keys("\ue004")  # tab
        here = "return document.activeElement.textContent.trim()"
        reached.add(console.script(here))
        style = "return getComputedStyle(document.activeElement).outlineStyle"
        assert console.script("return document.activeElement === document.body") or console.script(style) != "none"
    assert {"Overview", "Change", "Evict writers", "Delete", "orders/0"} <= reached


def test_the_pages_of_the_contract_and_of_problems_have_names_for_all_that_can_be_filled_in(console: Console) -> None:
    for path in ("docs/problems", "docs"):
        console.driver.get(f"{console.url}/{path}")
        console.until(lambda: console.find("h2"), "the page")
        console.script("document.querySelectorAll('.operation').forEach(each => { each.open = true; })")
        assert console.findings() == []
    assert console.field("topic").get_attribute("value") == "orders"


def test_the_theme_that_a_person_chose_stays(console: Console) -> None:
    console.open("", "Overview")
    console.press("Theme: auto")
    console.press("Theme: light")
    console.open("", "Overview")
    assert console.script("return document.documentElement.dataset.theme") == "dark"


def test_charts_take_the_colours_of_a_system_that_changes_them_while_the_page_is_open(console: Console) -> None:
    console.open("", "Overview")
    console.until(lambda: console.charts_have("--line"), "grids in light colours")
    console.scheme("dark")
    console.until(lambda: console.charts_have("--line"), "grids in dark colours")


def test_the_page_asks_its_node_alone(console: Console, scene: Scene) -> None:
    console.open("", "Overview")
    console.sees("Records stored")
    asked = console.script("return performance.getEntriesByType('resource').map(each => each.name)")
    assert {url.split("/", 3)[2] for url in asked} == {scene.url.split("/")[2]}


def test_on_a_phone_the_view_that_a_link_led_to_is_in_sight_among_the_others(console: Console) -> None:
    console.size(PHONE)
    console.open("runbooks", "Runbooks")
    place = "return document.querySelector('.side-bar [aria-current]').getBoundingClientRect()"
    console.until(lambda: console.script(place)["right"] <= PHONE[0], "the name of the view")
