"""What a front (HTTP today) may ask the controller of principals."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from ...partition.api.principals import IssuedToken, PrincipalInfo, PrincipalList
from ..model import By
from .principals import Principal, PrincipalToken
from .quotas import NO_QUOTA, Quota


class Principals(Protocol):
    """Who may do what, as the controller has it. A change is answered when every node that can be reached acts by it.
    ``by``: who asks. Every change raises InvalidRequest when it would lock its caller out.
    """

    async def list_principals(self, prefix: str, most: int, configured: Iterable[Principal]) -> PrincipalList:
        """The first ``most`` whose names begin so, ascending; ``configured`` are those of this node's configuration."""
        ...

    async def get_principal(self, name: str) -> PrincipalInfo:
        """Raises NotFound."""
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
        """The principal, and whether it is new. ``tokens`` None: those that it has. ``opens``: the cluster is open to
        every caller, which this ends. Raises InvalidRequest, ThrottlingQuotaExceeded.
        """
        ...

    async def delete_principal(self, name: str, by: By) -> None:
        """What it made stays its own. Raises NotFound."""
        ...

    async def add_token(self, name: str, digest: str | None, expires: datetime | None, by: By) -> IssuedToken:
        """``digest``: the hash of a token that the caller made; None: make one. Raises NotFound, InvalidRequest."""
        ...

    async def delete_token(self, name: str, token: str, by: By) -> None:
        """By the token's id. Raises NotFound, InvalidRequest."""
        ...
