"""Principals, and the credentials by which a request is recognised as theirs: a bearer token, or a verified client
certificate. A bearer token is one of the cluster's own, or a JSON Web Token of an issuer (issuers.py).

Of an own token only a salted hash is kept, so a leaked hash lets no client in. A token is stk.ID.SECRET: the id finds
the hash, and the secret has 256 bits drawn at random, to which a slow hash would add nothing.

The time in which a token expires is read from this node's clock. No safety rests on it: which of two writers may write
is decided by the log.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import filterfalse
from typing import Literal, NamedTuple

import msgspec

from ...partition.errors import LeaderNotAvailable, Unauthenticated
from ..https import ClientCertificate
from .issuers import Issuers, is_subject
from .quotas import NO_QUOTA, Quota, Spending, quota_faults
from .rights import ALL, Caller, parse

PRINCIPALS_MAX = 10_000
RIGHTS_MAX = 1_000
"""Rights of one principal."""
TOKENS_MAX = 2
"""Tokens of one principal: a new one, and the one that it replaces."""
CERTIFICATES_MAX = 16
"""Names of certificates of one principal."""
SUBJECTS_MAX = 16
"""Subjects of one principal."""
RECOGNIZED_MAX = 10_000
"""Tokens that a node has recognized since the principals last changed, and so need not hash again."""

UNHEARD = -1
"""The index of the cluster's principals at a node that has not heard yet whether there are any: it lets no caller in
but those of its configuration.
"""

Level = Literal["read", "write", "admin"]
"""The level of a token of [[tokens]]. Each level includes those before it."""

_READ = ("read topic:*", "read group:*", "read producer:*", "read cluster", "own group:*")
_WRITE = ("produce topic:*", "produce producer:*", "acquire topic:*", "evict group:*", "trim topic:*")
LEVELS: dict[Level, tuple[str, ...]] = {"read": _READ, "write": _READ + _WRITE, "admin": (ALL,)}
"""The rights of each level."""

_NAME = re.compile(r"[A-Za-z0-9._@:/-]{1,249}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_HASH = re.compile(r"(?P<id>[0-9a-f]{16})\.(?P<salt>[0-9a-f]{32})\.(?P<digest>[0-9a-f]{64})\Z")
_CERTIFICATE = re.compile(r"(SHA256:[0-9a-f]{64}|(CN|DNS|URI|email|IP Address):\S.*)\Z")
_TOKEN = re.compile(r"stk\.([0-9a-f]{16})\.[A-Za-z0-9_-]{43}\Z")
_SCHEME = "bearer "


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[tokens]]: a request with the token of this SHA-256 (hexadecimal) has the right ``may`` on everything. ``name``
    is for people.
    """

    name: str
    sha256: str
    may: Level


class PrincipalToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token of a principal. ``hash`` is ID.SALT.SHA256 in hexadecimal digits, as `stockade principals token` prints
    it; after ``expires`` (with an offset from UTC; None: never) the token is refused.
    """

    hash: str
    expires: datetime | None = None


class Principal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[principals]]: a principal with its rights and its credentials, any of which is enough. ``certificates`` are
    names in verified client certificates, as CN:NAME, DNS:NAME, URI:NAME, email:NAME, IP Address:NAME, or SHA256: and
    the fingerprint of one. ``subjects`` are those of JSON Web Tokens, as ISSUER:SUBJECT with the name of one of
    [[issuers]].
    """

    name: str
    rights: list[str] = []
    tokens: list[PrincipalToken] = []
    certificates: list[str] = []
    subjects: list[str] = []
    quota: Quota = NO_QUOTA


class NewToken(NamedTuple):
    """A token that was just made: ``token`` is for the client alone, ``hash`` is for the configuration."""

    token: str
    hash: str


def new_token() -> NewToken:
    """Make a token, drawn at random, and its hash."""
    token_id, secret, salt = secrets.token_hex(8), secrets.token_urlsafe(32), secrets.token_hex(16)
    token = f"stk.{token_id}.{secret}"
    return NewToken(token, f"{token_id}.{salt}.{_digest(salt, token)}")


def _digest(salt: str, token: str) -> str:
    return hashlib.sha256(f"{salt}.{token}".encode()).hexdigest()


def token_faults(tokens: Sequence[Token]) -> Iterator[str]:
    """The faults of [[tokens]], a sentence each."""
    for number, token in enumerate(tokens):
        if not _SHA256.match(token.sha256):
            yield f"tokens[{number}].sha256: not 64 hexadecimal digits in lower case"
    if len({token.sha256 for token in tokens}) < len(tokens):
        yield "tokens: two of them have the same sha256"


def principal_faults(principals: Sequence[Principal]) -> Iterator[str]:
    """The faults of [[principals]], a sentence each."""
    if len(principals) > PRINCIPALS_MAX:
        yield f"principals: at most {PRINCIPALS_MAX}"
    for number, principal in enumerate(principals):
        yield from (f"principals[{number}].{fault}" for fault in faults_of(principal))
    given = [("name", principal.name) for principal in principals]
    given += [("certificate", name) for principal in principals for name in set(principal.certificates)]
    given += [("subject", name) for principal in principals for name in set(principal.subjects)]
    given += [("token", token_id(token)) for principal in principals for token in principal.tokens]
    for what, name in sorted(each for each, count in Counter(given).items() if count > 1):
        yield f"principals: two of them have the {what} {name}"


def faults_of(principal: Principal) -> Iterator[str]:
    """The faults of one principal, a sentence each."""
    if not _NAME.match(principal.name):
        yield f"name: {principal.name!r} is not 1 to 249 of letters, digits, '.', '_', '-', '@', ':', '/'"
    for what, count, most in (
        ("rights", len(principal.rights), RIGHTS_MAX),
        ("tokens", len(principal.tokens), TOKENS_MAX),
        ("certificates", len(principal.certificates), CERTIFICATES_MAX),
        ("subjects", len(principal.subjects), SUBJECTS_MAX),
    ):
        if count > most:
            yield f"{what}: at most {most}"
    for text in principal.rights:
        try:
            parse(text)
        except ValueError as fault:
            yield f"rights: {fault}"
    if len({token_id(token) for token in principal.tokens}) < len(principal.tokens):
        yield "tokens: two of them have the same id"
    for token in principal.tokens:
        if not _HASH.match(token.hash):
            yield "tokens.hash: not what `stockade principals token` prints"
        if token.expires is not None and token.expires.tzinfo is None:
            yield f"tokens.expires: {token.expires.isoformat()} has no offset from UTC (Z, say)"
    for name in filterfalse(_CERTIFICATE.match, principal.certificates):
        yield f"certificates: {name!r} is not CN:, DNS:, URI:, email:, IP Address: or SHA256: and a name"
    for name in filterfalse(is_subject, principal.subjects):
        yield f"subjects: {name!r} is not ISSUER:SUBJECT"
    yield from quota_faults(principal.quota)


def token_id(token: PrincipalToken) -> str:
    """The id of a token, which is no secret: ID in stk.ID.SECRET."""
    return token.hash.partition(".")[0]


def from_unix_ms(expires_ms: int | None) -> datetime | None:
    """Milliseconds since 1970 as a time; None stays None."""
    return None if expires_ms is None else datetime.fromtimestamp(expires_ms / 1000, UTC)


def unix_ms(expires: datetime | None) -> int | None:
    """A time as milliseconds since 1970; None stays None."""
    return None if expires is None else round(expires.timestamp() * 1000)


class _Hashed(NamedTuple):
    salt: str
    digest: str
    expires_s: float | None
    caller: Caller


def _digests(tokens: Sequence[Token]) -> dict[str, Caller]:
    return {token.sha256: Caller(f"the token {token.name}", LEVELS[token.may], "") for token in tokens}


class Access:
    """The principals by which this node acts: those of its configuration, and those that the controller replicates. A
    cluster that never had any is open: every caller has every right.
    """

    def __init__(
        self,
        tokens: Sequence[Token] = (),
        principals: Sequence[Principal] = (),
        now_s: Callable[[], float] = time.time,
        issuers: Issuers | None = None,
    ) -> None:
        """Tokens, principals and issuers are the configuration's, without faults. ``now_s``: seconds since 1970."""
        self._issuers = Issuers() if issuers is None else issuers
        self.configured: dict[str, Principal] = {principal.name: principal for principal in principals}
        """Principals of this node's configuration, by name."""
        self._everyone = Caller("", [ALL], "")
        self._now_s = now_s
        # Objects made with a token of [[tokens]] belong to no principal: all callers share them, as they always did.
        self._digests = _digests(tokens)
        self._tokens: dict[str, _Hashed] = {}
        self._recognized: dict[str, _Hashed] = {}
        self._certificates: dict[str, Caller] = {}
        self._subjects: dict[str, Caller] = {}
        self._replicated: dict[str, Principal] = {}
        self._told: tuple[Principal, ...] = ()
        self._spendings: dict[str, Spending] = {}  # by name, so that a principal that changes keeps its spending
        self._index = 0  # of ``replicate``; UNHEARD is not 0, so such a node is not open
        for principal in principals:
            self._admit(principal)

    @property
    def is_open(self) -> bool:
        """Whether every caller has every right. A cluster whose last principals were deleted (two may delete each other
        at the same time) is not open: a principal of the configuration is the way back in.
        """
        return not (self._digests or self.configured or self._replicated or self._index)

    def replicate(self, index: int, principals: Iterable[Principal]) -> None:
        """Take over the controller's principals as of an index of its log, unless newer ones are here. A principal of
        the configuration has precedence over a replicated one with the same name, token, certificate or subject.
        """
        if self._index and index < self._index:
            return
        self._index = index
        self._told = tuple(principals)
        self._take_told()

    def configure(self, tokens: Sequence[Token], principals: Sequence[Principal]) -> None:
        """Take over the configuration as it is now, without faults. Raises ValueError, and changes nothing, when the
        last token and principal are gone from it: that might open the cluster to every caller.
        """
        if not (tokens or principals) and (self._digests or self.configured):
            raise ValueError("the last token and principal are gone: restart the node if it shall be open to all")
        for principal in (*self.configured.values(), *self._replicated.values()):
            self._dismiss(principal)
        self._replicated.clear()
        self._digests = _digests(tokens)
        self.configured = {principal.name: principal for principal in principals}
        for principal in principals:
            self._admit(principal)
        self._take_told()

    def _take_told(self) -> None:
        self._recognized.clear()
        told = {principal.name: principal for principal in self._told if principal.name not in self.configured}
        for name, before in list(self._replicated.items()):
            if told.get(name) != before:
                self._dismiss(self._replicated.pop(name))
        for name, principal in told.items():
            if name not in self._replicated:
                self._replicated[name] = principal
                self._admit(principal)
        self._spendings = {name: self._spendings[name] for name in (*self.configured, *self._replicated)}

    def caller(self, authorization: str | None, certificate: ClientCertificate | None) -> Caller:
        """The caller that makes a request with this Authorization header and client certificate. A certificate counts
        only if there is no header. Raises Unauthenticated; LeaderNotAvailable while this node cannot know the caller,
        because it has not heard yet of the cluster's principals.
        """
        if self.is_open:
            return self._everyone
        try:
            return self._of(authorization, certificate)
        except Unauthenticated:
            if self._index != UNHEARD:
                raise
        raise LeaderNotAvailable("this node has not heard yet from the controller who may do what in the cluster")

    def _of(self, authorization: str | None, certificate: ClientCertificate | None) -> Caller:
        if authorization is not None and authorization[: len(_SCHEME)].lower() == _SCHEME:
            return self._of_token(authorization[len(_SCHEME) :].strip())
        if authorization is None and certificate is not None:
            found = next(filter(None, map(self._certificates.get, _names(certificate))), None)
            if found is None:
                raise Unauthenticated("no principal of this cluster has a name of the client's certificate")
            return found
        if not (self._digests or self.configured or self._replicated):
            raise Unauthenticated("no principal is left: put one into node.toml, and send the node SIGHUP")
        certificates = " or a client certificate" if self._certificates else ""
        raise Unauthenticated(f"this cluster wants a bearer token{certificates}: Authorization: Bearer TOKEN")

    def _of_token(self, token: str) -> Caller:
        recognized = self._recognized.get(token)
        if recognized is not None:
            return self._unexpired(recognized, token)
        if found := _TOKEN.match(token):
            known = self._tokens.get(found[1])
            if known is not None and hmac.compare_digest(_digest(known.salt, token), known.digest):
                if len(self._recognized) >= RECOGNIZED_MAX:
                    self._recognized.clear()
                self._recognized[token] = known
                return self._unexpired(known, token)
        elif self._issuers.is_token(token):
            return self._of_subject(self._issuers.subject(token))
        caller = self._digests.get(hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest())
        if caller is None:
            raise Unauthenticated("this cluster does not know the token")
        return caller

    def _unexpired(self, known: _Hashed, token: str) -> Caller:
        if known.expires_s is not None and known.expires_s <= self._now_s():
            raise Unauthenticated(f"the token {token.split('.')[1]} of {known.caller.name} has expired")
        return known.caller

    def _of_subject(self, subject: str) -> Caller:
        caller = self._subjects.get(subject)
        if caller is None:
            raise Unauthenticated(f"no principal of this cluster has the subject {subject}")
        return caller

    def _admit(self, principal: Principal) -> None:
        """Make a principal known by its credentials. Its rights are parsed only when they are first asked for, since
        ten thousand principals may come at once.
        """
        caller = Caller(f"principal {principal.name}", principal.rights, principal.name, principal.quota)
        caller.spending = self._spendings.setdefault(principal.name, caller.spending)
        caller.spending.allow(principal.quota)
        for name in principal.certificates:
            self._certificates.setdefault(name, caller)
        for name in principal.subjects:
            self._subjects.setdefault(name, caller)
        for token in principal.tokens:
            found, salt, digest = token.hash.split(".")
            expires_s = None if token.expires is None else token.expires.timestamp()
            self._tokens.setdefault(found, _Hashed(salt, digest, expires_s, caller))

    def _dismiss(self, principal: Principal) -> None:
        for known_by, names in ((self._certificates, principal.certificates), (self._subjects, principal.subjects)):
            for name in names:
                if (caller := known_by.get(name)) is not None and caller.principal == principal.name:
                    del known_by[name]
        for token in principal.tokens:
            if (known := self._tokens.get(token_id(token))) is not None and known.caller.principal == principal.name:
                del self._tokens[token_id(token)]


def _names(certificate: ClientCertificate) -> Iterator[str]:
    yield f"SHA256:{certificate.fingerprint}"
    yield from certificate.names
    if certificate.common_name:
        yield f"CN:{certificate.common_name}"
