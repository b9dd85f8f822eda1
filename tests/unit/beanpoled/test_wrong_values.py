"""Arguments that are refused before a node is asked: empty, too large, or contradictory ones."""

from pathlib import Path

import pytest

from beanpoled.cli import main

Capture = pytest.CaptureFixture[str]
NOWHERE = ["--addr", "127.0.0.1:1"]


def refused(line: list[str], capsys: Capture) -> str:
    """Return the words with which a command ends with status 2."""
    try:
        status = main(line)
    except SystemExit as ended:
        status = int(ended.code or 0)
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    return said.err


@pytest.mark.parametrize("way", ["list", "delete", "kick", "bury", "change --priority 1"])
def test_an_empty_protocol_does_not_mean_all(way: str, capsys: Capture) -> None:
    """As that of a variable that is not set."""
    line = ["job", *way.split(), "--state", "buried", "--protocol", "", *NOWHERE]
    assert "--protocol: '' is no protocol: beanstalk, workq or gearman" in refused(line, capsys)


@pytest.mark.parametrize("time", ["99999999999d", "99999999999", "9" * 5000])
def test_a_time_that_is_too_long(time: str, capsys: Capture) -> None:
    line = ["job", "list", "--older", time, *NOWHERE]
    assert f"'{time}' is too long: at most 4294967295 s, 136 years" in refused(line, capsys)


@pytest.mark.parametrize("size", ["1 TiB", "1TiB"])
def test_the_units_of_sizes_are_named(size: str, tmp_path: Path, capsys: Capture) -> None:
    setting = f"queue_bytes_max={size}"
    line = ["up", "--dir", str(tmp_path / "c"), "--nodes", "1", "--set", setting]
    assert "(KiB, MiB or GiB)" in refused(line, capsys)
    line = ["user", "set", "u", "--bytes-max", size, *NOWHERE]
    assert "with KiB, MiB or GiB behind it" in refused(line, capsys)
