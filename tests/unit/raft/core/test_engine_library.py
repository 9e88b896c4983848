"""The engine refuses a pysyncobj whose private names are not those that it replaces."""

from typing import Any

import pytest
from pysyncobj import SyncObj

from stockade.raft.core.library import check_library
from stockade.raft.core.raft_node import RaftNode


def without(name: str) -> type:
    """SyncObj as it would be if one of its private names had been renamed."""
    members = {key: value for key, value in vars(SyncObj).items() if key not in {name, "__dict__", "__weakref__"}}
    return type("Renamed", (), members)


def test_the_installed_library_is_accepted() -> None:
    check_library(RaftNode, SyncObj, "0.3.17")


def test_another_version_is_refused() -> None:
    with pytest.raises(ImportError, match=r"0\.3\.18"):
        check_library(RaftNode, SyncObj, "0.3.18")


@pytest.mark.parametrize(
    "name",
    [
        "_SyncObj__onMessageReceived",
        "_SyncObj__sendAppendEntries",
        "_SyncObj__applyLogEntries",
        "_SyncObj__onBecomeLeader",
        "_SyncObj__setState",
        "_onTick",
        "_checkCommandsToApply",
    ],
)
def test_a_missing_method_is_refused(name: str) -> None:
    with pytest.raises(ImportError, match=name):
        check_library(RaftNode, without(name), "0.3.17")


def test_a_missing_field_is_refused() -> None:
    class Reader:
        def read(self: Any) -> Any:
            return self._SyncObj__noSuchField

    with pytest.raises(ImportError, match="noSuchField"):
        check_library(Reader, SyncObj, "0.3.17")
