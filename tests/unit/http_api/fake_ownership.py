"""The part of a fake node that knows groups, tickets, producers and operators' fences, simply."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from stockade.cluster.model import NO_PRINCIPAL, By, Claim
from stockade.partition.api.ledger import session_handle
from stockade.partition.api.ownership import Evicted, OwnResult, Resource, SessionFenced, Ticket, grants_digest
from stockade.partition.api.producers import BatchStatus, ProducerOnPartition, ProducerPair, ProducerStatus
from stockade.partition.api.topics import Topic
from stockade.partition.commands import ClearFence, Configure, InstallReader, encode_command
from stockade.partition.errors import (
    FeatureLevelTooLow,
    GenerationFenced,
    InconsistentTopicId,
    InvalidRequest,
    NotFound,
    NotOwner,
    PlanChanged,
    ProducerFenced,
)
from stockade.partition.state.machine import PartitionConfig, PartitionMachine

TERM = 6


class FakeOwning:
    """A base of FakeService."""

    node_id: str
    shared: Any

    async def get_topic(self, name: str) -> Topic:
        raise NotImplementedError

    def _check_controlling(self) -> None:
        raise NotImplementedError

    def _session(self, session: str, by: By = NO_PRINCIPAL) -> Any:
        raise NotImplementedError

    def _topic(self, name: str) -> Any:
        raise NotImplementedError

    async def own(
        self,
        group: str,
        session: str,
        claims: Sequence[Claim],
        *,
        atomic: bool,
        sever: Literal["session", "resource"],
        unwritable: Sequence[str] = (),
        by: By = NO_PRINCIPAL,
    ) -> list[OwnResult]:
        self._check_controlling()
        self._session(session, by)
        verdicts = [self._claim(group, session, claim) for claim in claims]
        refused = next((verdict for verdict in verdicts if not verdict.granted), None)
        if atomic and refused is not None:
            raise GenerationFenced(
                resource=refused.resource,
                generation=refused.generation,
                fence_epoch=refused.fence_epoch,
                results=[msgspec.to_builtins(verdict) for verdict in verdicts],
            )
        for verdict in verdicts:
            if verdict.granted:
                self.shared.owned[group, verdict.resource] = (session, verdict.generation, verdict.fence_epoch)
                self._tell_partition(group, verdict)
        return verdicts

    def _claim(self, group: str, session: str, claim: Claim) -> OwnResult:
        owner, generation, fence_epoch = self.shared.owned.get((group, claim.resource), (None, 0, 0))
        wanted = claim.generation
        if wanted == 0:
            return OwnResult(claim.resource, True, 1, fence_epoch + 1)
        if not fence_epoch:
            return OwnResult(claim.resource, True, 1, 1)
        if owner is None:
            return OwnResult(claim.resource, True, max(generation + 1, wanted or 1), fence_epoch + 1)
        if owner == session:
            return OwnResult(claim.resource, True, generation, fence_epoch)
        if wanted is None or wanted < generation:
            return OwnResult(claim.resource, False, generation, fence_epoch, "GENERATION_FENCED")
        return OwnResult(claim.resource, True, max(wanted, generation + 1), fence_epoch + 1)

    def _tell_partition(self, group: str, verdict: OwnResult) -> None:
        name, _, number = verdict.resource.rpartition("/")
        topic = self.shared.topics.get(name)
        if topic is not None and number.isdecimal() and int(number) < len(topic.machines):
            self._tell(topic.machines[int(number)], InstallReader(group, verdict.fence_epoch))

    async def disown(
        self, group: str, session: str, resources: Sequence[str], by: By = NO_PRINCIPAL
    ) -> list[OwnResult]:
        self._check_controlling()
        self._session(session, by)
        for resource in resources:
            owner, _, fence_epoch = self.shared.owned.get((group, resource), (None, 0, 0))
            if owner not in (None, session):
                raise NotOwner(fence_epoch=fence_epoch, group=group, resource=resource)
        results = []
        for resource in resources:
            _, generation, fence_epoch = self.shared.owned.get((group, resource), (None, 0, 0))
            self.shared.owned[group, resource] = (None, generation, fence_epoch)
            results.append(OwnResult(resource, False, generation, fence_epoch))
        return results

    async def list_resources(self, group: str) -> list[Resource]:
        self._check_controlling()
        return [
            Resource(
                name, owner is not None, self._session(owner).client_id if owner else None, generation, fence_epoch
            )
            for (of, name), (owner, generation, fence_epoch) in sorted(self.shared.owned.items())
            if of == group
        ]

    async def change_topic(
        self,
        name: str,
        topic_id: int | None,
        *,
        partitions: int | None,
        seal: bool,
        config: Mapping[str, Any],
        by: By = NO_PRINCIPAL,
    ) -> Topic:
        self._check_controlling()
        topic = self._topic(name)
        if topic_id not in (None, topic.topic_id):
            raise InconsistentTopicId(topic_id=topic.topic_id)
        if partitions is not None and partitions < len(topic.machines):
            raise InvalidRequest("partitions: fewer than now")
        topic.config = msgspec.structs.replace(topic.config, **config)
        topic.sealed = topic.sealed or seal
        for number in range(len(topic.machines), partitions or 0):
            machine = PartitionMachine(PartitionConfig(topic.topic_id), self.shared.log(topic.topic_id, number))
            topic.machines.append(machine)
            topic.leaders.append(self.node_id)
        order = self.shared.next_index()
        for machine in topic.machines:
            self._tell(machine, Configure(order, self.shared.partition_config(topic)))
        return await self.get_topic(name)

    async def cancel_ticket(
        self, ticket: str, session: str, by: By = NO_PRINCIPAL, *, or_release: bool = False
    ) -> Ticket:
        self._check_controlling()
        self._session(session, by)
        if self.shared.holders.get(ticket, session) != session:
            raise ProducerFenced(current_epoch=1, reason="not_holder")
        known = self.shared.tickets.get(ticket)
        is_given_up = known is None or known.state == "waiting"
        if known is not None and not is_given_up and or_release:
            is_given_up = self.shared.grants.pop("g" + ticket[1:], None) is not None
        if is_given_up:
            self.shared.tickets.pop(ticket, None)
            return Ticket(ticket, "cancelled", None, "", [], None)
        return known  # type: ignore[no-any-return]

    async def get_producer(self, key: int | str) -> ProducerStatus:
        self._check_controlling()
        producers = self.shared.producers
        pair = producers.get(key) or next((p for p in producers.values() if p.producer_id == key), None)
        if pair is None:
            raise NotFound("there is no such producer", what="producer")
        found = [
            ProducerOnPartition(name, number, entry.run.epoch, entry.run.last_seq, None, [])
            for name, topic in sorted(self.shared.topics.items())
            for number, machine in enumerate(topic.machines)
            if (entry := machine.producer(pair.producer_id)) is not None
        ]
        found = [
            msgspec.structs.replace(status, batches=[BatchStatus(0, status.last_seq, 0, status.last_seq, 0)])
            for status in found
            if status.last_seq >= 0
        ]
        return ProducerStatus(pair.producer_id, pair.producer_epoch, pair.name, found)

    async def fence_producer(self, name: str, by: By = NO_PRINCIPAL) -> ProducerPair:
        self._check_controlling()
        known = self.shared.producers.get(name)
        if known is None:
            raise NotFound("there is no such producer", what="producer")
        fenced = ProducerPair(known.producer_id, known.producer_epoch + 1, name)
        self.shared.producers[name] = fenced
        return fenced

    async def fence_session(
        self,
        handle: str,
        *,
        reason: str | None = None,
        if_grants: str | None = None,
        if_resources: int | None = None,
        by: By = NO_PRINCIPAL,
    ) -> SessionFenced:
        self._check_controlling()
        if handle == "1" * 16:
            raise FeatureLevelTooLow(feature_level=1, needed=2)
        found = [each for each in self.shared.sessions.values() if session_handle(each.session) == handle]
        if not found:
            raise NotFound(what="session")
        grants = sorted(self.shared.grants)
        if if_grants not in (None, grants_digest(grants)):
            raise PlanChanged(grants=grants)
        self.shared.sessions.pop(found[0].session)
        return SessionFenced(handle, found[0].client_id, grants, if_resources or 0)

    async def fence_topic(
        self,
        topic: str,
        partitions: Sequence[int] | None,
        topic_id: int | None,
        reason: str | None,
        if_grants: Sequence[str] | None = None,
        by: By = NO_PRINCIPAL,
    ) -> list[Evicted]:
        self._check_controlling()
        if if_grants is not None and sorted(if_grants) != sorted(self.shared.grants):
            raise PlanChanged(grants=sorted(self.shared.grants))
        found = self._topic(topic)
        if topic_id not in (None, found.topic_id):
            raise InconsistentTopicId(topic_id=found.topic_id)
        fenced = []
        for number in partitions if partitions is not None else range(len(found.machines)):
            machine = found.machines[number]
            gone = [tenure.grant_id for tenure in machine.tenures() if tenure.until_ms is None]
            order = self.shared.next_index()
            self._tell(machine, ClearFence(f"f-{order}", machine.topic_epoch + 1, order, ends="fenced"))
            fenced.append(Evicted(number, machine.topic_epoch, gone))
        return fenced

    def _tell(self, machine: PartitionMachine, command: InstallReader | Configure | ClearFence) -> None:
        machine.apply(self.shared.next_index(), TERM, encode_command(command))
