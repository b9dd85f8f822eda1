"""The lateness of the disk's own writes, from the time at which each was due."""

import time
from pathlib import Path

import pytest

from bench.disk import DiskProbe
from bench.processes import BenchError


def test_a_write_counts_from_the_time_at_which_it_was_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, took_s = 100.0, iter([0.001] * 500 + [0.5] + [0.001] * 1000)

    def write(*_: object) -> int:
        nonlocal now_s
        now_s += next(took_s, 0.0)
        return 4096

    with DiskProbe(tmp_path) as probe:

        def wait(seconds: float) -> bool:
            nonlocal now_s
            now_s += seconds
            return next(written, None) is None

        written = iter(range(1501))
        monkeypatch.setattr(time, "monotonic", lambda: now_s)
        monkeypatch.setattr("os.pwritev", write)
        monkeypatch.setattr(probe._ended, "wait", wait)
        probe._write()
        monkeypatch.undo()
    found = probe.lateness()
    assert found.writes == 1501
    assert found.max_ms == pytest.approx(500)
    assert found.p99_9_ms > 450, "those that were to begin meanwhile are late, too"
    assert found.p50_ms == pytest.approx(1)


def test_it_writes_to_the_disk(tmp_path: Path) -> None:
    with DiskProbe(tmp_path) as probe:
        probe.begin()
        deadline_s = time.monotonic() + 30
        while b"x" not in (tmp_path / "probe").read_bytes():
            assert time.monotonic() < deadline_s, "nothing is written"
    assert 0 < probe.lateness().p50_ms <= probe.lateness().max_ms


def test_a_disk_that_cannot_follow_is_an_error(tmp_path: Path) -> None:
    with DiskProbe(tmp_path) as probe:
        probe._took_s = [0.2] * 3
    with pytest.raises(BenchError, match="more than the disk can sync"):
        probe.lateness()


def test_a_write_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(5, "input/output error")

    monkeypatch.setattr("os.pwritev", refuse)
    with DiskProbe(tmp_path) as probe:
        probe._write()
    with pytest.raises(BenchError, match="input/output error"):
        probe.lateness()
