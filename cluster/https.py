"""TLS of a node's HTTP interface: the section [http_tls], the listener's certificate, and those that clients show.

A listener's files may change while it listens: connections that come later get the new certificate, open ones stay. A
certificate that cannot be used is refused, and the one before stays.
"""

import hashlib
import ssl
from typing import Any, Literal, NamedTuple

import msgspec

from ..partition.log.fsutil import Stamp, stamp
from ..raft.net.tls import TlsFault, TlsSession, explained, load_own, shake_hands

ALPN = ["http/1.1"]
"""The protocols that the listener offers."""

ClientCertificates = Literal["optional", "required"]


class HttpTlsSection(msgspec.Struct, frozen=True):
    """[http_tls]: HTTPS on ``http``. PEM files; relative paths are relative to the configuration.

    ``client_ca``: authorities whose clients' certificates count; ``client_certificates``: whether every client must
    show one. ``ca``: authorities that this node trusts when it asks a node at https:// whether it may join (None: the
    system's). ``plain_listen``: host:port that takes the same requests without TLS, while clients change over.
    """

    certificate: str
    key: str
    client_ca: str | None = None
    client_certificates: ClientCertificates = "optional"
    ca: str | None = None
    plain_listen: str | None = None


class ClientCertificate(NamedTuple):
    """The verified certificate of a client: ``fingerprint`` is the SHA-256 of its DER bytes in lower-case hexadecimal
    digits, ``names`` its subject alternative names as KIND:NAME (DNS:host, URI:…, email:…, IP Address:…), and
    ``common_name`` its subject's ("": it has none).
    """

    fingerprint: str
    names: tuple[str, ...]
    common_name: str


class ShownCertificate(NamedTuple):
    """The certificate that a client has shown, and when it expires, in seconds since 1970."""

    certificate: ClientCertificate
    expires_s: float


def client_certificate(connection: ssl.SSLObject | None) -> ShownCertificate | None:
    """The certificate that the other end of a connection has shown; None: none was, or there is no TLS. It may have
    expired since: TLS 1.2 resumes sessions.
    """
    found: dict[str, Any] | None = None if connection is None else connection.getpeercert()
    der = None if connection is None else connection.getpeercert(binary_form=True)
    if not found or der is None:
        return None
    names = tuple(f"{kind}:{name}" for kind, name in found.get("subjectAltName", ()))
    subject = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
    certificate = ClientCertificate(hashlib.sha256(der).hexdigest(), names, subject[0] if subject else "")
    return ShownCertificate(certificate, float(ssl.cert_time_to_seconds(found["notAfter"])))


class _Latest(ssl.SSLContext):
    """Hands each new connection to the latest context."""

    latest: ssl.SSLContext

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Begin TLS on a connection, with the latest context."""
        return self.latest.wrap_bio(*args, **options)


class HttpTls:
    """The TLS of one listener: TLS 1.2 or newer. ``context`` is for connections that come later, too."""

    def __init__(self, section: HttpTlsSection) -> None:
        """Read the files, and try a handshake. Raises TlsFault with the name of the setting that is wrong."""
        self._section = section
        self.context: _Latest = _Latest(ssl.PROTOCOL_TLS_SERVER)
        self.expires_at: float | None = None
        """When the certificate expires, in seconds since 1970."""
        self.is_refused: bool = False
        """Whether the files cannot be used as they are now, so that those before them are in use."""
        self.context.latest, self.expires_at = _server_context(section)
        self._seen = self._stamps()

    def has_changed(self) -> bool:
        """Whether a file has changed since the files were read last."""
        return self._seen != self._stamps()

    def reload(self) -> None:
        """Read the files again, for connections that come from now on. Raises TlsFault, and changes nothing then."""
        self._seen = self._stamps()
        self.is_refused = True
        self.context.latest, self.expires_at = _server_context(self._section)
        self.is_refused = False

    def _stamps(self) -> list[Stamp]:
        section = self._section
        return [stamp(path) for path in (section.certificate, section.key, section.client_ca) if path is not None]


def _server_context(section: HttpTlsSection) -> tuple[ssl.SSLContext, float | None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(ALPN)
    load_own(context, section.certificate, section.key)
    expires_at = _try(context, section)
    if section.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED if section.client_certificates == "required" else ssl.CERT_OPTIONAL
        context.num_tickets = 0  # a resumed session does not show its certificate again; some of TLS 1.2 are resumed
        context.options |= ssl.OP_NO_TICKET
        try:
            context.load_verify_locations(section.client_ca)
        except (OSError, ValueError) as error:
            raise TlsFault(f"client_ca: {section.client_ca} holds no certificate: {explained(error)}") from error
    return context, expires_at


def _try(context: ssl.SSLContext, section: HttpTlsSection) -> float | None:
    """When the certificate expires, in seconds since 1970. Raises TlsFault for a certificate that no client would
    accept at any address: one that has expired, say.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is the authority
    client.load_verify_locations(section.certificate)
    dialler = TlsSession(client, dialled=True)
    try:
        shake_hands(dialler, TlsSession(context, dialled=False))
    except TlsFault as fault:
        raise TlsFault(f"certificate: clients would not accept it: {fault}") from fault
    return dialler.expires_at
