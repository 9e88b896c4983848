"""JSON Web Tokens: whose subject one names, and which are not taken (RFC 8725 lists what goes wrong elsewhere)."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any, get_args

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec import structs

from stockade.cluster.access import issuers as rules
from stockade.cluster.access.issuers import (
    JUDGED_MAX,
    LEEWAY_S,
    Issuer,
    Issuers,
    KeyFile,
    KeysFault,
    issuer_faults,
    read_keys,
)
from stockade.cluster.access.principals import Access, Principal, principal_faults
from stockade.partition.errors import Unauthenticated

RSA, OTHER = rsa.generate_private_key(65537, 2048), rsa.generate_private_key(65537, 2048)
EC, ED = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
CORP = Issuer("corp", "https://idp.example.com", "stockade", keys="keys.json")


def jwk(key: Any, kid: str | None, **more: str) -> dict[str, Any]:
    made: Any = jwt.algorithms.OKPAlgorithm
    if isinstance(key, rsa.RSAPrivateKey):
        made = jwt.algorithms.RSAAlgorithm
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        made = jwt.algorithms.ECAlgorithm
    found: dict[str, Any] = json.loads(made.to_jwk(key.public_key()))
    return found | ({} if kid is None else {"kid": kid}) | more


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def keys(*found: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(found)}).encode()


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "k1", **claims: Any) -> str:
    whole = {"iss": CORP.issuer, "aud": "stockade", "sub": "alice", "exp": time.time() + 600} | claims
    given = {name: value for name, value in whole.items() if value is not None}
    return jwt.encode(given, key, algorithm, headers={} if kid is None else {"kid": kid})


@pytest.fixture
def issuers() -> Issuers:
    found = Issuers([CORP])
    found.take("corp", keys(jwk(RSA, "k1"), jwk(EC, "k2"), jwk(ED, "k3")))
    return found


def refused(issuers: Issuers, text: str) -> str:
    with pytest.raises(Unauthenticated) as caught:
        issuers.subject(text)
    return caught.value.detail


def test_a_token_names_its_subject_by_any_key_of_its_issuer(issuers: Issuers) -> None:
    for key, algorithm, kid in ((RSA, "RS256", "k1"), (EC, "ES256", "k2"), (ED, "EdDSA", "k3")):
        text = token(key, algorithm, kid)
        assert issuers.is_token(text)
        assert issuers.subject(text) == "corp:alice"
    assert issuers.subject(token(aud=["other", "stockade"])) == "corp:alice"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: token(OTHER), "Signature verification failed"),
        (lambda: token(kid="k9"), "no key 'k9' of the issuer corp"),
        (lambda: token(kid=None), "no key None of the issuer corp"),
        (lambda: token(EC, "ES256", "k1"), "is not taken"),
        (lambda: token(RSA, "RS512"), "alg"),
        (lambda: token(exp=time.time() - LEEWAY_S - 5), "expired"),
        (lambda: token(exp=10**400), "is not taken"),
        (lambda: token(exp=None), 'missing the "exp" claim'),
        (lambda: token(nbf=time.time() + LEEWAY_S + 60), "not yet valid"),
        (lambda: token(aud="elsewhere"), "Audience"),
        (lambda: token(aud=None), 'missing the "aud" claim'),
        (lambda: token(iss="https://evil.example"), "no issuer of this cluster"),
        (lambda: token(iss=None), "no issuer of this cluster"),
        (lambda: token(sub=None), 'missing the "sub" claim'),
        (lambda: token(sub=""), "no sub of 1 to 255"),
        (lambda: token(sub="a b"), "no sub of 1 to 255"),
        (lambda: token(sub="a" * 256), "no sub of 1 to 255"),
        (lambda: "e30.e30.e30", "no issuer of this cluster"),
        (lambda: f"e30.{encoded(b'[' * 4000)}.e30", "is not taken"),
        (lambda: f"{encoded(b'[' * 4000)}.e30.e30", "is not taken"),
        (lambda: f"e30.{encoded(b'1e400')}.e30", "is not taken"),
        (lambda: "a.b.c", "is not taken"),
    ],
)
def test_a_token_that_is_not_as_it_must_be_is_refused_and_told_why(
    issuers: Issuers, make: Callable[[], str], why: str
) -> None:
    assert why in refused(issuers, make())


def test_no_token_without_a_signature_or_signed_with_a_public_key_is_taken(issuers: Issuers) -> None:
    claims = {"iss": CORP.issuer, "aud": "stockade", "sub": "alice", "exp": time.time() + 600}
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    unsigned = jwt.encode(claims, "", "none", headers={"kid": "k1"})
    refused(issuers, unsigned + "AA" if unsigned.endswith(".") else unsigned)
    head, body = (encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT", "kid": "k1"}, claims))
    sign = hmac.digest(public, f"{head}.{body}".encode(), hashlib.sha256)
    assert "alg" in refused(issuers, f"{head}.{body}.{encoded(sign)}")


EVERY = structs.replace(CORP, algorithms=get_args(rules.Algorithm))
"""An issuer that may use every algorithm that there is."""


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_a_key_without_alg_checks_every_algorithm_of_its_type_that_its_issuer_may_use(algorithm: str) -> None:
    """RFC 7517, 4.4: alg is optional. Some providers leave it out, and sign by PS256."""
    issuers = Issuers([EVERY])
    issuers.take("corp", keys(jwk(RSA, "k1")))
    assert issuers.subject(token(RSA, algorithm)) == "corp:alice"
    assert "Signature verification failed" in refused(issuers, token(OTHER, algorithm))
    issuers = Issuers([structs.replace(EVERY, algorithms=tuple(set(EVERY.algorithms) - {algorithm}))])
    issuers.take("corp", keys(jwk(RSA, "k1")))
    assert "The specified alg value is not allowed" in refused(issuers, token(RSA, algorithm))
    issuers = Issuers([EVERY])
    other = "RS512" if algorithm != "RS512" else "PS512"
    issuers.take("corp", keys(jwk(RSA, "k1", alg=other)))
    assert f"does not match the key's algorithm '{other}'" in refused(issuers, token(RSA, algorithm))


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "none", "ES256", "EdDSA", "ES384", ["RS256"], {}, None, 7])
def test_a_key_without_alg_is_used_with_no_algorithm_of_another_type(algorithm: object) -> None:
    """RFC 8725, 2.1: who has the public key must not be able to sign by it, as by the secret of HS256."""
    issuers = Issuers([EVERY])
    issuers.take("corp", keys(jwk(RSA, "k1")))
    claims = {"iss": CORP.issuer, "aud": "stockade", "sub": "alice", "exp": time.time() + 600}
    header = {"alg": algorithm, "typ": "JWT", "kid": "k1"}
    head, body = (encoded(json.dumps(part).encode()) for part in (header, claims))
    for form in (Encoding.PEM, Encoding.DER):
        public = RSA.public_key().public_bytes(form, PublicFormat.SubjectPublicKeyInfo)
        for digest in (hashlib.sha256, hashlib.sha384):
            signed = hmac.digest(public, f"{head}.{body}".encode(), digest)
            assert "is not taken" in refused(issuers, f"{head}.{body}.{encoded(signed)}")
    assert "is not taken" in refused(issuers, f"{head}.{body}.AA")


def test_a_verdict_is_remembered_until_the_token_expires_and_not_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.time()
    clock = [now_s]
    issuers = Issuers([CORP], now_s=lambda: clock[0])
    issuers.take("corp", keys(jwk(RSA, "k1")))
    text = token(exp=now_s + 100)
    assert issuers.subject(text) == "corp:alice"
    monkeypatch.setattr(jwt, "decode", lambda *_, **__: pytest.fail("judged twice"))
    assert issuers.subject(text) == "corp:alice"
    clock[0] = now_s + 100 + LEEWAY_S
    assert "expired" in refused(issuers, text)


def test_keys_that_are_gone_end_their_tokens_at_once(issuers: Issuers) -> None:
    text = token()
    assert issuers.subject(text) == "corp:alice"
    issuers.take("corp", keys(jwk(OTHER, "k1")))
    assert "Signature verification failed" in refused(issuers, text)
    with pytest.raises(KeysFault):
        issuers.take("corp", b"{}")
    assert issuers.subject(token(OTHER)) == "corp:alice", "keys of no use change nothing"


def test_remembered_verdicts_are_as_many_as_documented(issuers: Issuers, monkeypatch: pytest.MonkeyPatch) -> None:
    assert JUDGED_MAX == 10_000
    monkeypatch.setattr(rules, "JUDGED_MAX", 3)
    for number in range(5):
        issuers.subject(token(jti=str(number)))
    assert len(issuers._judged) == 3


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": []}',
        b"\xff",
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "k1"}]}',
        keys(jwk(RSA, "k1", use="enc")),
        b'{"keys": [7]}',
        b"[" * 100_000,
        keys(jwk(RSA, "k1", alg="none")),
        keys(jwk(RSA, None) | {"kid": []}),
        b" " * (rules.KEYS_BYTES_MAX + 1),
    ],
)
def test_a_set_without_public_signature_keys_is_refused(text: bytes) -> None:
    with pytest.raises(KeysFault):
        read_keys(text)


def test_a_key_that_says_that_it_checks_nothing_is_left_out_and_the_others_count() -> None:
    """It ended the task that reads keys, certificates and ``revoked`` again, without a word."""
    assert list(read_keys(keys(jwk(RSA, "k1", alg="none"), jwk(EC, "k2")))) == ["k2"]


def test_a_file_of_keys_is_read_again_when_it_changes(tmp_path: Any) -> None:
    path, issuers = tmp_path / "keys.json", Issuers([CORP])
    with pytest.raises(KeysFault, match="cannot read"):
        KeyFile(issuers, "corp", str(path))
    path.write_bytes(keys(jwk(RSA, "k1")))
    file = KeyFile(issuers, "corp", str(path))
    assert issuers.subject(token()) == "corp:alice"
    assert not file.has_changed()
    path.write_bytes(keys(jwk(OTHER, "k1"), jwk(EC, "k2")))
    assert file.has_changed()
    file.reload()
    assert not file.has_changed()
    assert issuers.subject(token(OTHER)) == "corp:alice"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"name": "a:b"}, "name: 'a:b'"),
        ({"keys": None}, "one of keys and keys_url"),
        ({"keys_url": "https://idp.example.com/keys"}, "one of keys and keys_url"),
        ({"keys": None, "keys_url": "http://idp.example.com/keys"}, "prove nothing"),
        ({"keys": None, "keys_url": "http://127.0.0.1:80@evil.example/keys"}, "prove nothing"),
        ({"refresh_s": 9}, "refresh_s: not 10 to 86400"),
        ({"algorithms": ()}, "algorithms: empty"),
    ],
)
def test_a_fault_of_an_issuer_is_said(change: dict[str, Any], fault: str) -> None:
    values = {"name": "corp", "issuer": "i", "audience": "a", "keys": "k.json"} | change
    assert fault in " ".join(issuer_faults([Issuer(**values)]))


def test_two_issuers_are_two() -> None:
    assert not list(issuer_faults([CORP, Issuer("b", "https://b", "stockade", keys="b.json")]))
    for twin in (Issuer("corp", "https://b", "a", keys="k"), Issuer("b", CORP.issuer, "a", keys="k")):
        assert "two of them have the same" in " ".join(issuer_faults([CORP, twin]))
    assert "at most 16" in " ".join(issuer_faults([CORP] * 17))


def test_a_request_with_a_token_is_its_principals(issuers: Issuers) -> None:
    access = Access((), [Principal("p", ["read topic:t"], subjects=["corp:alice"])], issuers=issuers)
    assert access.caller(f"Bearer {token()}", None).principal == "p"
    for text in (token(sub="mallory"), token(OTHER)):
        with pytest.raises(Unauthenticated):
            access.caller(f"Bearer {text}", None)
    access.replicate(1, [Principal("q", subjects=["corp:bob"])])
    assert access.caller(f"Bearer {token(sub='bob')}", None).principal == "q"
    access.replicate(2, [])
    with pytest.raises(Unauthenticated, match="no principal of this cluster has the subject corp:bob"):
        access.caller(f"Bearer {token(sub='bob')}", None)


def test_a_subject_is_of_one_principal_and_well_formed() -> None:
    two = [Principal("p", subjects=["corp:alice"]), Principal("q", subjects=["corp:alice", "alice"])]
    faults = " ".join(principal_faults(two))
    assert "two of them have the subject corp:alice" in faults
    assert "'alice' is not ISSUER:SUBJECT" in faults
