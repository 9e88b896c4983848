"""The leader's rounds: what partitions have forgotten, and names that nobody uses, through the whole shell."""

from pathlib import Path

import pytest

from stockade.cluster import sweeper
from stockade.cluster.model import Claim
from stockade.cluster.node_service import NodeService
from stockade.cluster.sweeper import Sweeper
from stockade.partition.commands import Stamp
from stockade.partition.errors import InvalidProducerIdMapping

from .fakes import FakeHost, fake
from .test_node import append, run


def test_a_name_goes_when_its_partitions_have_forgotten_it_and_its_zombie_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "PAUSE_S", 0.0)

    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = service._controller().control
        registry = control.machine.registry
        sweep = Sweeper(control, service._observer._router).sweep
        made = await service.init_producer("w", None, 60_000, None)
        pid = made.producer_id
        await append(service, b"x", stamp=Stamp(pid, 0, 0))
        monkeypatch.setattr("stockade.cluster.registry.NAME_TTL_MS", 0)
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
        assert (await service.init_producer("w", (pid, 0), 60_000, None)).producer_id != pid

    run(tmp_path, monkeypatch, scenario)


def test_a_resource_that_nobody_owns_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "PAUSE_S", 0.0)

    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = service._controller().control
        sweep = Sweeper(control, service._observer._router).sweep
        session = (await service.open_session("a", 300_000)).session
        await service.own("g", session, [Claim("left"), Claim("owned")], atomic=True, sever="session")
        await service.disown("g", session, ["left"])
        await sweep()
        assert len(await service.list_resources("g")) == 2
        monkeypatch.setattr("stockade.cluster.resources.RESOURCE_TTL_MS", 0)
        await sweep()
        assert [each.resource for each in await service.list_resources("g")] == ["owned"]

    run(tmp_path, monkeypatch, scenario)


def test_who_does_not_lead_sweeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = service._controller().control
        await service.init_producer("w", None, 60_000, None)
        monkeypatch.setattr("stockade.cluster.registry.NAME_TTL_MS", 0)
        fake(control.group).leading = False
        before = len(fake(control.group).proposed)
        await Sweeper(control, service._observer._router).sweep()
        assert len(fake(control.group).proposed) == before
        assert "w" in control.machine.registry.rows

    run(tmp_path, monkeypatch, scenario)
