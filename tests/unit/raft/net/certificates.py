"""Certificates for tests: a good one, and each kind of bad one."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stockade.cli.node.authority import Authority, node_files
from stockade.raft.net.tls import Tls, TlsFiles

CLUSTER = "house"


@dataclass(frozen=True)
class Issuer:
    """An authority in a folder of its own."""

    directory: Path
    authority: Authority

    @classmethod
    def make(cls, directory: Path) -> "Issuer":
        directory.mkdir()
        authority = Authority.make(CLUSTER)
        authority.save(directory)
        return cls(directory, authority)

    def files(self, node_id: str, *, cluster_id: str = CLUSTER, expired: bool = False) -> TlsFiles:
        directory = self.directory / f"{cluster_id}-{expired}"
        directory.mkdir(exist_ok=True)
        certificate, key = node_files(directory, node_id)
        if not certificate.exists():
            until = datetime.now(UTC) + (timedelta(minutes=-1) if expired else timedelta(days=1))
            self.authority.issue(directory, cluster_id, node_id, [node_id], until)
        return TlsFiles(str(self.directory / "ca.crt"), str(certificate), str(key))

    def tls(self, node_id: str) -> Tls:
        return Tls(self.files(node_id), CLUSTER, node_id)


def trusting_context(files: TlsFiles | None, *, server: bool = False) -> ssl.SSLContext:
    """An attacker's context: it trusts every certificate, and presents these files if any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if files is not None:
        context.load_cert_chain(files.certificate, files.key)
    return context
