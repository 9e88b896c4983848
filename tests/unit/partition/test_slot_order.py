"""Decisions about one slot, lost, repeated and late: what was decided last wins, and nothing old comes back."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from stockade.partition.commands import ClearFence, Command, InstallFence, InstallSeats, SharedHolder, Token
from stockade.partition.state.fence import Fence

from .driver import grant


@dataclass
class Decision:
    """What the controller decided, and whose tokens are good under it."""

    command: Command
    place: tuple[int, int, bool]
    """Epoch, index; what ends a grant comes after it in the same place."""
    tokens: list[Token] = field(default_factory=list)


class Controller:
    """Decides about one slot, each time at a later index and an epoch that never falls."""

    def __init__(self) -> None:
        self.epoch = 0
        self.seats: list[SharedHolder] = []
        self.decisions: list[Decision] = []
        self.holder: InstallFence | None = None

    def decide(self, kind: str) -> None:
        index = len(self.decisions) + 1
        seat = SharedHolder(grant(index), f"s{index}", "loader")
        tokens: list[Token] = []
        is_end = False
        if kind in ("grant", "resume"):
            self.epoch += kind == "grant" or self.holder is not None or bool(self.seats)
            self.holder, self.seats = InstallFence(seat.grant_id, self.epoch, seat.session, "loader", "E", index), []
            command: Command = self.holder
            tokens = [Token(seat.grant_id, self.epoch, seat.session)]
        elif kind == "end" and self.holder is not None:
            index, is_end = self.holder.grant_index, True
            command = ClearFence(self.holder.grant_id, self.holder.epoch, index)
            self.holder = None
        elif kind == "drill":
            self.epoch += 1
            command = ClearFence("", self.epoch, index)
            self.holder, self.seats = None, []
        elif self.holder is None:
            self.seats = [*self.seats[-2:], seat] if kind == "share" else self.seats[1:]
            command = InstallSeats(self.epoch, index, list(self.seats))
            tokens = [Token(s.grant_id, self.epoch, s.session) for s in self.seats]
        else:
            return
        self.decisions.append(Decision(command, (self.epoch, index, is_end), tokens))


KINDS = st.sampled_from(["grant", "resume", "end", "drill", "share", "leave"])


def deliver(fence: Fence, decision: Decision) -> None:
    match decision.command:
        case InstallFence() as command:
            fence.install(command)
        case InstallSeats() as command:
            fence.share(command)
        case ClearFence() as command:
            fence.clear(command)
        case _:
            raise AssertionError(decision)


@settings(max_examples=300, deadline=None)
@given(st.lists(KINDS, min_size=1, max_size=12), st.data())
def test_the_slot_is_that_of_the_latest_decision_in_any_order_of_arrival(kinds: list[str], data: st.DataObject) -> None:
    controller = Controller()
    for kind in kinds:
        controller.decide(kind)
    decisions = controller.decisions
    if not decisions:
        return
    every_token = [token for decision in decisions for token in decision.tokens]
    fence, latest = Fence(), Decision(ClearFence("", 0, 0), (0, 0, True))
    for place in data.draw(st.lists(st.integers(0, len(decisions) - 1), max_size=25)):
        deliver(fence, decisions[place])
        latest = max(latest, decisions[place], key=lambda decision: decision.place)
        accepted = [token for token in every_token if fence.judge(token, True) is None]
        assert all(token in latest.tokens for token in accepted), "an older token passes"
        assert all(token in accepted for token in latest.tokens), "a token in force does not pass"
        assert (fence.topic_epoch, fence.grant_index) == latest.place[:2]
