"""Who may do what: bearer tokens, and the right that each route needs. Without tokens, everybody may do everything.

Tokens are known by their SHA-256 alone, so a configuration that leaks opens nothing; looking a digest up tells nothing
of how much of a guess was right.
"""

import hashlib
from collections.abc import Mapping
from typing import Literal, get_args

from ..partition.errors import PermissionDenied, Unauthenticated

Right = Literal["read", "write", "admin"]
"""Each includes those before it. ``read``: look, and be a reader in a group. ``write``: be a writer. ``admin``: change
topics and the cluster, and throw others out.
"""
_RANK = {right: rank for rank, right in enumerate(get_args(Right))}
_SCHEME = "bearer "


class Tokens:
    """The tokens of a cluster."""

    def __init__(self, rights: Mapping[str, Right]) -> None:
        """``rights`` by the SHA-256 of a token, in lower-case hexadecimal digits; empty: nobody needs one."""
        self._rights = dict(rights)

    def check(self, authorization: str | None, needed: Right | None) -> None:
        """Whether a request with this header may do what needs that right (None: nothing is needed).

        Raises Unauthenticated, PermissionDenied.
        """
        if needed is None or not self._rights:
            return
        if authorization is None or not authorization.lower().startswith(_SCHEME):
            raise Unauthenticated("this cluster wants a bearer token: Authorization: Bearer TOKEN")
        token = authorization[len(_SCHEME) :].strip()
        right = self._rights.get(hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest())
        if right is None:
            raise Unauthenticated("this cluster does not know the token")
        if _RANK[right] < _RANK[needed]:
            raise PermissionDenied(f"the token's right is {right}, and this needs {needed}")
