"""The leader's rounds: what partitions have forgotten, and names that no producer uses, through the whole shell."""

from pathlib import Path

import pytest

from stockade.cluster.leader import garbage_collector
from stockade.cluster.leader.garbage_collector import GarbageCollector
from stockade.cluster.model import Claim
from stockade.cluster.node.node_service import NodeService
from stockade.partition.commands import Stamp
from stockade.partition.errors import InvalidProducerIdMapping

from ..fakes import FakeHost, fake
from ..node.test_node import append, run


def test_a_producer_name_is_forgotten_after_its_partitions_forgot_it_and_its_zombie_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collector, "PAUSE_S", 0.0)

    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = service.at_controller().control
        registry = control.machine.registry
        sweep = GarbageCollector(control, service._group_statuses._router).sweep
        made = await service.at_controller().producers.init_producer("w", None, None)
        pid = made.producer_id
        await append(service, b"x", stamp=Stamp(pid, 0, 0))
        monkeypatch.setattr("stockade.cluster.controller.producers.NAME_TTL_MS", 0)
        await sweep()
        assert registry.enrolments.is_anywhere([pid]), "its partition knows it"
        assert "w" in registry.rows
        replica = await service.partition("t", 0, None)
        replica.machine.producers.make_room(0)
        await sweep()
        assert not registry.enrolments.is_anywhere([pid])
        assert "w" not in registry.rows
        with pytest.raises(InvalidProducerIdMapping):
            await append(service, b"y", stamp=Stamp(pid, 0, 0))
        assert (await service.at_controller().producers.init_producer("w", (pid, 0), None)).producer_id != pid

    run(tmp_path, monkeypatch, scenario)


def test_an_idle_resource_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collector, "PAUSE_S", 0.0)

    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = service.at_controller().control
        sweep = GarbageCollector(control, service._group_statuses._router).sweep
        session = (await service.at_controller().sessions.open_session("a", 300_000)).session
        await service.at_controller().resources.own(
            "g", session, [Claim("left"), Claim("owned")], atomic=True, sever="session"
        )
        await service.at_controller().resources.disown("g", session, ["left"])
        await sweep()
        assert len(await service.at_controller().resources.list_resources("g")) == 2
        monkeypatch.setattr("stockade.cluster.controller.ownership.resources.RESOURCE_TTL_MS", 0)
        await sweep()
        assert [each.resource for each in await service.at_controller().resources.list_resources("g")] == ["owned"]

    run(tmp_path, monkeypatch, scenario)


def test_only_the_leader_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = service.at_controller().control
        await service.at_controller().producers.init_producer("w", None, None)
        monkeypatch.setattr("stockade.cluster.controller.producers.NAME_TTL_MS", 0)
        fake(control.group).leading = False
        before = len(fake(control.group).proposed)
        await GarbageCollector(control, service._group_statuses._router).sweep()
        assert len(fake(control.group).proposed) == before
        assert "w" in control.machine.registry.rows

    run(tmp_path, monkeypatch, scenario)
