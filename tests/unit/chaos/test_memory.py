"""The check that the memory of a soak's nodes stays flat, on invented samples."""

import os

from chaos.memory import AGE_S_MIN, MEBIBYTE, MINUTES_MIN, Sample, rss_bytes, trends, verdict

HOUR_S = 3600.0
OLD_S = AGE_S_MIN + 1


def samples(before: int, after: int, seconds: float = HOUR_S) -> list[Sample]:
    """Return a node with two levels of memory: until three quarters of the run, and after."""
    times = [seconds * number / 400 for number in range(400)]
    sizes = [before if at_s < seconds * 3 / 4 else after for at_s in times]
    return [Sample(*one) for one in zip(times, [0] * 400, [OLD_S] * 400, sizes, strict=True)]


def test_a_node_that_keeps_its_size_is_flat() -> None:
    line, findings = verdict(samples(100 * MEBIBYTE, 109 * MEBIBYTE), HOUR_S, 1)
    assert "n0 100.0 then 109.0 (at most 109.0): flat (10% or 8 MiB allowed)" in line
    assert findings == []


def test_a_node_that_grows_is_told() -> None:
    line, findings = verdict(samples(100 * MEBIBYTE, 112 * MEBIBYTE), HOUR_S, 1)
    assert line.endswith("not flat (10% or 8 MiB allowed)")
    (told,) = findings
    assert told.startswith("memory grew over the last half: n0 100.0 then 112.0")


def test_a_small_node_may_grow_a_little() -> None:
    assert verdict(samples(20 * MEBIBYTE, 27 * MEBIBYTE), HOUR_S, 1)[1] == []


def test_a_node_that_shrinks_is_flat() -> None:
    assert verdict(samples(100 * MEBIBYTE, 50 * MEBIBYTE), HOUR_S, 1)[1] == []


def test_the_first_half_and_processes_that_just_started_do_not_count() -> None:
    young = [one._replace(age_s=0.0, rss_bytes=1) for one in samples(0, 0)]
    early = [Sample(1.0, 0, OLD_S, 1)] * 1000
    (trend,) = trends([*young, *early, *samples(100 * MEBIBYTE, 100 * MEBIBYTE)], HOUR_S)
    assert (trend.before_bytes, trend.after_bytes) == (100 * MEBIBYTE, 100 * MEBIBYTE)


def test_a_short_run_says_nothing() -> None:
    short_s = MINUTES_MIN * 60 - 1
    line, findings = verdict(samples(MEBIBYTE, 900 * MEBIBYTE, short_s), short_s, 1)
    assert "at most 900.0 MiB a node; the run is too short" in line and findings == []


def test_a_run_in_which_no_node_has_enough_samples_says_nothing() -> None:
    line, findings = verdict(samples(MEBIBYTE, 900 * MEBIBYTE)[::10], HOUR_S, 2)
    assert "at most 900.0 MiB a node; the run is too short" in line and findings == []


def test_a_node_with_too_few_samples_leaves_the_verdict_on_the_others() -> None:
    grows = samples(100 * MEBIBYTE, 112 * MEBIBYTE)
    seldom = [one._replace(node=1) for one in grows if not HOUR_S / 2 <= one.at_s < HOUR_S * 0.72]
    also = [one._replace(node=2) for one in grows]
    line, findings = verdict([*grows, *seldom, *also], HOUR_S, 4)
    assert "n1 has too few samples; n3 has too few samples: not flat" in line
    assert [told.split(": ")[1][:2] for told in findings] == ["n0", "n2"]


def test_the_size_of_a_process() -> None:
    size = rss_bytes(os.getpid())
    assert size is not None and size > MEBIBYTE
    assert rss_bytes(2**22 + 1) is None
