"""Tables of benchmark sets that keep no file: ratios, slopes, percentiles."""

import multiprocessing
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final, cast
from unittest.mock import Mock

import pytest

from bench import backups, bystanders, run, scrape, stall, strangers, tls
from bench.backups import MIB, Ran, Step
from bench.processes import BenchError

TIMEOUT_S: Final = 60.0


def test_a_ratio_is_taken_within_its_round() -> None:
    plain = [tls.Turn(op_s, 1.0, 2.0, 20.0, 0.2) for op_s in (100.0, 200.0, 400.0)]
    encrypted = [tls.Turn(op_s, 1.5, 3.0, 30.0, 0.4) for op_s in (50.0, 180.0, 320.0)]
    _, first, second = tls.table({tls.PLAIN: plain, tls.ENCRYPTED: encrypted})
    assert first[:3] == ["plain", "200", "1.00 (1.00 to 1.00)"]
    assert second == ["TLS", "180", "0.80 (0.65 to 0.85)", "1.50", "3.00", "30.0", "40%"]


def test_a_slope_is_that_of_a_hundred_thousand_jobs() -> None:
    def step(jobs: int, seconds: float, size: int) -> Step:
        ran = Ran(seconds, 10 * MIB)
        return Step(jobs, ran, ran, size, 50 * MIB, MIB, [0.001], [0.002, 0.003], ran, ran, seconds)

    rows = backups.table([step(250_000, 1.0, 30 * MIB), step(1_000_000, 7.0, 120 * MIB)])
    by_words = {row[0]: row[1:] for row in rows}
    assert by_words["backup"] == ["1.0 s", "7.0 s", "0.80 s"]
    assert by_words["longest put before"] == ["1.0 ms", "1.0 ms", "0.00 ms"]
    assert by_words["longest put beside the backup"] == ["3.0 ms", "3.0 ms", "0.00 ms"]
    assert by_words["the file"] == ["30.0 MiB", "120.0 MiB", "12.00 MiB"]
    assert by_words["verify: peak memory of the command"] == ["10 MiB", "10 MiB", "0.0 MiB"]


def test_one_number_of_jobs_has_no_slope() -> None:
    ran = Ran(1.0, 10 * MIB)
    one = Step(250_000, ran, ran, 30 * MIB, 50 * MIB, MIB, [0.001], [0.002], ran, ran, 1.0)
    assert ["backup", "1.0 s", "-"] in backups.table([one])
    for wrong in ("5,5", "5,4"):
        with pytest.raises(SystemExit):
            run.parser().parse_args(["backups", "--steps", wrong])


class Enough(Exception):
    """Ends a stranger, who goes on for ever."""


def test_handshakes_are_held_at_all_nodes_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: Counter[int] = Counter()

    def connect(ports: strangers.Ports, port: int) -> Mock:
        dialled[port] += 1
        if dialled.total() == 31:
            raise Enough
        return Mock()

    monkeypatch.setattr(strangers, "connect", connect)
    monkeypatch.setattr(strangers, "HALF_OPEN", 4)
    monkeypatch.setattr(strangers, "PACE_S", 0.0)
    context = multiprocessing.get_context("spawn")
    with pytest.raises(Enough):
        strangers.hold_handshakes(strangers.Ports([1, 2, 3], [], [], ""), context.Event())
    assert sorted(dialled.values()) == [10, 10, 11]


@pytest.mark.slow
def test_a_stranger_that_ends_costs_nothing_and_is_told() -> None:
    ports = strangers.Ports([], [], [], "")
    broken = partial(strangers.work_elsewhere, piece_s=cast(float, "no time"))
    with (
        pytest.raises(BenchError, match="a stranger ended"),
        strangers.strangers((broken,), ports) as (pid,),
    ):
        (stranger,) = (one for one in multiprocessing.active_children() if one.pid == pid)
        stranger.join(TIMEOUT_S)


@pytest.mark.parametrize(
    ("wait_ms", "closed", "leader_changed", "status"),
    [(500.0, 0, False, 0), (501.0, 0, False, 1), (1.0, 1, False, 1), (1.0, 0, True, 1)],
)
def test_a_bystander_that_is_disturbed_fails_the_command(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    wait_ms: float,
    closed: int,
    leader_changed: bool,
    status: int,
) -> None:
    found = stall.Stall("kicks", 1.0, 1.0, wait_ms, closed, leader_changed)
    monkeypatch.setattr(stall, "measure", lambda _: [found])
    assert run.main(["stall", "--dir", str(tmp_path)]) == status


def test_percentiles_are_of_all_puts() -> None:
    assert bystanders.p99_ms([]) == 0.0
    assert bystanders.p99_ms([n / 1e3 for n in range(1, 1001)]) == pytest.approx(991, abs=1)
    found = scrape.Scraped(1000, 5, "nothing", [1.0, 3.0], [1.0] * 200, [1.0] * 150 + [9.0] * 50)
    by_words = {row[0]: row[1] for row in scrape.table(found)}
    assert by_words["p99 of a put without pages"] == "1.0 ms"
    assert by_words["p99 of a put with a page each second"] == "9.0 ms"
