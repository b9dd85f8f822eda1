"""Cluster time: a follower's estimate, the start of a leader's clock, and cold starts."""

import pytest

from beanpoled.shared.clock import (
    DOWNTIME_MAX_US,
    LATENESS_MEAN_US,
    TURN_MAX_US,
    WALL_SKEW_MAX_US,
    ClusterClock,
    Lateness,
    LoopTime,
    downtime_us,
)

SECOND = 1_000_000


def test_a_pause_counts_as_one_long_turn() -> None:
    time = LoopTime(1000)
    assert time.turn(1000) == 0
    assert time.turn(1010) == 10
    assert time.turn(1010 + 3600 * SECOND) == TURN_MAX_US
    assert time.turn(5) == 0  # a clock that goes back is ignored


def test_a_loop_that_is_stopped_again_and_again_is_late_on_average() -> None:
    """Most timers of a process that runs for 50 ms of every 500 are in time."""
    lateness = Lateness()
    for _ in range(60):
        for late_us in (450_000, 0, 0, 0, 0):
            lateness.note(late_us, 10_000 + late_us)
    assert (lateness.last_us, lateness.max_us) == (0, 450_000)
    assert 350_000 < lateness.mean_us < 420_000
    for _ in range(10_000):
        lateness.note(-1, 10_000)
    assert lateness.mean_us < 100
    for _ in range(10_000):
        lateness.note(900, 10_900)
    assert 890 < lateness.mean_us < 901


def test_one_long_stop_is_no_mean_beyond_it() -> None:
    lateness = Lateness()
    lateness.note(3600 * SECOND, 3600 * SECOND)
    assert lateness.mean_us == lateness.max_us == 3600 * SECOND
    lateness.note(0, LATENESS_MEAN_US)
    assert lateness.mean_us == 0


def test_a_follower_goes_on_from_the_last_heartbeat() -> None:
    clock = ClusterClock()
    assert not clock.was_up()
    assert clock.estimate_us(99) == 0
    clock.receive(1, 500, 1000)
    assert clock.was_up()
    assert clock.estimate_us(1007) == 507


def test_a_follower_follows_the_beats_of_a_leader_that_stood_still() -> None:
    clock = ClusterClock()
    clock.receive(1, 500, 1000)
    assert clock.estimate_us(1000 + 5 * SECOND) == 500 + 5 * SECOND
    clock.receive(1, 600, 1000 + 5 * SECOND)  # the leader was only paused
    assert clock.estimate_us(1000 + 5 * SECOND) == 600


def test_an_older_heartbeat_is_no_news() -> None:
    clock = ClusterClock()
    clock.receive(1, 500, 1000)
    clock.receive(1, 400, 1010)
    assert clock.estimate_us(1010) == 510


def test_the_next_leader_is_believed_even_if_it_is_behind() -> None:
    """Otherwise the lost time would appear in the EPOCH after it, and delays would end early."""
    clock = ClusterClock()
    clock.receive(1, 500, 1000)
    clock.receive(2, 400, 1010)
    assert clock.estimate_us(1010) == 400
    clock.receive(2, 300, 1020)
    assert clock.estimate_us(1020) == 410


def test_a_node_that_led_believes_the_next_leader() -> None:
    clock = ClusterClock()
    clock.receive(1, 500, 1000)
    clock.lead(2, 900)
    clock.follow(1010)
    clock.receive(3, 700, 1020)
    assert clock.estimate_us(1020) == 700


def test_a_node_that_led_is_not_set_back_by_its_own_entries() -> None:
    """The newest of them is as old as the cluster was idle: delays ended so much later."""
    clock = ClusterClock()
    clock.receive(1, 500, 1000)
    clock.lead(2, 900)
    clock.advance(600, True)
    clock.follow(1610)
    assert clock.knows(2, 900)
    clock.receive(2, 900, 1620)
    assert clock.estimate_us(1620) == 1510 and not clock.went_back


def test_a_leader_s_time_moves_by_turns_and_only_while_a_majority_answers() -> None:
    clock = ClusterClock()
    clock.receive(1, 500, 1000)
    clock.lead(2, clock.estimate_us(1010))
    clock.receive(1, 10**9, 1010)
    clock.advance(7, True)
    clock.advance(10**6, False)
    assert clock.estimate_us(10**9) == 517
    clock.follow(2000)
    assert clock.estimate_us(2005) == 522


def test_leading_never_turns_time_back() -> None:
    clock = ClusterClock()
    clock.receive(1, 500, 1000)
    clock.lead(2, 3)
    assert clock.estimate_us(1000) == 500
    clock.lead(2, 900)
    assert clock.estimate_us(1000) == 900


@pytest.mark.parametrize(
    ("saved_us", "now_us", "skews", "expected_us"),
    [
        (100, 100 + 5 * SECOND, [], 5 * SECOND),
        (100, 100 + 5 * SECOND, [WALL_SKEW_MAX_US, -WALL_SKEW_MAX_US], 5 * SECOND),
        (100, 100 + 5 * SECOND, [0, WALL_SKEW_MAX_US + 1], 0),
        (100, 100 + 5 * SECOND, [-WALL_SKEW_MAX_US - 1], 0),
        (0, 5 * SECOND, [], 0),
        (10 * SECOND, SECOND, [], 0),
        (100, 100 + 100 * DOWNTIME_MAX_US, [], DOWNTIME_MAX_US),
    ],
)
def test_the_estimate_of_a_downtime(
    saved_us: int, now_us: int, skews: list[int], expected_us: int
) -> None:
    assert downtime_us(saved_us, now_us, skews) == expected_us
