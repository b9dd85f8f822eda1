"""The delay before a failed job is retried."""

import math
from typing import Any

import pytest

from beanpole.client.backoff import Backoff
from beanpole.client.worker import Retry, Worker


def test_rests_grow_up_to_a_limit() -> None:
    backoff = Backoff(tries=40, first_s=8, most_s=1000)
    for tried, longest_s in ((1, 8), (2, 16), (5, 128), (8, 1000), (39, 1000)):
        rests = {backoff.rest_s(tried) for _ in range(200)}
        assert all(rest is not None and 0.7 * longest_s < rest < 1.3 * longest_s for rest in rests)
        assert len(rests) > 1, "they do not come back together"


def test_tries_end() -> None:
    assert Backoff(tries=3).rest_s(2) is not None
    assert Backoff(tries=3).rest_s(3) is None
    assert Backoff(tries=1).rest_s(1) is None


@pytest.mark.parametrize(
    ("numbers", "wrong"),
    [
        ({"tries": 0}, "tries is 0; allowed are whole numbers from 1 to"),
        ({"tries": 1.5}, "tries is 1.5; allowed are whole numbers from 1 to"),
        ({"first_s": -1}, "first_s is -1; allowed are numbers from 0 to"),
        ({"first_s": "1"}, "first_s is '1'; allowed are"),
        ({"most_s": 2**32}, "most_s is 4294967296; allowed are"),
    ],
)
def test_numbers_of_a_backoff_are_checked_when_it_is_made(
    numbers: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(ValueError, match=wrong):
        Backoff(**numbers)


@pytest.mark.parametrize("delay_s", [-1, 2**32, math.nan, math.inf])
def test_a_delay_that_no_node_accepts(delay_s: float) -> None:
    with pytest.raises(ValueError, match=r"delay_s is .*; allowed are numbers from 0 to"):
        Retry(delay_s)


def test_a_fraction_of_a_delay_is_rounded_up() -> None:
    assert Retry(1.2).delay_s == 2
    assert Backoff(first_s=0.5).first_s == 1


def test_each_kick_gives_the_tries_again() -> None:
    backoff = Backoff(tries=2, first_s=8)
    assert [backoff.rest_s(reserves, 1) is None for reserves in (1, 2, 3, 4)] == [
        *(False, False, False, True)
    ]
    assert all(6 <= (backoff.rest_s(3, 1) or 0) <= 10 for _ in range(100)), "a first delay again"


@pytest.mark.parametrize("queue", ["", "a b", "gearman:x", "x" * 201, "mäil", "-x"])
def test_a_worker_of_no_tube(queue: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a tube"):
        Worker("127.0.0.1:1").handles(queue)


def test_a_worker_without_a_thread() -> None:
    with pytest.raises(ValueError, match="concurrency must be at least 1"):
        Worker("127.0.0.1:1").handles("mail", concurrency=0)
