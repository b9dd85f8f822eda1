"""The histogram of commit times: each entry once, at its duration, and none of a lost term."""

from beanpoled.leading.commit_times import COMMIT_CLASSES, CommitTimes


def test_an_entry_is_in_the_class_of_its_time() -> None:
    times = CommitTimes()
    times.proposed(7, 1000)
    times.proposed(8, 1100)
    times.proposed(9, 1200)
    times.committed(6, 1300)
    assert times.count == 0
    times.committed(8, 1500)
    # 500 us and 400 us: both below 512.
    assert (times.count, times.total_us, times.counts[9]) == (2, 900, 2)
    times.committed(9, 10_000_000_000)
    assert times.counts[COMMIT_CLASSES - 1] == 1 and sum(times.counts) == times.count == 3


def test_what_a_lost_term_had_in_flight_is_not_counted() -> None:
    times = CommitTimes()
    times.proposed(7, 1000)
    times.forget()
    times.committed(7, 2000)
    assert times.count == 0
