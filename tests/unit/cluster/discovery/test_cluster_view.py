"""Who is in the cluster, as a node remembers it."""

import asyncio
import json
import logging
import threading
from pathlib import Path

import msgspec
import pytest

from stockade.cluster.config import NodeConfig
from stockade.cluster.controller.topology.moves import Move
from stockade.cluster.controller.topology.nodes import NodeEntry
from stockade.cluster.discovery import cluster_view
from stockade.cluster.discovery.cluster_view import FILE, ClusterView, is_member
from stockade.cluster.machines import Member
from stockade.cluster.rpc import Catalog
from stockade.raft.wal.errors import DiskRefused

MEMBERS = [Member(f"n{number}", f"http://h{number}:1", f"h{number}:2") for number in (1, 2, 3)]


def config(data: Path, **more: object) -> NodeConfig:
    plain = NodeConfig("n1", "c", str(data), "127.0.0.1:1", "127.0.0.1:2", MEMBERS)
    return msgspec.structs.replace(plain, **more)


def entry(node_id: str, host: str) -> NodeEntry:
    return NodeEntry(node_id, f"http://{host}:1", f"{host}:2", None, 7)


def told(book: ClusterView, index: int, *nodes: NodeEntry, removed: list[str] | None = None) -> None:
    moves = [Move(1, index, ["n1"])]
    asyncio.run(book.follow(Catalog(index, [], None, 0, list(nodes), removed or [], ["n1", "n4"], moves)))


def test_before_the_first_catalog_the_configuration_counts(tmp_path: Path) -> None:
    book = ClusterView(config(tmp_path))
    assert [member.node_id for member in book.members()] == ["n1", "n2", "n3"]
    assert (book.controllers, book.is_controller, book.index) == (["n1", "n2", "n3"], True, 0)
    assert book.raft_peers() == {"n2": ("h2", 2), "n3": ("h3", 2)}
    assert book.urls.get("n2") == "http://h2:1"
    assert (book.urls.get("n9"), book.urls.get(None)) == (None, None)
    assert not is_member(tmp_path)


def test_the_last_catalog_is_known_after_a_restart(tmp_path: Path) -> None:
    told(ClusterView(config(tmp_path)), 9, entry("n1", "h1"), entry("n4", "h4"), removed=["n2"])
    assert is_member(tmp_path)
    book = ClusterView(config(tmp_path))
    assert [member.node_id for member in book.members()] == ["n1", "n3", "n4"], "n3 is configured and may come yet"
    assert (book.index, book.controllers) == (9, ["n1", "n4"])
    assert book.raft_peers() == {"n3": ("h3", 2), "n4": ("h4", 2)}
    assert book.moves == [], "of moves only the present matters"


def test_the_folder_of_a_node_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """Two clusters that both have a topic t have logs with the same indexes and terms: the others took its entries for
    copies of theirs, and a reader got records of the other cluster.
    """
    told(ClusterView(config(tmp_path)), 9, entry("n1", "h1"))
    ClusterView(config(tmp_path)).check_disk(7)
    with pytest.raises(DiskRefused, match=r"members.json: it is of the cluster 'c', and this node is of 'd'"):
        ClusterView(config(tmp_path, cluster_id="d")).check_disk(7)


def test_a_folder_of_older_software_gets_its_cluster_id_from_the_next_catalog(tmp_path: Path) -> None:
    told(ClusterView(config(tmp_path)), 9, entry("n1", "h1"))
    written = json.loads((tmp_path / FILE).read_bytes())
    del written["cluster_id"]
    (tmp_path / FILE).write_text(json.dumps(written))
    book = ClusterView(config(tmp_path, cluster_id="d"))
    book.check_disk(7)
    told(book, 9, entry("n1", "h1"))
    with pytest.raises(DiskRefused):
        ClusterView(config(tmp_path)).check_disk(7)


def test_a_node_that_was_removed_and_added_again_is_not_said_to_have_another_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It tells its disk when it registers; until then the catalog knows none."""
    book = ClusterView(config(tmp_path))
    told(book, 9, entry("n4", "h4"))
    with caplog.at_level(logging.INFO):
        told(book, 10, msgspec.structs.replace(entry("n4", "h4"), incarnation=None))
        assert not caplog.records
        told(book, 11, entry("n4", "h4"))
        told(book, 12, msgspec.structs.replace(entry("n4", "h4"), incarnation=8))
    assert [each.getMessage() for each in caplog.records] == ["cluster: n4 came back with another disk"]


def test_the_address_that_a_node_learned_as_it_joined_gives_way_to_a_newer_one(tmp_path: Path) -> None:
    """It dialled a node that had moved at its old address until it was started again: `joined` had put what the cluster
    told among the members of its configuration, and these count first.
    """
    joining = config(tmp_path, join=["http://h2:1"])
    book = ClusterView(joining)
    assert book.raft_peers() == {"n2": ("h2", 2), "n3": ("h3", 2)}
    told(book, 9, entry("n1", "h1"), entry("n2", "h9"), entry("n3", "h3"))
    assert book.raft_peers()["n2"] == ("h9", 2)
    assert ClusterView(joining).raft_peers()["n2"] == ("h2", 2), "what a configuration says itself counts first"


def test_a_cancelled_follow_waits_until_the_catalog_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread wrote on after the node had stopped and given its folder up: the next process of the node could have
    its newer catalog replaced by this one.
    """
    writing, may_end = threading.Event(), threading.Event()

    def slowly(path: Path, content: bytes) -> None:
        writing.set()
        assert may_end.wait(10)
        path.write_bytes(content)

    monkeypatch.setattr(cluster_view, "write_durably", slowly)

    async def stop() -> None:
        book = ClusterView(config(tmp_path))
        following = asyncio.create_task(book.follow(Catalog(9, [], None, 0, [entry("n4", "h4")])))
        assert await asyncio.to_thread(writing.wait, 10)
        following.cancel()
        await asyncio.wait([following], timeout=0.05)
        assert not following.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await following
        assert is_member(tmp_path)

    asyncio.run(stop())


def test_an_older_catalog_is_ignored(tmp_path: Path) -> None:
    book = ClusterView(config(tmp_path))
    told(book, 9, entry("n4", "h4"))
    told(book, 8, entry("n5", "h5"))
    assert (book.index, book.find("n5")) == (9, None)


def test_the_configured_way_to_a_node_counts_more_than_the_one_it_tells(tmp_path: Path) -> None:
    book = ClusterView(config(tmp_path))
    told(book, 9, entry("n2", "elsewhere"))
    assert book.raft_peers()["n2"] == ("h2", 2)
    assert book.urls.get("n2") == "http://elsewhere:1"


def test_a_removed_node_knows_it(tmp_path: Path) -> None:
    book = ClusterView(config(tmp_path))
    assert not book.is_removed
    told(book, 9, entry("n2", "h2"), removed=["n1"])
    assert book.is_removed
    assert not ClusterView(config(tmp_path, node_id="n2")).is_removed


def test_a_node_that_joins_is_no_controller_and_asks_the_nodes_of_join(tmp_path: Path) -> None:
    book = ClusterView(config(tmp_path, node_id="n3", join=["http://h1:1"]))
    assert (book.controllers, book.is_controller) == (["n1", "n2"], False)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"{")
    with pytest.raises(DiskRefused, match=FILE):
        ClusterView(config(tmp_path))


def test_each_change_of_the_members_is_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    book = ClusterView(config(tmp_path))
    told(book, 9, entry("n1", "h1"), entry("n2", "h2"))
    with caplog.at_level(logging.INFO):
        told(book, 10, entry("n1", "h1"), entry("n2", "h2"))
        assert caplog.records == []
        leaving = msgspec.structs.replace(entry("n2", "h2"), draining=True)
        told(book, 11, msgspec.structs.replace(entry("n1", "h1"), incarnation=8), leaving, entry("n4", "h4"))
        told(book, 12, entry("n4", "h5"), removed=["n1", "n2"])
    assert [record.getMessage() for record in caplog.records] == [
        "cluster: n1 came back with another disk",
        "cluster: n2 is being removed",
        "cluster: n4 is a member, at h4:2",
        "cluster: n4 is at h5:2 now, and was at h4:2",
        "cluster: n1 is no member any more",
        "cluster: n2 is no member any more",
    ]
    assert vars(caplog.records[-1])["event"] == {"event": "cluster_changed", "node_removed": "n2"}


def test_a_configured_address_from_which_its_node_has_moved_gives_way_and_that_of_a_proxy_does_not(
    tmp_path: Path,
) -> None:
    """Nodes dialled one that had moved where their configuration had it, until each was changed and restarted."""
    through_proxy = [*MEMBERS[:2], Member("n3", "http://h3:1", "proxy:2")]
    book = ClusterView(config(tmp_path, members=through_proxy))
    told(book, 9, entry("n1", "h1"), entry("n2", "h2"), entry("n3", "h3"))
    assert book.raft_peers() == {"n2": ("h2", 2), "n3": ("proxy", 2)}
    told(book, 10, entry("n1", "h1"), entry("n2", "h8"), entry("n3", "h9"))
    assert book.raft_peers() == {"n2": ("h8", 2), "n3": ("proxy", 2)}
    assert book.former_ways() == {"n2": ("h2", 2)}, "it may move back, and can say so to no controller; a proxy stays"
    book = ClusterView(config(tmp_path, members=through_proxy))
    assert book.raft_peers() == {"n2": ("h8", 2), "n3": ("proxy", 2)}, "after a restart, too"
    told(book, 11, entry("n1", "h1"), entry("n2", "h2"), entry("n3", "h9"))
    assert (book.raft_peers()["n2"], book.former_ways()) == (("h2", 2), {}), "it moved back"
    new = [*MEMBERS[:1], Member("n2", "http://h2:1", "proxy:3")]
    assert ClusterView(config(tmp_path, members=new)).raft_peers()["n2"] == ("proxy", 3), "a newer configuration"
