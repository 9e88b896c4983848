"""Principals as the controller's leader serves them. A change is answered when every node that can be reached acts by
it. After that, a deleted token lets no request in, except at a node that is cut off from the controller.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from heapq import nsmallest

import msgspec

from ...partition.api.principals import IssuedToken, PrincipalInfo, PrincipalList, PrincipalQuota, PrincipalTokenInfo
from ...partition.errors import RequestTimedOut
from ..access.principals import Principal, PrincipalToken, new_token, token_id, unix_ms
from ..access.quotas import NO_QUOTA, Quota
from ..controller.commands import Command
from ..controller.principals import (
    AddPrincipalToken,
    DeletePrincipal,
    DeletePrincipalToken,
    PrincipalPut,
    PutPrincipal,
)
from ..controller.timed import Done
from ..model import By
from .controller_group import ControllerGroup
from .topic_service import GroupStatusReader


class PrincipalService:
    """Implements api.Principals."""

    def __init__(self, control: ControllerGroup, group_statuses: GroupStatusReader) -> None:
        self._control = control
        self._group_statuses = group_statuses

    async def list_principals(self, prefix: str, most: int, configured: Iterable[Principal]) -> PrincipalList:
        """The cluster's principals and those that are ``configured`` on this node, by name; linearizable."""
        await self._control.barrier()
        rows = self._control.machine.principals.rows
        of_node = {row.name: row for row in configured}
        found = [row for row in (rows | of_node).values() if row.name.startswith(prefix)]
        first = nsmallest(most, found, lambda row: row.name)
        return PrincipalList(len(found), [info(row, configured=row.name in of_node) for row in first])

    async def get_principal(self, name: str) -> PrincipalInfo:
        """A principal of the cluster; linearizable. Raises NotFound."""
        await self._control.barrier()
        return info(self._control.machine.principals.find(name))

    async def put_principal(
        self,
        name: str,
        rights: Sequence[str],
        certificates: Sequence[str],
        tokens: Sequence[PrincipalToken] | None,
        *,
        subjects: Sequence[str] = (),
        quota: Quota = NO_QUOTA,
        opens: bool,
        by: By,
    ) -> tuple[PrincipalInfo, bool]:
        """Create or replace a principal; returns it, and whether it is new."""
        asked = Principal(name, list(rights), list(tokens or ()), list(certificates), list(subjects), quota)
        put = await self._control.decide(
            lambda now: PutPrincipal(
                now_ms=now,
                by=by,
                name=name,
                rights=asked.rights,
                certificates=asked.certificates,
                tokens=None if tokens is None else asked.tokens,
                opens=opens,
                subjects=tuple(subjects),
                quota=quota,
            ),
            PrincipalPut,
        )
        # No barrier: its refusal would deny the change. A deletion may have been applied together with it.
        told = info(self._control.machine.principals.rows.get(name, asked))
        await self._until_known()
        return told, put.created

    async def delete_principal(self, name: str, by: By) -> None:
        """Delete a principal of the cluster. Raises NotFound, InvalidRequest."""
        await self._change(lambda now: DeletePrincipal(now_ms=now, by=by, name=name))

    async def add_token(self, name: str, digest: str | None, expires: datetime | None, by: By) -> IssuedToken:
        """Give a principal another token. ``digest``: the hash of a token that the caller made; None: a token is made
        here, and only its hash goes to the other nodes. Raises NotFound, InvalidRequest.
        """
        made = new_token() if digest is None else None
        token = PrincipalToken(made.hash if made is not None else digest or "", expires)
        await self._change(lambda now: AddPrincipalToken(now_ms=now, by=by, name=name, token=token))
        return IssuedToken(token_id(token), None if made is None else made.token, unix_ms(expires))

    async def delete_token(self, name: str, token: str, by: By) -> None:
        """Delete the token with the id ``token``. Raises NotFound, InvalidRequest."""
        await self._change(lambda now: DeletePrincipalToken(now_ms=now, by=by, name=name, token_id=token))

    async def _change(self, make: Callable[[int], Command]) -> None:
        await self._control.decide(make, Done)
        await self._until_known()

    async def _until_known(self) -> None:
        """Return when every node acts by the principals as they are now. Raises RequestTimedOut."""
        machine = self._control.machine
        index, timeout_s = machine.principals.index, self._control.timeout_s
        nodes = machine.assignment.nodes.rows
        if not await self._group_statuses.until_all(nodes, lambda each: each.principals_index >= index, timeout_s):
            raise RequestTimedOut("changed, but not every node acts by it yet")


def info(row: Principal, *, configured: bool = False) -> PrincipalInfo:
    """A principal in the form of the API."""
    tokens = [PrincipalTokenInfo(token_id(token), unix_ms(token.expires)) for token in row.tokens]
    return PrincipalInfo(row.name, row.rights, row.certificates, tokens, configured, row.subjects, _quota(row))


def _quota(row: Principal) -> PrincipalQuota:
    return PrincipalQuota(**msgspec.structs.asdict(row.quota))
