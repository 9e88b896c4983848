"""The interface through which a front (HTTP today) lists and changes the controller's principals."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from ...partition.api.principals import IssuedToken, PrincipalInfo, PrincipalList
from ..model import By
from .principals import Principal, PrincipalToken
from .quotas import NO_QUOTA, Quota


class Principals(Protocol):
    """The replicated principals. A change returns when every node that can be reached acts by it. ``by``: the caller.
    Every change raises InvalidRequest when it would lock its caller out.
    """

    async def list_principals(self, prefix: str, most: int, configured: Iterable[Principal]) -> PrincipalList:
        """The first ``most`` principals whose names have this prefix, ascending, with those of this node's
        configuration (``configured``).
        """
        ...

    async def get_principal(self, name: str) -> PrincipalInfo:
        """The principal of this name. Raises NotFound."""
        ...

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
        """Create or replace a principal; returns it, and whether it is new. ``tokens`` None: it keeps its tokens.
        ``opens``: the cluster is open to every caller, which this ends. Raises InvalidRequest, ThrottlingQuotaExceeded.
        """
        ...

    async def delete_principal(self, name: str, by: By) -> None:
        """Delete a principal; the objects that it made still belong to its name. Raises NotFound."""
        ...

    async def add_token(self, name: str, digest: str | None, expires: datetime | None, by: By) -> IssuedToken:
        """Add a token. ``digest``: the hash of one that the caller made; None: make one. Raises NotFound,
        InvalidRequest.
        """
        ...

    async def delete_token(self, name: str, token: str, by: By) -> None:
        """Delete the token with the id ``token``. Raises NotFound, InvalidRequest."""
        ...
