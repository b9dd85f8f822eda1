"""The check of a benchmark: it fails for regressions, names them, and tolerates noise."""

from pathlib import Path

import pytest

from bench import check, results
from bench.processes import BenchError
from bench.results import BASELINE
from bench.run import main
from tests.unit.bench.figures import run

BEFORE = run(
    ("beanpole, 3 nodes", 300), (BASELINE, 100), ("beanpole, 3 nodes", 320), (BASELINE, 100)
)
SLOWER = run(
    ("beanpole, 3 nodes", 200), (BASELINE, 100), ("beanpole, 3 nodes", 210), (BASELINE, 100)
)
NAME = "beanpole, 3 nodes, full, 64 connections"


def judge(measured: results.Results, folder: Path) -> list[str]:
    path = folder / "recorded.json"
    assert check.record(BEFORE, path) == 1
    return check.slower(check.load(path), check.ratios_of(measured))


def test_the_same_is_not_slower(tmp_path: Path) -> None:
    assert judge(BEFORE, tmp_path) == []


def test_slower_is_named_with_both_ratios(tmp_path: Path) -> None:
    (line,) = judge(SLOWER, tmp_path)
    assert NAME in line
    assert "2.05" in line
    assert "3.10" in line


def test_a_slower_machine_is_not_a_slower_program(tmp_path: Path) -> None:
    halves = [one._replace(op_s=one.op_s / 2) for one in BEFORE.figures]
    assert judge(BEFORE._replace(figures=halves), tmp_path) == []


def test_what_the_spread_explains_is_not_slower(tmp_path: Path) -> None:
    wild = run(
        ("beanpole, 3 nodes", 150), (BASELINE, 100), ("beanpole, 3 nodes", 390), (BASELINE, 100)
    )
    assert judge(wild, tmp_path) == []


def test_what_was_not_measured_does_not_pass(tmp_path: Path) -> None:
    (line,) = judge(run(("beanstalkd", 500), (BASELINE, 100)), tmp_path)
    assert NAME in line
    assert "not measured" in line


def test_ratios_of_another_machine_are_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    check.record(BEFORE, path)
    assert check.elsewhere(path, BEFORE.machine) == ""
    assert "processor: 2 x fast" in check.elsewhere(path, {"processor": "2 x slow"})


def test_without_the_baseline_there_is_an_error() -> None:
    with pytest.raises(BenchError, match="apt-get install beanstalkd"):
        check.ratios_of(run(("beanpole, 3 nodes", 300)))


def test_the_command_fails_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recorded.json"
    check.record(BEFORE, path)
    arguments = ["check", "--recorded", str(path)]
    monkeypatch.setattr("bench.run.measure", lambda *_: SLOWER)
    assert main(arguments) == 1
    assert f"slower: {NAME}" in capsys.readouterr().out
    monkeypatch.setattr("bench.run.measure", lambda *_: BEFORE)
    assert main(arguments) == 0


def test_nothing_recorded_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--recorded", str(tmp_path / "none.json")]) == 1
    assert "python -m bench record" in capsys.readouterr().err


def test_rounds_that_differ_widely_do_not_hide_a_large_loss(tmp_path: Path) -> None:
    """The wider the rounds, the more loss passed: a third, and more."""
    wild = run(
        ("beanpole, 3 nodes", 100), (BASELINE, 100), ("beanpole, 3 nodes", 340), (BASELINE, 100)
    )
    (line,) = judge(wild, tmp_path)
    assert "2.20 times" in line and "allowed from 2.48" in line


def test_the_command_says_that_it_cannot_tell_with_status_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recorded.json"
    check.record(BEFORE, path)
    wild = run(
        ("beanpole, 3 nodes", 250), (BASELINE, 100), ("beanpole, 3 nodes", 390), (BASELINE, 100)
    )
    monkeypatch.setattr("bench.run.measure", lambda *_: wild)
    assert main(["check", "--recorded", str(path)]) == 3
    assert f"cannot tell: {NAME}: its rounds are from" in capsys.readouterr().out


def test_the_same_python_of_another_checkout_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    machine = {**BEFORE.machine, "python": "3.11.7 of /here/python"}
    check.record(BEFORE._replace(machine=machine), path)
    assert check.elsewhere(path, {**machine, "python": "3.11.7 of /there/python"}) == ""
    assert "python" in check.elsewhere(path, {**machine, "python": "3.12.1 of /here/python"})
