"""The part of a fake node that keeps principals: the controller's own, which no request is judged by here."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from stockade.cluster.access.principals import Principal, PrincipalToken, new_token, token_id
from stockade.cluster.access.quotas import NO_QUOTA, Quota
from stockade.cluster.access.store import PrincipalTable
from stockade.cluster.controller.principals import (
    AddPrincipalToken,
    DeletePrincipal,
    DeletePrincipalToken,
    PrincipalCommand,
    PutPrincipal,
)
from stockade.cluster.leader.principal_service import info
from stockade.cluster.model import By
from stockade.partition.api.principals import IssuedToken, PrincipalInfo, PrincipalList


class FakePrincipals:
    """A base of FakeService."""

    shared: Any
    bug: Exception | None

    def _check_controlling(self) -> None:
        raise NotImplementedError

    def follow_principals(self, follower: Callable[[PrincipalTable], None]) -> None:
        follower(PrincipalTable())

    async def list_principals(self, prefix: str, most: int, configured: Iterable[Principal]) -> PrincipalList:
        self._ready()
        rows = [row for row in self.shared.registered.table().rows if row.name.startswith(prefix)]
        return PrincipalList(len(rows), [info(row) for row in rows[:most]])

    async def get_principal(self, name: str) -> PrincipalInfo:
        self._ready()
        return info(self.shared.registered.find(name))

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
        kept = None if tokens is None else list(tokens)
        put = self._decide(
            PutPrincipal(
                now_ms=0,
                by=by,
                name=name,
                rights=list(rights),
                certificates=list(certificates),
                tokens=kept,
                opens=opens,
                subjects=tuple(subjects),
                quota=quota,
            )
        )
        return info(self.shared.registered.find(name)), put.created

    async def delete_principal(self, name: str, by: By) -> None:
        self._decide(DeletePrincipal(now_ms=0, by=by, name=name))

    async def add_token(self, name: str, digest: str | None, expires: datetime | None, by: By) -> IssuedToken:
        made = new_token()
        token = PrincipalToken(digest or made.hash, expires)
        self._decide(AddPrincipalToken(now_ms=0, by=by, name=name, token=token))
        expires_ms = None if expires is None else round(expires.timestamp() * 1000)
        return IssuedToken(token_id(token), None if digest else made.token, expires_ms)

    async def delete_token(self, name: str, token: str, by: By) -> None:
        self._decide(DeletePrincipalToken(now_ms=0, by=by, name=name, token_id=token))

    def _decide(self, command: PrincipalCommand) -> Any:
        self._ready()
        self.shared.index += 1
        return self.shared.registered.decide(self.shared.index, command)

    def _ready(self) -> None:
        if self.bug is not None:
            raise self.bug
        self._check_controlling()
