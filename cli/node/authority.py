"""Makes a certificate authority (CA) and certificates for nodes, for users who have no CA of their own.

Files only, in one folder: NODE.crt and NODE.key for each node, ca.crt for all of them, and ca.key, which belongs on no
node. A node's certificate serves its connections to other nodes and, with the hosts under which clients reach it, its
HTTPS. A client's certificate names the client and no node. No existing file is overwritten. A pair of certificate and
key is written as a whole or not at all.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...cluster.machines import node_name
from ...partition.log.fsutil import make_directory
from ...partition.log.modes import SECRET_MODE
from ...raft.net.tls import node_uri
from ..ui.files import whole_file

CA_NAME = "ca"
"""Name of the CA's files; no node and no machine may have it."""
CA_DAYS = 3650
"""Validity of the CA's certificate in days; the longest of a node's certificate."""
NODE_DAYS = 825
"""Default validity of a node's certificate in days."""
BACKDATED = timedelta(hours=1)
"""Certificates are valid from this long before now, because clocks of machines differ."""
COMMON_NAME_CHARS_MAX = 64


class CannotMake(Exception):
    """A certificate with its key could not be made; those after it were not made either. The message says why."""


@dataclass(frozen=True)
class Authority:
    """A CA: its certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, cluster_id: str) -> "Authority":
        """A new CA, valid for CA_DAYS."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"Stockade {cluster_id}")
        identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = (
            _builder(name, name, key, datetime.now(UTC) + timedelta(days=CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(identity, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identity), critical=False)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, directory: Path) -> "Authority":
        """The CA that was saved in a folder. Raises CannotMake."""
        try:
            certificate = x509.load_pem_x509_certificate(_file(directory, CA_NAME, "crt").read_bytes())
            key = serialization.load_pem_private_key(_file(directory, CA_NAME, "key").read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise CannotMake(f"the authority in {directory} cannot be used: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise CannotMake(f"{directory}: ca.key is not the key of ca.crt")
        return cls(certificate, key)

    def save(self, directory: Path) -> list[Path]:
        """Write ca.crt and ca.key; returns their paths. Raises CannotMake."""
        return _save(directory, CA_NAME, self.certificate, self.key)

    def issue(
        self,
        directory: Path,
        cluster_id: str,
        name: str,
        node_ids: Sequence[str],
        until: datetime,
        hosts: Sequence[str] = (),
    ) -> list[Path]:
        """Make one key and certificate for these nodes, at these host names and IP addresses, valid ``until`` then but
        no longer than the CA. Writes NAME.crt and NAME.key; returns their paths. Raises CannotMake.
        """
        both_ways = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        uris = [x509.UniformResourceIdentifier(node_uri(cluster_id, node_id)) for node_id in node_ids]
        return self._issue(directory, name, [*uris, *map(_host_name, hosts)], both_ways, until)

    def issue_to_client(self, directory: Path, cluster_id: str, name: str, until: datetime) -> list[Path]:
        """Like ``issue``, for a client: the certificate has ``client_uri``, so no node takes it for a node's."""
        names = [x509.UniformResourceIdentifier(client_uri(cluster_id, name))]
        return self._issue(directory, name, names, [ExtendedKeyUsageOID.CLIENT_AUTH], until)

    def _issue(
        self,
        directory: Path,
        name: str,
        names: Sequence[x509.GeneralName],
        usages: Sequence[x509.ObjectIdentifier],
        until: datetime,
    ) -> list[Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject
        until = min(until, self.certificate.not_valid_after_utc)
        authority = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = (
            _builder(_name(name), issuer, key, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority), critical=False)
        )
        return _save(directory, name, builder.sign(self.key, hashes.SHA256()), key)


class Wanted(NamedTuple):
    """A node, or a machine, for which a certificate is to be made, and the hosts under which clients reach it."""

    name: str
    hosts: tuple[str, ...] = ()


def make_certificates(
    directory: Path,
    cluster_id: str,
    nodes: Sequence[Wanted],
    days: int,
    *,
    processes: int | None = None,
    clients: Sequence[str] = (),
) -> list[Path]:
    """Make certificates for nodes (with ``processes``: for machines of so many nodes each) and for clients, signed by
    the CA of the folder, which is made if there is none. Returns the paths of the new files.

    Raises CannotMake: if one of the files exists, before anything is written; or at the first that cannot be written.
    """
    names = [*(node.name for node in nodes), *clients]
    there = [str(path) for name in names for path in node_files(directory, name) if path.exists()]
    if there:
        raise CannotMake(f"nothing is overwritten, and this exists: {', '.join(there)}; move it away to make it anew")
    make_directory(directory)
    made = []
    if any(path.exists() for path in node_files(directory, CA_NAME)):
        authority = Authority.load(directory)
    else:
        authority = Authority.make(cluster_id)
        made += authority.save(directory)
    until = datetime.now(UTC) + timedelta(days=days)
    for name, hosts in nodes:
        node_ids = [name] if processes is None else [node_name(name, number) for number in range(1, processes + 1)]
        made += authority.issue(directory, cluster_id, name, node_ids, until, hosts)
    for name in clients:
        made += authority.issue_to_client(directory, cluster_id, name, until)
    return made


def client_uri(cluster_id: str, name: str) -> str:
    """The URI (subject alternative name) of a client's certificate. A node's has one segment after the cluster id."""
    return f"stockade://{cluster_id}/client/{name}"


def node_files(directory: Path, name: str) -> list[Path]:
    """Paths of a node's or a machine's certificate and key."""
    return [_file(directory, name, "crt"), _file(directory, name, "key")]


def tls_section(directory: Path, name: str) -> str:
    """The section [raft.tls] with these files, for the configuration of a node or a machine: TLS between nodes."""
    certificate, key = node_files(directory, name)
    return _section("raft.tls", {"ca": _file(directory, CA_NAME, "crt"), "certificate": certificate, "key": key})


def https_section(directory: Path, name: str) -> str:
    """The section [http_tls] with these files: HTTPS, at which a client may show a certificate of this CA, or none."""
    certificate, key = node_files(directory, name)
    authority = _file(directory, CA_NAME, "crt")
    files = {"certificate": certificate, "key": key, "client_ca": authority, "ca": authority}
    return _section("http_tls", files)


def _section(name: str, paths: Mapping[str, Path]) -> str:
    return "\n".join([f"[{name}]", *(f'{setting} = "{_quoted(path)}"' for setting, path in paths.items())])


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


def _file(directory: Path, name: str, kind: str) -> Path:
    return directory / f"{name}.{kind}"


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(text: str) -> x509.Name:
    """The common name: nodes do not check it, they check the URI."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:COMMON_NAME_CHARS_MAX])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=datetime.now(UTC) - BACKDATED,
        not_valid_after=until,
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _save(directory: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> list[Path]:
    key_text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    texts = (certificate.public_bytes(serialization.Encoding.PEM), 0o644), (key_text, SECRET_MODE)
    made: list[Path] = []
    for path, (content, mode) in zip(node_files(directory, name), texts, strict=True):
        try:
            with whole_file(path, mode, replaces=False) as file:
                file.write(content)
        except OSError as error:
            for other in made:
                other.unlink()
            raise CannotMake(f"{path} cannot be written: {error.strerror}") from error
        made.append(path)
    return made
