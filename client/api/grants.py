"""The requests for a session, a grant and resources, as values: a Session counts its ttl from the moment of its
request, and undoes a request for a grant or resources whose caller was cancelled.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import get_args

from ...partition.api.ownership import Grant, OwnAnswer, OwnResult, SessionInfo, Sever, Ticket
from ...partition.api.topics import Mode, Topic
from ...partition.errors import InvalidRequest
from ..transport.calls import Calls, decode, present, quoted
from .session_route import session_header


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The request for a session; the fields are as in `Client.open_session`."""

    client_id: str
    ttl_ms: int

    async def ask(self, calls: Calls) -> tuple[SessionInfo, float]:
        """The session, and the beginning of the attempt that was answered, in seconds of the monotonic clock. Each
        attempt asks for another session; a session whose attempt got no answer ends by its ttl.
        """
        asked_s = time.monotonic()

        def begins_again() -> bool:
            nonlocal asked_s
            asked_s = time.monotonic()
            return True

        body = {"client_id": self.client_id, "ttl_ms": self.ttl_ms}
        session = await calls.call(SessionInfo, "POST", "/v1/sessions", body=body, is_wanted=begins_again)
        return session, asked_s


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """The request for a grant on all of ``partitions`` (None: all of the topic); fields are as in `Client.acquire`."""

    topic: str
    session: str
    partitions: Sequence[int] | None
    mode: Mode
    producer_name: str
    resume_epoch: int | None = None
    topic_id: int | None = None

    async def ask(
        self, calls: Calls, *, patience_ms: int | None = None, is_wanted: Callable[[], bool] | None = None
    ) -> Grant | Ticket:
        """The grant, or a ticket. The request is repeated for ``patience_ms`` (None: ``delivery_timeout_ms``), as long
        as ``is_wanted`` answers True.
        """
        if self.mode not in get_args(Mode):
            raise InvalidRequest(f"mode: {self.mode!r:.100} is none of {', '.join(get_args(Mode))}")
        wanted = "all" if self.partitions is None else partition_numbers(self.partitions)
        body = {"partitions": wanted, "mode": self.mode, "producer_name": self.producer_name}
        body |= present(resume_epoch=self.resume_epoch, topic_id=self.topic_id)
        path, headers = f"/v1/topics/{quoted(self.topic)}/grants", session_header(self.session)
        answer = await calls.send(
            "POST", path, headers=headers, body=body, patience_ms=patience_ms, is_wanted=is_wanted
        )
        return decode(answer, Grant) if answer.status == HTTPStatus.CREATED else decode(answer, Ticket)


@dataclass(frozen=True, slots=True)
class OwnRequest:
    """The request for resources of a group; the fields are as in `Client.own`."""

    group: str
    session: str
    resources: Sequence[str]
    generation: int | None = None
    atomic: bool = True
    sever: Sever = "session"

    async def ask(
        self, calls: Calls, *, patience_ms: int | None = None, is_wanted: Callable[[], bool] | None = None
    ) -> list[OwnResult]:
        """The verdicts in the order of ``resources``. The request is repeated as a `GrantRequest` is."""
        claims = [{"resource": resource} | present(generation=self.generation) for resource in self.resources]
        body = {"claims": claims, "atomic": self.atomic, "sever": self.sever}
        path, headers = f"/v1/groups/{quoted(self.group)}/own", session_header(self.session)
        answer = await calls.send(
            "POST", path, headers=headers, body=body, patience_ms=patience_ms, is_wanted=is_wanted
        )
        return decode(answer, OwnAnswer).results


def partition_numbers(wanted: Sequence[int] | None, topic: Topic | None = None) -> list[int]:
    """The partition numbers ``wanted``, ascending; None: all of ``topic``. Raises InvalidRequest unless it is a list of
    numbers.
    """
    if wanted is None:
        assert topic is not None
        return list(range(len(topic.partitions)))
    if not isinstance(wanted, Iterable) or not all(isinstance(number, int) for number in wanted):
        raise InvalidRequest(f"partitions: a list of numbers is needed, such as [0], not {wanted!r:.100}")
    return sorted(wanted)
