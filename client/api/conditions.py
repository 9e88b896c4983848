"""Conditions of an append beside fencing token and sequence number."""

from typing import NamedTuple

from ...partition.commands import MESSAGE_ID_CHARACTERS_MAX
from ...partition.errors import InvalidRequest


class Conditions(NamedTuple):
    """Conditions that must hold when the partition decides about an append. All are optional.

    - ``if_log_end``: the next offset of the partition is this one; otherwise OffsetMismatch.
    - ``message_id``: a name for the batch, 1 to 128 printable characters without blanks at the ends. Within the topic's
      ``dedupe_window_ms`` the partition stores one batch of a name, from any client, and answers a second one as a
      duplicate with the offsets of the first.
    - ``fence_epoch``: the caller owns ``<topic>/<partition>`` in the topic's ``writer_group`` under this fence_epoch;
      otherwise NotOwner.
    """

    if_log_end: int | None = None
    message_id: str | None = None
    fence_epoch: int | None = None

    @property
    def is_unstamped(self) -> bool:
        """Whether the partition may refuse the batch, or answer it, without using up its sequence numbers."""
        return self.if_log_end is not None or self.message_id is not None

    def check(self) -> None:
        """Raises InvalidRequest for an offset below 0, and for a message id that a header cannot carry unchanged."""
        if self.if_log_end is not None and (not isinstance(self.if_log_end, int) or self.if_log_end < 0):
            raise InvalidRequest(f"if_log_end: {self.if_log_end!r} is no offset")
        name = self.message_id
        if name is None:
            return
        is_text = isinstance(name, str) and 1 <= len(name) <= MESSAGE_ID_CHARACTERS_MAX
        if not is_text or not name.isprintable() or name != name.strip():
            what = f"1 to {MESSAGE_ID_CHARACTERS_MAX} printable characters without blanks at the ends"
            raise InvalidRequest(f"message_id: not {what}: {name!r:.200}")

    def headers(self) -> dict[str, str]:
        """The request headers for ``if_log_end`` and ``message_id``; ``fence_epoch`` goes into the query."""
        headers: dict[str, str] = {}
        if self.if_log_end is not None:
            headers["Stockade-If-Log-End"] = str(self.if_log_end)
        if self.message_id is not None:
            headers["Stockade-Message-Id"] = self.message_id
        return headers


UNCONDITIONAL = Conditions()
