"""How a client proves who it is, and whom it trusts: a bearer token, and files for TLS.

Holds secrets: they must never be part of a message, and are not shown by repr.
"""

import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything is optional; an address with ``https`` is verified against the system's authorities by default.

    - ``token``: sent with every request as ``Authorization: Bearer``.
    - ``ca``: PEM file of the authorities to trust instead of the system's.
    - ``certificate``, ``key``: PEM files that prove who the client is, where it is asked; ``key`` may be in the first.
    """

    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def faults(self) -> Iterator[str]:
        """A sentence for each thing that is wrong."""
        files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        unreadable = [f"{name}: {path} cannot be read" for name, path in files.items() if path and not _readable(path)]
        yield from unreadable
        if self.key and not self.certificate:
            yield "key: is of no use without certificate"
        elif self.has_files and not unreadable:
            try:
                self.context()
            except OSError as error:
                yield f"ca, certificate, key: {error}"

    @property
    def has_files(self) -> bool:
        """Whether the system's authorities alone do not do."""
        return bool(self.ca or self.certificate)

    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def context(self) -> ssl.SSLContext:
        """For connections with TLS. Raises OSError when a file cannot be read or is not what it should be."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


def _readable(path: str) -> bool:
    return Path(path).is_file() and os.access(path, os.R_OK)
