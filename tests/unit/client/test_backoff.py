"""The delay before a failed job is retried."""

from beanpole.client.backoff import Backoff


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
