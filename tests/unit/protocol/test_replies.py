"""The bytes of replies and payloads."""

import pytest

from beanpole.protocol.beanstalk import replies, stats

# The output of beanstalkd 1.13, with all values different, so that no two can be swapped.
STATS_JOB = b"""---
id: 1
tube: "default"
state: reserved
pri: 2
age: 3
delay: 4
ttr: 5
time-left: 6
file: 7
reserves: 8
timeouts: 9
releases: 10
buries: 11
kicks: 12
"""
STATS_TUBE = b"""---
name: "default"
current-jobs-urgent: 1
current-jobs-ready: 2
current-jobs-reserved: 3
current-jobs-delayed: 4
current-jobs-buried: 5
total-jobs: 6
current-using: 7
current-watching: 8
current-waiting: 9
cmd-delete: 10
cmd-pause-tube: 11
pause: 12
pause-time-left: 13
"""
STATS = b"""---
current-jobs-urgent: 0
current-jobs-ready: 1
current-jobs-reserved: 2
current-jobs-delayed: 3
current-jobs-buried: 4
cmd-put: 5
cmd-peek: 6
cmd-peek-ready: 7
cmd-peek-delayed: 8
cmd-peek-buried: 9
cmd-reserve: 10
cmd-reserve-with-timeout: 11
cmd-delete: 12
cmd-release: 13
cmd-use: 14
cmd-watch: 15
cmd-ignore: 16
cmd-bury: 17
cmd-kick: 18
cmd-touch: 19
cmd-stats: 20
cmd-stats-job: 21
cmd-stats-tube: 22
cmd-list-tubes: 23
cmd-list-tube-used: 24
cmd-list-tubes-watched: 25
cmd-pause-tube: 26
job-timeouts: 27
total-jobs: 28
max-job-size: 29
current-tubes: 30
current-connections: 31
current-producers: 32
current-workers: 33
current-waiting: 34
total-connections: 35
pid: 36
version: "1.13"
rusage-utime: 0.000500
rusage-stime: 12.345678
uptime: 39
binlog-oldest-index: 40
binlog-current-index: 41
binlog-records-migrated: 42
binlog-records-written: 43
binlog-max-size: 10485760
draining: true
id: 00ff00ff00ff00ff
hostname: "host"
os: "#1 SMP"
platform: "x86_64"
"""


def stats_values(draining: bool) -> tuple[object, ...]:
    counts = range(37)
    process = (b"1.13", 0.0005, 12.345678, 39, 40, 41, 42, 43, 10485760, draining)
    return (*counts, *process, b"00ff00ff00ff00ff", b"host", b"#1 SMP", b"x86_64")


def test_stats() -> None:
    assert stats.format_stats(stats_values(True)) == STATS
    assert b"\ndraining: false\n" in stats.format_stats(stats_values(False))
    assert len(stats.STATS_KEYS) == 51


def test_stats_job() -> None:
    values = (1, b"default", b"reserved", *range(2, 13))
    assert stats.format_stats_job(values) == STATS_JOB
    assert len(stats.STATS_JOB_KEYS) == 14


def test_stats_tube() -> None:
    assert stats.format_stats_tube((b"default", *range(1, 14))) == STATS_TUBE
    assert len(stats.STATS_TUBE_KEYS) == 14


def test_the_sizes_that_a_fresh_beanstalkd_announces() -> None:
    fresh_job = (1, b"default", b"ready", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0)
    assert len(stats.format_stats_job(fresh_job)) == 145
    fresh_tube = (b"default", 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0)
    assert len(stats.format_stats_tube(fresh_tube)) == 267


@pytest.mark.parametrize("count", [13, 15])
def test_a_value_too_few_or_too_many_is_an_error(count: int) -> None:
    with pytest.raises(TypeError):
        stats.format_stats_tube((b"default", *range(count - 1)))


def test_lists() -> None:
    assert stats.format_list([b"default", b"w", b"123"]) == b"---\n- default\n- w\n- 123\n"
    assert stats.format_list([]) == b"---\n"


def test_replies_with_values() -> None:
    assert replies.inserted(2**53) == b"INSERTED 9007199254740992\r\n"
    assert replies.reserved(1, b"a\r\nb") == b"RESERVED 1 4\r\na\r\nb\r\n"
    assert replies.reserved(1, b"") == b"RESERVED 1 0\r\n\r\n"
    assert replies.found(7, b"x") == b"FOUND 7 1\r\nx\r\n"
    assert replies.using(b"t") == b"USING t\r\n"
    assert replies.watching(3) == b"WATCHING 3\r\n"
    assert replies.kicked(0) == b"KICKED 0\r\n"
    assert replies.ok(b"---\n- a\n") == b"OK 8\r\n---\n- a\n\r\n"
