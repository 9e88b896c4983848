"""Which peers are silent, and that a pause of this node makes none of them silent."""

from collections.abc import Callable

from stockade.raft.net.liveness import Liveness, LivenessTimeouts

TIMES = LivenessTimeouts(heartbeat_s=0.1, silent_s=0.4)


class Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class House:
    """A node with a clock of its own. Peer f is heard when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.given = 0
        self.heard = {"f": self.now}
        self.events: list[str] = []
        self.liveness = Liveness(self, lambda: self.now, self.call_at, TIMES)
        self.liveness.start()
        self.liveness.up("f")

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        self.timer = Timer(when, callback)
        return self.timer

    def beat(self, *, late_s: float = 0.0) -> None:
        self.now = self.timer.when + late_s
        self.timer.callback()

    def send_heartbeats(self, awake_at: float) -> None:
        self.given += 1

    def last_heard(self, node_id: str) -> float:
        return self.heard[node_id]

    def fell_silent(self, node_id: str) -> None:
        self.events.append(f"{node_id} silent")

    def heard_again(self, node_id: str) -> None:
        self.events.append(f"{node_id} heard")


def test_a_heartbeat_is_sent_at_once_and_each_period() -> None:
    house = House()
    assert house.given == 1
    for _ in range(3):
        house.beat()
    assert house.given == 4
    assert abs(house.now - 100.3) < 1e-9


def test_a_heartbeat_that_comes_in_the_second_half_of_a_period_is_answered_by_ours() -> None:
    house = House()
    house.now += 0.049
    house.liveness.heartbeat_came()
    assert (house.given, house.timer.is_cancelled) == (1, False)
    house.now += 0.002
    former = house.timer
    house.liveness.heartbeat_came()
    assert (house.given, former.is_cancelled) == (2, True)
    assert abs(house.timer.when - house.now - 0.1) < 1e-9
    house.liveness.heartbeat_came()
    assert house.given == 2, "however many come"


def test_a_node_that_gives_no_sign_of_life_any_more_answers_no_heartbeat() -> None:
    house = House()
    house.liveness.stop()
    house.now += 1.0
    house.liveness.heartbeat_came()
    assert house.given == 1


def test_a_peer_is_silent_when_nothing_arrived_for_the_whole_time_and_until_something_does() -> None:
    house = House()
    for _ in range(3):
        house.beat()
    assert house.events == []
    house.beat()
    house.beat()
    assert (house.events, house.liveness.silent) == (["f silent"], {"f"})
    house.heard["f"] = house.now
    house.beat()
    assert (house.events, house.liveness.silent) == (["f silent", "f heard"], set())


def test_no_peer_is_blamed_for_the_time_in_which_this_node_stood_still() -> None:
    house = House()
    house.beat(late_s=5.0)
    assert house.events == []
    assert house.liveness.heard_at("f") == house.now
    for _ in range(5):
        house.beat()
    assert house.events == ["f silent"], "from then on it counts"


def test_a_peer_that_is_gone_is_not_silent() -> None:
    house = House()
    for _ in range(5):
        house.beat()
    house.liveness.down("f")
    assert house.liveness.silent == set()
    house.beat()
    assert house.events == ["f silent"]


def test_the_listener_of_silence_may_end_the_connection() -> None:
    house = House()
    house.heard["g"] = house.now
    house.liveness.up("g")

    def hang_up_on_all(_: str) -> None:
        for peer in house.heard:
            house.liveness.down(peer)
            house.events.append(f"{peer} down")

    house.fell_silent = hang_up_on_all  # type: ignore[assignment, method-assign]
    for _ in range(6):
        house.beat()
    assert house.events == ["f down", "g down"]


def test_no_heartbeat_is_sent_after_stop() -> None:
    house = House()
    house.liveness.stop()
    assert house.timer.is_cancelled
