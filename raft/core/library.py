"""What RaftNode has of pysyncobj, which no other module imports. After construction four methods of ``SyncObj`` run:
``__setCurrentTerm`` (sets term and vote, and saves them through our log), ``__setState`` (sets the role),
``__onBecomeLeader`` (appends the no-op of a new leader) and ``__getCurrentLogIndex``, which that one calls. Four of its
fields hold our state: term, commit index, applied index, and the proposals that wait for their commit. The methods of
``SyncObj`` that send, receive, tick, apply, dump or unpickle refuse to be called. Its transport and timers are
constructed and never used. docs/defects.md measures this, and names the defect behind each replacement.
"""

from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

import pysyncobj.syncobj as library
from pysyncobj import SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from ..log.group_log import GroupLog

if TYPE_CHECKING:

    class SyncObj:
        """The class that type checkers see in place of the library's, which has no types."""

        _SyncObj__setCurrentTerm: Any
        _SyncObj__onBecomeLeader: Any

        def __init__(self, **arguments: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
else:
    from pysyncobj import SyncObj

FOLLOWER, CANDIDATE = library._RAFT_STATE.FOLLOWER, library._RAFT_STATE.CANDIDATE


def _create_journal(file: Any, original: Callable[[Any], Any] = library.createJournal) -> Any:
    return file if isinstance(file, GroupLog) else original(file)


library.createJournal = _create_journal  # the library has no other way to be given one


def arguments(node_id: str, log: GroupLog) -> dict[str, Any]:
    """The constructor's arguments for a replica that is driven from outside, whose journal is ``log``."""
    configuration = SyncObjConf(autoTick=False, useFork=False, commandsWaitLeader=False, journalFile=log)
    transport = Transport(None, None, None)
    return {"selfNode": Node(node_id), "otherNodes": [], "conf": configuration, "transport": transport}


def check_library(cls: type, library_class: type = SyncObj, version: str = VERSION) -> None:
    """Raise ImportError for a pysyncobj of another version, or that lacks a name which ``cls`` replaces or uses."""
    if version != "0.3.17":
        raise ImportError(f"pysyncobj 0.3.17 is needed, not {version}: its private methods are replaced here")
    functions = [getattr(member, "fget", member) for member in vars(cls).values()]
    codes: list[CodeType] = [function.__code__ for function in functions if hasattr(function, "__code__")]
    replaced = {name for name in vars(cls) if name.startswith("_SyncObj__")} | {"_onTick", "_checkCommandsToApply"}
    used = {name for code in codes for name in code.co_names if name.startswith("_SyncObj__")}
    fields = library_class.__init__.__code__.co_names  # type: ignore[misc]
    missing = (replaced | (used - {*fields})) - {*vars(library_class)}
    if missing:
        raise ImportError(f"pysyncobj {version} lacks {', '.join(sorted(missing))}")
