"""Asks issuers of JSON Web Tokens for their keys, where the configuration names a URL for them.

The keys of the last answer count until the next answer, also while the issuer cannot be reached. No client request
waits for an issuer.
"""

import asyncio
import http.client
import logging
import urllib.error
import urllib.request

from ...cluster.access.issuers import KEYS_BYTES_MAX, Issuer, Issuers, KeysFault

TIMEOUT_S = 10.0
AGAIN_S = 5.0
"""Seconds to the next attempt while the issuer has not given any keys yet."""

_log = logging.getLogger("stockade")


async def follow(issuers: Issuers, issuer: Issuer) -> None:
    """Fetch the issuer's keys from its ``keys_url`` every ``refresh_s`` seconds, until cancelled."""
    assert issuer.keys_url is not None
    has_keys = was_refused = False
    while True:
        try:
            issuers.take(issuer.name, await asyncio.to_thread(_read, issuer.keys_url))
        except (KeysFault, OSError, ValueError, http.client.HTTPException) as error:
            stay = "the keys before stay" if has_keys else "none of its tokens is taken"
            _log.log(
                logging.INFO if was_refused else logging.WARNING,
                "issuer %s: no keys from %s (%s); %s",
                issuer.name,
                issuer.keys_url,
                error,
                stay,
            )
            was_refused = True
        else:
            if was_refused or not has_keys:
                _log.info("issuer %s: its tokens are judged by the keys of %s", issuer.name, issuer.keys_url)
            has_keys, was_refused = True, False
        await asyncio.sleep(issuer.refresh_s if has_keys else AGAIN_S)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: keys come only from the URL that the configuration names."""

    def redirect_request(self, *_: object) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def _read(url: str) -> bytes:
    with _opener.open(url, timeout=TIMEOUT_S) as answer:
        found: bytes = answer.read(KEYS_BYTES_MAX + 1)
    return found
