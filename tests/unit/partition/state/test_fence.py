"""Table 6.2 row by row, and the order of grants."""

import pytest

from stockade.partition.commands import ClearFence, InstallFence, SlotState, Token
from stockade.partition.errors import (
    FencingTokenRequired,
    InvalidFencingToken,
    ProducerBusy,
    ProducerFenced,
    StockadeError,
)
from stockade.partition.state.fence import Fence, is_of_other_topic

from ..driver import grant


def install(number: int, epoch: int, session: str = "s1", mode: str = "Exclusive") -> InstallFence:
    return InstallFence(grant(number), epoch, session, "loader", mode, number)


def held(mode: str = "Exclusive") -> Fence:
    """Slot held by grant 1 of session s1 with epoch 5."""
    fence = Fence()
    fence.install(install(1, 5, mode=mode))
    return fence


def freed() -> Fence:
    fence = held()
    fence.clear(ClearFence(grant(1), 5, 1))
    return fence


def fenced(reason: str) -> StockadeError:
    return ProducerFenced(current_epoch=5, reason=reason)


def busy(mode: str) -> StockadeError:
    return ProducerBusy(reason="exclusive_present", holder_mode=mode, current_epoch=5, queue_len=0)


HOLDER = Token(grant(1), 5, "s1")
NEVER_ISSUED = InvalidFencingToken(current_epoch=5)


@pytest.mark.parametrize(
    ("fence", "token", "require_fence", "verdict"),
    [
        pytest.param(held(), None, False, busy("Exclusive"), id="024-held-no-token"),
        pytest.param(
            held("ExclusiveWithFencing"), None, False, busy("ExclusiveWithFencing"), id="024-evictor-no-token"
        ),
        pytest.param(held(), None, True, FencingTokenRequired(), id="held-no-token-required"),
        pytest.param(held(), Token(grant(1), 4, "s1"), False, fenced("wrong_epoch"), id="held-lower-of-the-holder"),
        pytest.param(held(), Token(grant(1), 4, "s2"), False, fenced("superseded"), id="held-lower-other-session"),
        pytest.param(held(), Token(grant(0), 4, "s1"), False, fenced("superseded"), id="held-lower-other-grant"),
        pytest.param(held(), HOLDER, False, None, id="held-right"),
        pytest.param(held(), HOLDER, True, None, id="held-right-required"),
        pytest.param(held(), Token(grant(1), 5, "s2"), False, fenced("other_session"), id="held-other-session"),
        pytest.param(held(), Token(grant(2), 5, "s1"), False, fenced("other_session"), id="held-other-grant"),
        pytest.param(held(), Token(grant(1), 6, "s1"), False, NEVER_ISSUED, id="held-higher"),
        pytest.param(freed(), None, False, None, id="free-no-token"),
        pytest.param(freed(), None, True, FencingTokenRequired(), id="free-no-token-required"),
        pytest.param(freed(), Token(grant(1), 4, "s1"), False, fenced("superseded"), id="free-lower"),
        pytest.param(freed(), HOLDER, False, fenced("slot_free"), id="025-free-equal"),
        pytest.param(freed(), Token(grant(1), 5, "s2"), True, fenced("slot_free"), id="free-equal-other-session"),
        pytest.param(freed(), Token(grant(1), (1 << 64) - 1, "s1"), False, NEVER_ISSUED, id="free-higher"),
    ],
)
def test_token_against_slot(
    fence: Fence, token: Token | None, require_fence: bool, verdict: StockadeError | None
) -> None:
    assert fence.judge(token, require_fence) == verdict


def test_a_later_grant_takes_the_slot_and_an_earlier_one_does_not() -> None:
    fence = held()
    assert fence.install(install(0, 4)) == SlotState(done=False, topic_epoch=5)
    assert fence.install(install(2, 6, "s2")) == SlotState(done=True, previous=1, topic_epoch=6)
    assert fence.install(install(1, 5)) == SlotState(done=False, topic_epoch=6)
    assert fence.slot == install(2, 6, "s2")


def test_an_install_that_is_repeated_changes_nothing() -> None:
    fence = held()
    assert fence.install(install(1, 5)) == SlotState(done=True, previous=0, topic_epoch=5)
    assert fence.slot == install(1, 5)


def test_a_grant_that_resumes_keeps_the_epoch_and_kills_the_token_before_it() -> None:
    fence = freed()
    assert fence.install(install(2, 5, "s2")) == SlotState(done=True, previous=1, topic_epoch=5)
    assert fence.judge(Token(grant(2), 5, "s2"), False) is None
    assert fence.judge(HOLDER, False) == fenced("other_session")


def test_a_late_install_of_a_grant_that_was_cleared_is_refused() -> None:
    fence = freed()
    assert fence.install(install(1, 5)) == SlotState(done=False, topic_epoch=5)
    assert fence.slot is None


def test_a_grant_cleared_before_it_arrived_never_takes_the_slot() -> None:
    fence = held()
    assert fence.clear(ClearFence(grant(2), 6, 2)) == SlotState(done=True, previous=1, topic_epoch=6)
    assert fence.slot is None
    assert fence.install(install(2, 6)) == SlotState(done=False, topic_epoch=6)


def test_022_a_late_clear_does_not_evict_the_later_holder() -> None:
    fence = held()
    fence.install(install(2, 6, "s2"))
    assert fence.clear(ClearFence(grant(1), 5, 1)) == SlotState(done=True, previous=1, topic_epoch=6)
    assert fence.slot == install(2, 6, "s2")


def test_clearing_again_changes_nothing() -> None:
    fence = freed()
    assert fence.clear(ClearFence(grant(1), 5, 1)) == SlotState(done=True, previous=0, topic_epoch=5)
    assert (fence.slot, fence.topic_epoch, fence.grant_index) == (None, 5, 1)


@pytest.mark.parametrize(
    ("grant_id", "is_other"),
    [
        ("g-812-3", False),
        ("g-813-3", True),
        ("g-8122-3", True),
        ("g-812", False),
        ("nonsense", False),
        ("g-x-1", False),
    ],
)
def test_a_grant_id_names_its_topic(grant_id: str, is_other: bool) -> None:
    assert is_of_other_topic(grant_id, 812) is is_other


def test_a_busy_partition_names_the_holder_since_when_and_until_when_at_most() -> None:
    fence = Fence()
    mine = InstallFence(
        grant(1),
        5,
        "s1",
        "loader",
        "Exclusive",
        1,
        "c1",
        now_ms=70,
        operation="resume",
        wall_ms=1_000_070,
        ttl_ms=9_000,
    )
    fence.install(mine)
    refusal = fence.judge(None, require_fence=False)
    assert isinstance(refusal, ProducerBusy)
    holder = {
        "grant": grant(1),
        "mode": "Exclusive",
        "producer_name": "loader",
        "client_id": "c1",
        "since_ms": 70,
        "since_unix_ms": 1_000_070,
        "expires_in_ms": 9_000,
        "operation": "resume",
    }
    assert refusal.fields["holder"] == holder
    assert "s1" not in repr(refusal), "a session id is a secret"
    later = fence.judge(Token(grant(0), 4, "s0"), require_fence=False)
    assert isinstance(later, ProducerFenced)
    assert later.fields["holder"] == holder
    assert fence.present()[0].wall_ms == 1_000_070
