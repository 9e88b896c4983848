"""A node's TLS files, tried before it starts, and the encryption of one connection without a socket."""

import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import assume, example, given
from hypothesis import strategies as st

from stockade.raft.messages import Hello
from stockade.raft.net.codec import encode
from stockade.raft.net.tls import NotTls, Tls, TlsFault, TlsFiles, looks_like_tls, shake_hands

from .certificates import CLUSTER, Issuer, trusting_context


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer.make(tmp_path_factory.mktemp("tls") / "ours")


def fault_of(files: TlsFiles, node_id: str = "n1") -> str:
    with pytest.raises(TlsFault) as caught:
        Tls(files, CLUSTER, node_id)
    return str(caught.value)


def test_a_certificate_of_another_node_cluster_or_time_is_refused_before_the_node_starts(issuer: Issuer) -> None:
    n2 = fault_of(issuer.files("n2"))
    assert n2 == "certificate: names stockade://house/n2, not stockade://house/n1"
    assert "names stockade://barn/n1, not" in fault_of(issuer.files("n1", cluster_id="barn"))
    assert "certificate has expired" in fault_of(issuer.files("n1", expired=True))


def test_certificates_of_similar_node_ids_are_refused(issuer: Issuer) -> None:
    assert fault_of(issuer.files("b.n1", cluster_id=CLUSTER), node_id="n1")
    assert fault_of(issuer.files("N1"))
    assert fault_of(issuer.files("n1."))


def test_an_authority_that_did_not_sign_the_certificate_is_refused(issuer: Issuer, tmp_path: Path) -> None:
    other = Issuer.make(tmp_path / "other")
    good = issuer.files("n1")
    assert "cannot be trusted" in fault_of(TlsFiles(other.files("n1").ca, good.certificate, good.key))


def test_a_key_that_is_not_the_certificates_is_refused(issuer: Issuer) -> None:
    good, other = issuer.files("n1"), issuer.files("n2")
    assert fault_of(TlsFiles(good.ca, good.certificate, other.key)).startswith("key: ")


def test_a_key_with_a_password_is_refused_without_a_prompt(issuer: Issuer, tmp_path: Path) -> None:
    good = issuer.files("n1")
    key = serialization.load_pem_private_key(Path(good.key).read_bytes(), None)
    locked = tmp_path / "locked.key"
    secret = serialization.BestAvailableEncryption(b"secret")
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
    assert fault_of(TlsFiles(good.ca, good.certificate, str(locked))).startswith(f"key: {locked} holds no private key")


def test_the_error_names_which_of_certificate_and_key_has_other_content(issuer: Issuer, tmp_path: Path) -> None:
    """A certificate that was no PEM was told as a wrong key."""
    good, other, away = issuer.files("n1"), tmp_path / "other", tmp_path / "away"
    for content in (b"", b"nothing of the kind", b"\xff\x00"):
        other.write_bytes(content)
        told = fault_of(TlsFiles(good.ca, str(other), good.key))
        assert told.startswith(f"certificate: {other} holds no certificate in PEM: ")
        told = fault_of(TlsFiles(good.ca, good.certificate, str(other)))
        assert told.startswith(f"key: {other} holds no private key in PEM without a password: ")
    assert fault_of(TlsFiles(good.ca, str(away), good.key)) == f"certificate: {away}: No such file or directory"
    assert fault_of(TlsFiles(good.ca, good.certificate, str(away))) == f"key: {away}: No such file or directory"
    swapped = fault_of(TlsFiles(good.ca, good.key, good.certificate))
    assert swapped.startswith(f"certificate: {good.key} holds no certificate in PEM: ")


@pytest.mark.parametrize("content", [b"", b"nothing of the kind", b"\xff\x00"])
def test_a_file_without_an_authority_is_refused(issuer: Issuer, tmp_path: Path, content: bytes) -> None:
    good = issuer.files("n1")
    (tmp_path / "ca.crt").write_bytes(content)
    assert fault_of(TlsFiles(str(tmp_path / "ca.crt"), good.certificate, good.key)).startswith("ca: ")


def test_two_authorities_in_one_file_both_count(issuer: Issuer, tmp_path: Path) -> None:
    successor = Issuer.make(tmp_path / "successor")
    both = tmp_path / "both.crt"
    both.write_text(Path(issuer.files("n1").ca).read_text() + Path(successor.files("n1").ca).read_text())
    for each in (issuer, successor):
        files = each.files("n1")
        Tls(TlsFiles(str(both), files.certificate, files.key), CLUSTER, "n1")


def test_bytes_that_arrive_one_by_one_are_decrypted_like_bytes_that_arrive_together(issuer: Issuer) -> None:
    dialler, acceptor = issuer.tls("n2").session(dialled=True), issuer.tls("n1").session(dialled=False)
    while not acceptor.established:
        for source, sink in ((dialler, acceptor), (acceptor, dialler)):
            for byte in source.outgoing():
                assert sink.receive(bytes([byte])) == b""
    assert set(dialler.names) == {"stockade://house/n1"}
    assert set(acceptor.names) == {"stockade://house/n2"}
    text = bytes(range(256)) * 300
    sealed = dialler.seal(text)
    assert text[:64] not in sealed
    assert b"".join(acceptor.receive(bytes([byte])) for byte in sealed) == text
    assert dialler.receive(acceptor.seal(text)) == text


def test_all_whole_records_of_a_piece_are_decrypted_and_the_rest_with_the_next_piece(issuer: Issuer) -> None:
    dialler, acceptor = issuer.tls("n2").session(dialled=True), issuer.tls("n1").session(dialled=False)
    shake_hands(dialler, acceptor)
    one, other = bytes(40_000), b"x" * 5  # three records, and one
    sealed = dialler.seal(one) + dialler.seal(other)
    assert acceptor.receive(sealed[:-3]) == one
    assert acceptor.receive(sealed[-3:]) == other
    assert acceptor.receive(dialler.seal(one) + dialler.seal(other)) == one + other


def test_a_dialler_gets_no_session_to_resume_so_each_connection_verifies_its_certificate_anew(issuer: Issuer) -> None:
    """Else a node whose certificate has expired since would be let in by what it once had shown."""
    context, tls = trusting_context(issuer.files("n2")), issuer.tls("n1")
    resumable: ssl.SSLSession | None = None
    for _ in range(2):
        received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        dialler, acceptor = context.wrap_bio(received, to_send, session=resumable), tls.session(dialled=False)
        while not acceptor.established:
            with suppress(ssl.SSLWantReadError):
                dialler.do_handshake()
            acceptor.receive(to_send.read())
            received.write(acceptor.outgoing())
        received.write(acceptor.seal(b"hello"))
        assert dialler.read() == b"hello", "what the acceptor sent before, which may be tickets, has been read"
        assert not dialler.session_reused
        resumable = dialler.session
        assert resumable is not None
        assert not resumable.has_ticket


def test_a_changed_byte_is_found(issuer: Issuer) -> None:
    dialler, acceptor = issuer.tls("n2").session(dialled=True), issuer.tls("n1").session(dialled=False)
    while not acceptor.established:
        acceptor.receive(dialler.outgoing())
        dialler.receive(acceptor.outgoing())
    sealed = bytearray(dialler.seal(b"pay alpha"))
    sealed[-1] ^= 1
    with pytest.raises(TlsFault):
        acceptor.receive(bytes(sealed))


@pytest.mark.parametrize("plain", [*(encode(0, Hello(1, "c" * n, "n", 0)) for n in (1, 12, 240)), b"GET / HTTP/1.1"])
def test_no_hello_is_taken_for_tls_and_no_tls_for_a_hello(issuer: Issuer, plain: bytes) -> None:
    assert not looks_like_tls(plain)
    with pytest.raises(NotTls):
        issuer.tls("n1").session(dialled=False).receive(plain)
    assert looks_like_tls(issuer.tls("n1").session(dialled=True).outgoing())


@pytest.mark.parametrize("dialled", [True, False])
@given(
    st.lists(st.binary(max_size=200), max_size=6), st.sampled_from([b"", b"\x16\x03\x01", b"\x16\x03\x03\x00\x20\x02"])
)
def test_garbage_before_the_handshake_is_a_fault_or_not_enough_and_nothing_else(
    issuer: Issuer, dialled: bool, pieces: list[bytes], start: bytes
) -> None:
    session = issuer.tls("n1").session(dialled=dialled)
    with suppress(TlsFault):
        for piece in [start, *pieces]:
            assert session.receive(piece) == b""
    assert not session.established
    assert session.names == frozenset()


VERSION_OF_RECORD = (1, 2)
"""Bytes that a receiver must ignore for all purposes (RFC 8446, 5.1); everything else is covered by the handshake."""


@given(st.integers(0, 400), st.integers(1, 255))
@example(2, 1)
def test_a_damaged_handshake_establishes_nothing_that_was_not_meant(issuer: Issuer, place: int, flip: int) -> None:
    dialler, acceptor = issuer.tls("n2").session(dialled=True), issuer.tls("n1").session(dialled=False)
    with suppress(TlsFault):
        dialler.receive(b"")
        hello = bytearray(dialler.outgoing())
        place %= len(hello)
        assume(place not in VERSION_OF_RECORD)
        hello[place] ^= flip
        assert acceptor.receive(bytes(hello)) == b""
        dialler.receive(acceptor.outgoing())
        acceptor.receive(dialler.outgoing())
    assert not acceptor.established
