"""Commands about what sessions own in groups (SEMANTICS 5.5, 5.6). Part of the controller's (commands.Command)."""

from typing import Literal

import msgspec

from .model import Claim
from .refs import FenceRef, ReaderRef
from .timed import Timed


class Own(Timed, frozen=True, tag="own"):
    """Own resources of a group. ``sever``: what a loser loses.

    Answers Owned, or InvalidRequest, UnknownSession, SessionExpired, GenerationFenced (``atomic`` alone),
    ThrottlingQuotaExceeded.
    """

    session: str
    group: str
    claims: list[Claim]
    atomic: bool = True
    sever: Literal["session", "resource"] = "session"


class Disown(Timed, frozen=True, tag="disown"):
    """Give resources up. Answers Owned, or InvalidRequest, UnknownSession, SessionExpired, NotOwner."""

    session: str
    group: str
    resources: list[str]


class ForgetResources(Timed, frozen=True, tag="forget_resources"):
    """Forget those of these resources (group, resource) that nobody has owned for long. Answers Done."""

    keys: list[tuple[str, str]]


class ReaderFenceInstalled(Timed, frozen=True, tag="reader_fence_installed"):
    """The partition has committed InstallReader with this. Idempotent. Answers Done."""

    group_id: int
    group: str
    fence_epoch: int
    owned: bool


GroupCommand = Own | Disown | ForgetResources | ReaderFenceInstalled


class Verdict(msgspec.Struct, frozen=True):
    """On one claim, with what is in force now; ``code`` says why it was refused."""

    resource: str
    granted: bool
    generation: int
    fence_epoch: int
    code: str | None = None


class Owned(msgspec.Struct, frozen=True, tag="owned"):
    """Verdicts in the order of the claims; answer the client when every one of ``pending`` is installed, and every one
    of ``fences`` over: grants of those who were severed.
    """

    verdicts: list[Verdict]
    pending: list[ReaderRef]
    fences: list[FenceRef] = []
