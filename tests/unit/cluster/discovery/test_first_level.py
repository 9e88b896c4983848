"""A new cluster begins with the newest feature level, or after a while with the first one."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stockade.cluster.condition import Condition
from stockade.cluster.discovery import first_level
from stockade.cluster.discovery.cluster_view import ClusterView
from stockade.cluster.discovery.first_level import FirstLevel
from stockade.cluster.features import NEWEST_LEVEL
from stockade.cluster.groups import Router
from stockade.partition.errors import FeatureUpdateFailed
from stockade.raft.host import Software

PATIENCE_S, LOOK_S = 0.2, 0.05


class Refusing:
    """A controller group that refuses each proposal."""

    def __init__(self) -> None:
        self.proposals = 0

    async def decide(self, *_: Any) -> object:
        self.proposals += 1
        raise FeatureUpdateFailed("not yet")


def test_a_level_that_is_refused_is_proposed_again_only_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was proposed again at once, for two minutes, and each proposal was a commit of the controller group."""
    monkeypatch.setattr(first_level, "PATIENCE_S", PATIENCE_S)
    monkeypatch.setattr(first_level, "LOOK_S", LOOK_S)
    router = Refusing()
    members = [SimpleNamespace(node_id="n1", incarnation=1)]
    view = SimpleNamespace(changed=Condition(), members=lambda: members, controllers=["n1"])
    software = Software("1", 1, NEWEST_LEVEL)
    raising = FirstLevel(["n1"], cast(ClusterView, view), lambda _: software, cast(Router, router))
    asyncio.run(raising.run())
    assert 1 <= router.proposals <= PATIENCE_S / LOOK_S + 1
