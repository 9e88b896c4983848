"""The resources that sessions own in groups: each has any name, a generation to claim it by, and a fence_epoch that
only grows (SEMANTICS 6.4). Pure state of the controller's machine.

A resource without an owner is remembered for RESOURCE_TTL_MS, one that names a partition for as long as that partition
exists. Fence epochs are remembered for ever, as one floor for all forgotten resources: a later owner gets
``fence_epoch > floor``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ....partition.commands import belongs_to_another
from ....partition.errors import GenerationFenced, InvalidRequest, NotOwner, ThrottlingQuotaExceeded
from ...access.quotas import check_most
from ...access.rights import lacks
from ...model import Claim
from ..commands import Disown, Own, Verdict

RESOURCES_MAX = 1_000_000
"""Resources of all groups together, whether owned or not."""
RESOURCE_BYTES_MAX = 1_024
RESOURCE_TTL_MS = 2 * 86_400_000
"""How long a resource is remembered after it lost its last owner, on the lease clock."""
CLAIMS_MAX = 10_000
RETRY_AFTER_MS = 1000
GENERATION_MAX = (1 << 64) - 1
"""The highest generation: its owner keeps the resource until a claim with generation 0 resets it. The fence_epoch still
grows.
"""

Key = tuple[str, str]
"""Group and resource."""


class Resource(msgspec.Struct):
    """A resource. ``owner`` is a session; None: no session owns it, since ``freed_ms`` of the lease clock."""

    owner: str | None
    generation: int
    fence_epoch: int
    freed_ms: int = 0


_NEVER_SEEN = Resource(None, 0, 0)


class Owning(msgspec.Struct):
    """The effect of a command on resources: the verdicts, the keys that changed, and the severed sessions, which lose
    everything because one of their resources was taken. ``lost``: sessions that lost this resource alone.
    """

    verdicts: list[Verdict] = []
    changed: list[Key] = []
    severed: list[str] = []
    lost: list[tuple[str, Key]] = []


class Resources:
    """All resources, by group and name, and by owner."""

    def __init__(self, is_partition: Callable[[str], bool]) -> None:
        """``is_partition``: whether a partition may know who owns the resource of this name."""
        self._is_partition = is_partition
        self.rows: dict[str, dict[str, Resource]] = {}
        self.now_ms: int = 0  # the lease clock
        self.floor: int = 0  # the highest fence_epoch of all forgotten resources
        self.owned_in: Counter[str] = Counter()  # the number of resources with an owner, by group
        self._owned: dict[str, dict[Key, None]] = {}
        self._by_topic: dict[str, dict[Key, None]] = {}
        self._count = 0
        self._founders: dict[str, str] = {}  # group -> principal of its first owner, if that had one
        self._groups: Counter[str] = Counter()  # the number of groups that a principal founded

    def check_may_take(self, command: Own, principal_of: Callable[[str], str]) -> None:
        """Raises PermissionDenied where a claim would take a resource from another principal's session and the caller
        may not evict.
        """
        if command.by.evicts:
            return
        for claim in command.claims:
            row = self.find(command.group, claim.resource)
            takes = claim.generation is not None and (claim.generation == 0 or claim.generation >= row.generation)
            owner = "" if row.owner is None else principal_of(row.owner)
            if takes and belongs_to_another(owner, command.by.principal):
                raise lacks(command.by, f"evict resource:{command.group}/{claim.resource}", "another principal owns it")

    def free_partitions(
        self, topic: str, group: str, principal: str, principal_of: Callable[[str], str]
    ) -> list[tuple[str, Key]]:
        """Free the partitions of a topic that sessions of other principals own in a group; returns (session, key)s."""
        owned = ((self.find(*key).owner, key) for key in self.of_topic(topic) if key[0] == group)
        others = ((session, key) for session, key in owned if session is not None)
        freed = [each for each in others if belongs_to_another(principal_of(each[0]), principal)]
        for _, key in freed:
            self._free(key)
        return freed

    def own(self, command: Own) -> Owning:
        """Decide a command's claims, one by one or, with ``atomic``, all or none. The caller knows that the session is
        alive.

        Raises InvalidRequest, GenerationFenced, ThrottlingQuotaExceeded.
        """
        check_names([claim.resource for claim in command.claims])
        rows = self.rows.get(command.group, {})
        if self._count + sum(claim.resource not in rows for claim in command.claims) > RESOURCES_MAX:
            raise ThrottlingQuotaExceeded(
                f"the groups would have over {RESOURCES_MAX} resources", retry_after_ms=RETRY_AFTER_MS
            )
        if not rows:
            check_most(command.by, self._groups[command.by.principal], "groups")
        if command.atomic:
            self._check_all(command)
        if not rows and command.by.principal:
            self._found(command.group, command.by.principal)
        done = Owning()
        for claim in command.claims:
            wanted = self._judge(command, claim)
            if wanted is not None:
                self._take(command, claim.resource, wanted, done)
            done.verdicts.append(self._verdict(command.group, claim.resource, command.session))
        return done

    def disown(self, command: Disown) -> Owning:
        """Free resources of a session; those without an owner are skipped. Raises InvalidRequest, NotOwner."""
        check_names(command.resources)
        for resource in command.resources:
            row = self.find(command.group, resource)
            if row.owner not in (None, command.session):
                detail = f"another session owns {resource} in group {command.group}"
                raise NotOwner(detail, fence_epoch=row.fence_epoch, resource=resource, group=command.group)
        done = Owning()
        for resource in command.resources:
            row = self.find(command.group, resource)
            if row.owner is not None:
                self._free((command.group, resource))
                done.changed.append((command.group, resource))
                done.lost.append((command.session, (command.group, resource)))
            done.verdicts.append(Verdict(resource, False, row.generation, row.fence_epoch))
        return done

    def end_session(self, session: str) -> list[Key]:
        """Free all resources of a session; returns their keys in ascending order, which is the same on a restored
        replica.
        """
        freed = sorted(self._owned.get(session, ()))
        for key in freed:
            self._free(key)
        return freed

    def is_idle(self, group: str, resource: str, now_ms: int) -> bool:
        """Whether a resource had no owner for RESOURCE_TTL_MS, and no partition may remember its fence_epoch."""
        row = self.find(group, resource)
        return (
            row.owner is None
            and row is not _NEVER_SEEN
            and now_ms - row.freed_ms >= RESOURCE_TTL_MS
            and not self._is_partition(resource)
        )

    def forget(self, keys: Iterable[Key]) -> None:
        """Forget those of these resources that are idle."""
        for group, resource in keys:
            if self.is_idle(group, resource, self.now_ms):
                self.floor = max(self.floor, self.rows[group].pop(resource).fence_epoch)
                self._count -= 1
                if (named := partition_named(resource)) is not None:
                    self._by_topic[named[0]].pop((group, resource))
                    if not self._by_topic[named[0]]:
                        del self._by_topic[named[0]]
                if not self.rows[group]:
                    del self.rows[group], self.owned_in[group]
                    if (founder := self._founders.pop(group, None)) is not None:
                        self._groups[founder] -= 1

    def find(self, group: str, resource: str) -> Resource:
        """A resource; generation and fence_epoch are 0 for one that was never owned, or is forgotten."""
        return self.rows.get(group, {}).get(resource, _NEVER_SEEN)

    def of_topic(self, topic: str) -> list[Key]:
        """The resources that have names of partitions of a topic, ascending."""
        return sorted(self._by_topic.get(topic, ()))

    def owned_by(self, session: str) -> list[Key]:
        """The resources of a session, in no order that counts."""
        return list(self._owned.get(session, ()))

    def save(self) -> list[tuple[str, list[tuple[str, Resource]]]]:
        """The state on which future answers depend."""
        return [(group, list(rows.items())) for group, rows in self.rows.items()]

    def founders(self) -> list[tuple[str, str]]:
        """Groups whose first owner had a principal, and that principal, ascending."""
        return sorted(self._founders.items())

    def load(
        self,
        saved: list[tuple[str, list[tuple[str, Resource]]]],
        floor: int,
        founders: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Inverse of ``save``, on an empty instance."""
        self.floor = floor
        for group, principal in founders:
            self._found(group, principal)
        for group, rows in saved:
            for resource, row in rows:
                self._put((group, resource), row)

    def _found(self, group: str, principal: str) -> None:
        self._founders[group] = principal
        self._groups[principal] += 1

    def _check_all(self, command: Own) -> None:
        """Raises GenerationFenced with all verdicts if any claim must be refused."""
        refused = [claim for claim in command.claims if self._judge(command, claim) is None]
        if refused:
            first = self.find(command.group, refused[0].resource)
            names = {claim.resource for claim in refused}
            raise GenerationFenced(
                resource=refused[0].resource,
                generation=first.generation,
                fence_epoch=first.fence_epoch,
                results=[self._preview(command.group, claim.resource, names) for claim in command.claims],
            )

    def _preview(self, group: str, resource: str, refused: set[str]) -> dict[str, object]:
        row = self.find(group, resource)
        preview = {"resource": resource, "granted": False, "generation": row.generation}
        code = {"code": GenerationFenced.code} if resource in refused else {}
        return {**preview, "fence_epoch": row.fence_epoch, **code}

    def _judge(self, command: Own, claim: Claim) -> Resource | None:
        """The resource after the claim; None: the claim is refused."""
        row = self.rows.get(command.group, {}).get(claim.resource)
        return judge(row, command.session, claim.generation, self.floor)

    def _take(self, command: Own, resource: str, wanted: Resource, done: Owning) -> None:
        before, key = self.find(command.group, resource), (command.group, resource)
        if before == wanted:
            return
        victim = before.owner
        if victim is not None:
            self._free(key)
            if victim != command.session and command.sever == "session":
                done.severed.append(victim)
                done.changed += self.end_session(victim)
            elif victim != command.session:
                done.lost.append((victim, key))
        self._put(key, wanted)
        done.changed.append(key)

    def _verdict(self, group: str, resource: str, session: str) -> Verdict:
        row = self.find(group, resource)
        granted = row.owner == session
        return Verdict(resource, granted, row.generation, row.fence_epoch, None if granted else GenerationFenced.code)

    def _put(self, key: Key, row: Resource) -> None:
        group, resource = key
        rows = self.rows.setdefault(group, {})
        if resource not in rows:
            self._count += 1
            named = partition_named(resource)
            if named is not None:
                self._by_topic.setdefault(named[0], {})[key] = None
        rows[resource] = row
        if row.owner is not None:
            self._owned.setdefault(row.owner, {})[key] = None
            self.owned_in[group] += 1

    def _free(self, key: Key) -> None:
        row = self.rows[key[0]][key[1]]
        assert row.owner is not None
        owned = self._owned[row.owner]
        del owned[key]
        if not owned:
            del self._owned[row.owner]
        row.owner, row.freed_ms = None, self.now_ms
        self.owned_in[key[0]] -= 1


def judge(row: Resource | None, session: str, requested: int | None, floor: int = 0) -> Resource | None:
    """The table of SEMANTICS 6.4: the resource after a claim by ``session`` with the generation ``requested``; None:
    the claim is refused.

    ``row`` None: never owned, or forgotten, and then its fence_epoch was at most ``floor``.
    """
    if row is None:
        return Resource(session, 1, floor + 1)
    least = row.generation + 1
    if requested == 0:
        wanted = 1
    elif row.owner is None:
        wanted = min(max(least, requested or 0), GENERATION_MAX)
    elif row.owner == session:
        if requested is None or requested < least:
            return row
        wanted = requested
    elif requested is None or requested < row.generation or row.generation == GENERATION_MAX:
        return None
    else:
        wanted = max(least, requested)
    return Resource(session, wanted, row.fence_epoch + 1)


def check_names(resources: Sequence[str]) -> None:
    """Check the number of resources, and that their names differ and are not too long. Raises InvalidRequest."""
    if not 1 <= len(resources) <= CLAIMS_MAX:
        raise InvalidRequest(f"claims: not 1 to {CLAIMS_MAX}")
    if len(set(resources)) != len(resources):
        raise InvalidRequest("claims: a resource is named twice")
    for resource in resources:
        if not 1 <= len(resource.encode()) <= RESOURCE_BYTES_MAX:
            raise InvalidRequest(f"resource: not 1 to {RESOURCE_BYTES_MAX} bytes")


def partition_named(resource: str) -> tuple[str, int] | None:
    """Topic and partition of a resource that is named ``<topic>/<partition>``; None for another name."""
    topic, slash, number = resource.rpartition("/")
    if not slash or not topic or not number.isdecimal() or str(int(number)) != number:
        return None
    return topic, int(number)
