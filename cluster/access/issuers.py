"""Issuers of JSON Web Tokens (RFC 7519), such as OpenID Connect providers, and the subject that a token proves. PyJWT
verifies signatures and claims.

A token is verified with keys that this node has already: no request waits for an issuer. The times in a token are
compared with this node's clock. No safety rests on it: which of two writers may write is decided by the log.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jwt
import msgspec

from ...partition.errors import Unauthenticated
from ...partition.log.fsutil import Stamp, stamp

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Only signatures with private keys: a node that can verify a token must not be able to make one."""

ISSUERS_MAX = 16
KEYS_MAX = 100
"""Keys of one issuer."""
KEYS_BYTES_MAX = 1024 * 1024
"""Size of one issuer's set of keys, as JSON."""
JUDGED_MAX = 10_000
"""Tokens whose verdicts are remembered: to verify a signature takes some 100 us. Beyond it the oldest is forgotten."""
LEEWAY_S = 30
"""Difference that the clocks of an issuer and of a node may have."""

_RSA: tuple[Algorithm, ...] = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_SUBJECT = re.compile(r"(?P<issuer>[A-Za-z0-9._-]{1,64}):(?P<subject>[\x21-\x7e]{1,255})\Z")
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\Z")

_KEYS_URL = re.compile(r"https://|http://127\.0\.0\.1:[0-9]+(?:[/?]|\Z)")
"""Where keys may come from: the port ends there, for what follows up to an @ would be no host, but a user's name."""


class Issuer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[issuers]]: tokens of ``issuer`` (the claim iss) for ``audience`` (the claim aud) are accepted; their subject is
    called NAME:SUBJECT, where SUBJECT is the claim ``subject_claim``. The keys (a JWK set, RFC 7517) are in the file
    ``keys``, which is read again when it changes, or at ``keys_url``, which is asked every ``refresh_s`` seconds.
    """

    name: str
    issuer: str
    audience: str
    keys: str | None = None
    keys_url: str | None = None
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")
    subject_claim: str = "sub"
    refresh_s: int = 300


class KeysFault(Exception):
    """A set of keys cannot be used; the message says why."""


def issuer_faults(issuers: Sequence[Issuer]) -> Iterator[str]:
    """The faults of [[issuers]], a sentence each."""
    if len(issuers) > ISSUERS_MAX:
        yield f"issuers: at most {ISSUERS_MAX}"
    for number, each in enumerate(issuers):
        where = f"issuers[{number}]"
        if not _NAME.match(each.name):
            yield f"{where}.name: {each.name!r} is not 1 to 64 of letters, digits, '.', '_', '-'"
        if (each.keys is None) == (each.keys_url is None):
            yield f"{where}: one of keys and keys_url says where its keys are"
        if each.keys_url is not None and not _KEYS_URL.match(each.keys_url):
            yield f"{where}.keys_url: {each.keys_url!r} is not https://…: keys that came in the clear prove nothing"
        if not 10 <= each.refresh_s <= 86_400:
            yield f"{where}.refresh_s: not 10 to 86400"
        if not each.algorithms:
            yield f"{where}.algorithms: empty"
    for what in ("name", "issuer"):
        if len({getattr(each, what) for each in issuers}) < len(issuers):
            yield f"issuers: two of them have the same {what}"


def is_subject(name: str) -> bool:
    """Whether a text is ISSUER:SUBJECT."""
    return _SUBJECT.match(name) is not None


Key = Mapping[str, jwt.PyJWK]
"""A public key, by each algorithm whose signatures it verifies."""


def read_keys(text: bytes) -> dict[str | None, Key]:
    """The signature keys of a JWK set, by id; by None the first key without an id. Raises KeysFault."""
    if len(text) > KEYS_BYTES_MAX:
        raise KeysFault(f"over {KEYS_BYTES_MAX} bytes")
    try:
        found = [each for each in json.loads(text)["keys"] if isinstance(each, dict)]
        keys = [(each.get("kid"), key) for each in found if (key := _key(each))]
        by_id = dict(reversed(keys))
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise KeysFault(f"no JWK set (RFC 7517): {error}") from error
    if not 1 <= len(keys) <= KEYS_MAX:
        raise KeysFault(f"{len(keys)} keys to check signatures with, not 1 to {KEYS_MAX}")
    return by_id


def _key(jwk: dict[str, Any]) -> Key:
    """The key of a JWK; empty for a key of another purpose, or of an unknown type. ``alg`` is optional: an RSA key
    without it verifies all RSA algorithms, and a key of another type has one algorithm.
    """
    try:
        made = jwt.PyJWK(jwk)
        if made.key_type == "oct" or made.public_key_use not in (None, "sig"):
            return {}
        if made.key_type == "RSA" and not jwk.get("alg"):
            return {name: jwt.PyJWK(jwk, name) for name in _RSA}
    except (jwt.PyJWTError, NotImplementedError):  # the latter for the algorithm "none"
        return {}
    return {made.algorithm_name: made}


class _Verdict(NamedTuple):
    subject: str
    expires_s: float


class Issuers:
    """Verifies tokens with the keys that ``take`` was given, and remembers the verdicts."""

    def __init__(self, issuers: Sequence[Issuer] = (), now_s: Callable[[], float] = time.time) -> None:
        """``issuers`` are without faults. ``now_s``: seconds since 1970."""
        self.all: tuple[Issuer, ...] = tuple(issuers)
        self._by_issuer = {each.issuer: each for each in issuers}
        self._keys: dict[str, Mapping[str | None, Key]] = {}
        self._judged: dict[bytes, _Verdict] = {}
        self._now_s = now_s

    def take(self, name: str, text: bytes) -> None:
        """Verify the tokens of the issuer ``name`` with this JWK set from now on. Raises KeysFault before anything is
        changed.
        """
        self._keys[name] = read_keys(text)
        self._judged.clear()

    def is_token(self, text: str) -> bool:
        """Whether a text has the form of a JSON Web Token, and there are issuers."""
        return bool(self._by_issuer) and _FORM.match(text) is not None

    def subject(self, token: str) -> str:
        """The subject that a token proves, as ISSUER:SUBJECT. Raises Unauthenticated, which says what is wrong."""
        digest = hashlib.sha256(token.encode()).digest()
        verdict = self._judged.get(digest)
        if verdict is None:
            verdict = self._judge(token)
            while len(self._judged) >= JUDGED_MAX:
                del self._judged[next(iter(self._judged))]
            self._judged[digest] = verdict
        if verdict.expires_s + LEEWAY_S <= self._now_s():
            raise Unauthenticated("the JSON Web Token has expired")
        return verdict.subject

    def _judge(self, token: str) -> _Verdict:
        try:
            header = jwt.get_unverified_header(token)
            claimed = jwt.decode(token, options={"verify_signature": False}).get("iss")
            issuer = self._by_issuer.get(claimed) if isinstance(claimed, str) else None
            if issuer is None:
                raise Unauthenticated("no issuer of this cluster has issued the JSON Web Token (its claim iss)")
            claims = self._verified(token, issuer, header)
            expires_s = float(claims["exp"])
        except (jwt.PyJWTError, RecursionError, OverflowError) as error:
            raise Unauthenticated(f"the JSON Web Token is not taken: {error}") from error
        subject = f"{issuer.name}:{claims.get(issuer.subject_claim)}"
        if not isinstance(claims.get(issuer.subject_claim), str) or not is_subject(subject):
            raise Unauthenticated(f"the JSON Web Token has no {issuer.subject_claim} of 1 to 255 printable characters")
        return _Verdict(subject, expires_s)

    def _verified(self, token: str, issuer: Issuer, header: Mapping[str, Any]) -> dict[str, Any]:
        keys = self._keys.get(issuer.name, {})
        key = keys.get(header.get("kid")) or (next(iter(keys.values())) if len(keys) == 1 else None)
        if key is None:
            raise Unauthenticated(f"this node has no key {header.get('kid')!r:.80} of the issuer {issuer.name}")
        algorithm = str(header.get("alg"))
        return jwt.decode(
            token,
            key.get(algorithm) or next(iter(key.values())),  # a key of another algorithm, which PyJWT refuses
            algorithms=list(issuer.algorithms),
            audience=issuer.audience,
            issuer=issuer.issuer,
            leeway=LEEWAY_S,
            options={"require": ["exp", "iss", "aud", issuer.subject_claim]},
        )


class KeyFile:
    """The file of an issuer's keys, which callers read again when it has changed."""

    def __init__(self, issuers: Issuers, name: str, path: str) -> None:
        """Read the file. Raises KeysFault."""
        self._issuers, self._name, self._path = issuers, name, path
        self._stamp: Stamp = ()
        self.reload()

    def has_changed(self) -> bool:
        """Whether the file has changed since the last ``reload``."""
        return stamp(self._path) != self._stamp

    def reload(self) -> None:
        """Read the file again. Raises KeysFault; then the keys that were read before stay in use."""
        self._stamp = stamp(self._path)
        try:
            self._issuers.take(self._name, Path(self._path).read_bytes())
        except OSError as error:
            raise KeysFault(f"cannot read {self._path}: {error}") from error
