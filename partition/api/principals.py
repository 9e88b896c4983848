"""Principals: their rights, tokens and quotas."""

import msgspec


class PrincipalTokenInfo(msgspec.Struct, frozen=True):
    """A token without its secret. ``expires_ms``: milliseconds since 1970; None: never."""

    id: str
    expires_ms: int | None


class PrincipalQuota(msgspec.Struct, frozen=True, omit_defaults=True):
    """The bounds of what a principal may use; None, or left out: only the cluster's own bounds. Rates are per node."""

    requests_per_s: int | None = None
    bytes_per_s: int | None = None
    sessions: int | None = None
    topics: int | None = None
    groups: int | None = None
    producers: int | None = None


class PrincipalInfo(msgspec.Struct, frozen=True):
    """A principal: its rights, its tokens, and the names in client certificates and the subjects of JSON Web Tokens, as
    ISSUER:SUBJECT, by which a request is its own. ``configured``: it is defined in the configuration of the node that
    answers, and is changed there.
    """

    principal: str
    rights: list[str]
    certificates: list[str]
    tokens: list[PrincipalTokenInfo]
    configured: bool
    subjects: list[str] = []
    quota: PrincipalQuota = PrincipalQuota()


class PrincipalList(msgspec.Struct, frozen=True):
    """The first of ``total`` principals, ascending by name."""

    total: int
    principals: list[PrincipalInfo]


class IssuedToken(msgspec.Struct, frozen=True):
    """A token that a principal was given. ``token`` is the secret, which the cluster tells only here and keeps nowhere;
    None: the caller made the token, and sent its hash.
    """

    id: str
    token: str | None
    expires_ms: int | None


class CallerInfo(msgspec.Struct, frozen=True):
    """The caller's principal and rights. ``principal`` None: everything that the caller makes belongs to no principal.
    ``open``: every caller has every right.
    """

    principal: str | None
    rights: list[str]
    open: bool
