from stockade.raft.histogram import SECONDS, Histogram


def test_a_duration_counts_in_the_first_bucket_that_holds_it_and_in_the_sum() -> None:
    found = Histogram()
    for seconds in (0.0, SECONDS[0], SECONDS[0] + 1e-9, SECONDS[-1], SECONDS[-1] + 1):
        found.add(seconds)
    assert found.counts == [2, 1, *[0] * (len(SECONDS) - 3), 1, 1]
    assert found.total_s == 2 * SECONDS[0] + 1e-9 + 2 * SECONDS[-1] + 1
