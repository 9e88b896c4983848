"""Quotas: rates by a bucket of one second, counts by what a principal has, and room that is left for others."""

import pytest

from stockade.cluster.access.principals import Principal, principal_faults
from stockade.cluster.access.quotas import COUNT_MAX, PER_S_MAX, Quota, Spending, check_most
from stockade.cluster.front.front import Front
from stockade.cluster.model import By
from stockade.partition.errors import ThrottlingQuotaExceeded


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def refused_ms(spending: Spending) -> int:
    with pytest.raises(ThrottlingQuotaExceeded) as caught:
        spending.admit()
    return int(caught.value.fields["retry_after_ms"])


def test_requests_are_as_many_a_second_as_the_quota_says() -> None:
    clock = Clock()
    spending = Spending("principal p", Quota(requests_per_s=10), now_s=clock)
    for _ in range(10):
        spending.admit()
    assert refused_ms(spending) == 101
    clock.now_s += 0.2
    spending.admit()
    clock.now_s += 60
    for _ in range(10):
        spending.admit()
    assert refused_ms(spending) > 0, "what was not used in a minute is not saved up"


def test_a_large_body_is_paid_for_before_the_next_request() -> None:
    clock = Clock()
    spending = Spending("principal p", Quota(bytes_per_s=1000), now_s=clock)
    spending.admit()
    spending.spend_bytes(6000)
    assert refused_ms(spending) == pytest.approx(5000, abs=5)
    assert spending.lacking_s() == pytest.approx(5.0, abs=0.01)
    clock.now_s += 4.9
    assert 0 < refused_ms(spending) <= 110
    clock.now_s += 0.2
    spending.admit()
    assert spending.lacking_s() == 0


def test_over_many_seconds_a_rate_is_kept_whatever_the_sizes() -> None:
    clock = Clock()
    spending, sent = Spending("principal p", Quota(bytes_per_s=1000), now_s=clock), 0
    for turn in range(1000):
        try:
            spending.admit()
        except ThrottlingQuotaExceeded:
            pass
        else:
            spending.spend_bytes(size := 37 * (turn % 50))
            sent += size
        clock.now_s += 0.1
    assert 90_000 <= sent <= 1000 * 101 + 37 * 50


def test_without_a_quota_nothing_is_counted() -> None:
    spending = Spending("principal p", Quota())
    for _ in range(100):
        spending.admit()
        spending.spend_bytes(1 << 40)
    assert spending.lacking_s() == 0


def test_a_count_is_refused_at_its_edge() -> None:
    check_most(By("p", most=None), 10**9, "sessions")
    check_most(By("p", most=3), 2, "sessions")
    for most, count in ((3, 3), (0, 0)):
        with pytest.raises(ThrottlingQuotaExceeded, match=f"principal p may have {most} sessions, and has {count}"):
            check_most(By("p", most=most), count, "sessions")


def test_one_principal_leaves_as_much_room_as_it_has_and_gets_it_when_the_others_go() -> None:
    front = Front(service=None)  # type: ignore[arg-type]
    front.in_flight.requests.limit = 12
    greedy, modest, nameless = (Spending(name, Quota(), is_principals=name != "") for name in ("p", "q", ""))

    def admitted(spending: Spending) -> int:
        count = 0
        while True:
            try:
                front.in_flight.take(requests=1)
            except ThrottlingQuotaExceeded:
                return count
            try:
                front.admit(spending)
            except ThrottlingQuotaExceeded:
                front.in_flight.give_back(requests=1)
                return count
            count += 1

    assert admitted(greedy) == 6
    assert admitted(modest) == 3, "the other one finds room"
    assert admitted(greedy) == 0
    front.in_flight.give_back(requests=6)
    greedy.held_requests -= 6
    assert admitted(modest) == 3, "and more of it when the first has gone"
    assert admitted(nameless) == 6, "what belongs to no principal has no share"


@pytest.mark.parametrize(
    ("quota", "fault"),
    [
        (Quota(requests_per_s=0), "quota.requests_per_s: not 1 to"),
        (Quota(bytes_per_s=PER_S_MAX + 1), "quota.bytes_per_s: not 1 to"),
        (Quota(sessions=-1), "quota.sessions: not 0 to"),
        (Quota(topics=COUNT_MAX + 1), "quota.topics: not 0 to"),
    ],
)
def test_a_quota_out_of_range_is_a_fault(quota: Quota, fault: str) -> None:
    assert fault in " ".join(principal_faults([Principal("p", quota=quota)]))
    edges = Quota(requests_per_s=1, bytes_per_s=PER_S_MAX, sessions=0, topics=COUNT_MAX)
    assert not list(principal_faults([Principal("p", quota=edges)]))
