"""Mutual TLS between nodes: which certificates are accepted, and the encryption of one connection (sans-IO).

Neither the operating system's authorities nor host names count: a certificate stands for a node because an authority of
this cluster signed the node's URI in it. Nothing here touches a socket or a clock.
"""

import hashlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ...partition.log.fsutil import Stamp, stamp

_FIRST_BYTES, _SECOND_BYTES = (b"", b"\x16", b"\x15"), (b"", b"\x03")
"""The first and the second byte of a TLS connection, or nothing yet: a handshake or alert record, the major version."""
_READ_BYTES = 1 << 14
"""Most bytes of plaintext in a record (RFC 8446, 5.1): a read of so many takes the whole record."""


Mode = Literal["accept", "dial", "require"]
"""How a node uses TLS while a running cluster changes over to it, node by node: ``accept`` takes connections with and
without TLS, and dials without; ``dial`` takes both, and dials with TLS; ``require`` takes and dials only with TLS.
"""


def node_uri(cluster_id: str, node_id: str) -> str:
    """The URI in the subject alternative names of a node's certificate. Ids contain no slash, so it is unambiguous."""
    return f"stockade://{cluster_id}/{node_id}"


def looks_like_tls(data: bytes) -> bool:
    """Whether the first bytes of a connection are TLS. A frame that begins so is longer than HELLO_BYTES_MAX."""
    return data[:3] == b"\x16\x03\x01"


class TlsFault(Exception):
    """Why a connection, or this node's own files, cannot be trusted; the text is for people."""


class NotTls(TlsFault):
    """The other end does not speak TLS at all."""


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files: the certificates of the accepted authorities, this node's certificate (with its chain), and
    its key.

    ``revoked`` is a text file. Each line names a revoked node, by its id or by the SHA-256 fingerprint of its
    certificate (hexadecimal digits, perhaps with colons). A # begins a comment.
    """

    ca: str
    certificate: str
    key: str
    revoked: str | None = None


class Tls:
    """The TLS settings of a node's connections: TLS 1.3 only, certificates of both ends required."""

    def __init__(self, files: TlsFiles, cluster_id: str, node_id: str, mode: Mode = "require") -> None:
        """Read the files, and try a handshake with them, so that a node that no other node would accept does not start.

        Raises TlsFault with the name of the file that is wrong (``ca``, ``certificate``, ``key`` or ``revoked``).
        """
        self.on_reload: Callable[[], None] = lambda: None
        """Called after the files were read again and accepted."""
        self.expires_at: float | None = None
        """When this node's certificate expires, in seconds since 1970."""
        self.is_refused: bool = False
        """Whether the last ``reload`` refused the files, so that the ones read before are in use."""
        self._mode = mode
        self._files = files
        self._uri = node_uri(cluster_id, node_id)
        self.reload()

    def has_changed(self) -> bool:
        """Whether a file was written or replaced since the last ``reload``."""
        return self._seen != self._stamps()

    def reload(self) -> None:
        """Read the files again, for connections made from now on; open ones stay. Raises TlsFault if the files cannot
        be used; the ones read before then stay in use.
        """
        self._seen = self._stamps()
        self.is_refused = True
        found = _Contexts(
            _context(ssl.PROTOCOL_TLS_SERVER, self._files), _context(ssl.PROTOCOL_TLS_CLIENT, self._files)
        )
        shown = found.seen_by_others()
        if self._uri not in shown.names:
            raise TlsFault(f"certificate: {_list(shown.names)}, not {self._uri}")
        self._revoked = _revoked(self._files.revoked)
        self._contexts = found
        self.expires_at = shown.expires_at
        self.is_refused = False
        self.on_reload()

    def _stamps(self) -> list[Stamp]:
        files = self._files
        return [stamp(path) for path in (files.ca, files.certificate, files.key, files.revoked) if path is not None]

    def session(self, *, dialled: bool) -> "TlsSession":
        session = self._contexts.session(dialled=dialled)
        session.may_be_plain = not dialled and self._mode != "require"
        return session

    @property
    def dials_plain(self) -> bool:
        """Whether this node dials without TLS, in mode ``accept``."""
        return self._mode == "accept"

    def is_revoked(self, node_id: str, fingerprint: str | None) -> bool:
        """Whether the node, or the certificate with this fingerprint, is revoked."""
        return node_id in self._revoked or fingerprint in self._revoked


class _Contexts(NamedTuple):
    accepting: ssl.SSLContext
    dialling: ssl.SSLContext

    def session(self, *, dialled: bool) -> "TlsSession":
        return TlsSession(self.dialling if dialled else self.accepting, dialled=dialled)

    def seen_by_others(self) -> "TlsSession":
        """The accepting session of a handshake of this node with itself, which has the names and the expiry of the
        certificate as other nodes see them. Raises TlsFault if they would not accept the certificate.
        """
        dialler, acceptor = self.session(dialled=True), self.session(dialled=False)
        try:
            shake_hands(dialler, acceptor)
        except TlsFault as fault:
            raise TlsFault(f"certificate: the other nodes would not accept it: {fault}") from fault
        return acceptor


class TlsSession:
    """The encryption of one connection. ``outgoing`` and ``seal`` return the bytes to send."""

    def __init__(self, context: ssl.SSLContext, *, dialled: bool) -> None:
        self.established: bool = False
        """Whether the other end's certificate is verified, so that frames may be sealed."""
        self.names: frozenset[str] = frozenset()
        """The URIs in the other end's certificate."""
        self.fingerprint: str | None = None
        """SHA-256 of that certificate, in lower-case hexadecimal digits."""
        self.expires_at: float | None = None
        """When that certificate expires, in seconds since 1970."""
        self.may_be_plain: bool = False
        """Whether the other end may speak without TLS."""
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=not dialled)
        self._is_first = True
        self._shake_hands()

    def receive(self, data: bytes) -> bytes:
        """Decrypt bytes of the other end. Raises TlsFault; then ``outgoing`` returns the alert to send to that end."""
        if self._is_first and (data[:1] not in _FIRST_BYTES or data[1:2] not in _SECOND_BYTES):
            raise NotTls("it does not speak TLS")
        self._is_first = self._is_first and not data
        self._received.write(data)
        try:
            return self._read() if self.established or self._shake_hands() else b""
        except ssl.SSLError as error:
            raise TlsFault(explained(error)) from error

    def outgoing(self) -> bytes:
        """The bytes that TLS itself has to send: parts of the handshake, alerts."""
        return self._to_send.read()

    def seal(self, data: bytes) -> bytes:
        """Encrypt ``data``; the bytes to send include those of ``outgoing``. The session must be established."""
        unsealed = memoryview(data)
        while unsealed:
            unsealed = unsealed[self._tls.write(unsealed) :]
        return self._to_send.read()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.established = True
        certificate = self._tls.getpeercert()
        self.names = _uris(certificate)
        if certificate:
            self.expires_at = float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
        shown = self._tls.getpeercert(binary_form=True)
        self.fingerprint = None if shown is None else hashlib.sha256(shown).hexdigest()
        return True

    def _read(self) -> bytes:
        parts = []
        try:
            while part := self._tls.read(_READ_BYTES):
                parts.append(part)
                if not self._received.pending:
                    break  # another read would end the loop, too, by an exception that takes as long as all the rest
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return b"".join(parts)


def shake_hands(dialler: TlsSession, acceptor: TlsSession) -> None:
    """Establish a connection between two sessions in this process. Raises TlsFault."""
    while not (dialler.established and acceptor.established):
        acceptor.receive(dialler.outgoing())
        dialler.receive(acceptor.outgoing())


def certificate_fault(names: frozenset[str] | None, cluster_id: str, node_id: str) -> str | None:
    """Why a certificate with these URIs is not the node's; None if it is, or if ``names`` is None, without TLS."""
    if names is None or node_uri(cluster_id, node_id) in names:
        return None
    return f"it says that it is node {node_id!r} of {cluster_id!r}, but its certificate {_list(names)}"


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the node's URI is compared instead, whatever the address
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # a session that is resumed would not show its certificate again
    try:
        context.load_verify_locations(files.ca)
    except (OSError, ValueError) as error:
        raise TlsFault(f"ca: {files.ca} holds no certificate of an authority: {explained(error)}") from error
    load_own(context, files.certificate, files.key)
    return context


def load_own(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Let a context show the certificate. Raises TlsFault, which names the file that cannot be used."""
    for name, path in (("certificate", certificate), ("key", key)):
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise TlsFault(f"{name}: {path}: {error.strerror}") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except (OSError, ValueError) as error:
        raise TlsFault(f"certificate: {certificate} holds no certificate in PEM: {explained(error)}") from error
    try:
        context.load_cert_chain(certificate, key, password="")  # never ask on a terminal  # nosec B106
    except (OSError, ValueError) as error:
        is_another = isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH"
        fault = f"is not the key of {certificate}" if is_another else "holds no private key in PEM without a password"
        raise TlsFault(f"key: {key} {fault}: {explained(error)}") from error


def _revoked(path: str | None) -> frozenset[str]:
    if path is None:
        return frozenset()
    try:
        lines = [line.partition("#")[0].strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise TlsFault(f"revoked: {path} cannot be read: {error}") from error
    return frozenset(found for line in lines if line for found in (line, line.replace(":", "").lower()))


def _uris(certificate: dict[str, Any] | None) -> frozenset[str]:
    names = (certificate or {}).get("subjectAltName", ())
    return frozenset(name for kind, name in names if kind == "URI")


def _list(names: frozenset[str]) -> str:
    return f"names {', '.join(sorted(names)) or 'no node'}"


def explained(error: Exception) -> str:
    """The text of an error of OpenSSL, in words for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate cannot be trusted: {error.verify_message}"
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if reason is None:
        return str(error)
    words = reason.lower().replace("_", " ")
    _, alert, what = words.partition(" alert ")
    return f"it refuses TLS with this node: {what}" if alert else f"TLS failed: {words}"
