"""Arguments that are refused before a node is asked: empty, too large, or contradictory ones."""

from pathlib import Path

import pytest

from beanpoled.cli import main
from beanpoled.cli.values import duration_s

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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["user", "rules", "--set", "", *NOWHERE], "--set '' is not allowed: it must be a file"),
        (["doctor", ""], "'' is no data directory and no configuration file"),
        (["doctor", "", *NOWHERE], "'' is no data directory and no configuration file"),
        (["backup", "show", ""], "FILE is empty; it must be a backup, or - for standard input"),
        (["backup", "verify", ""], "FILE is empty; it must be a backup, or - for standard input"),
    ],
)
def test_an_empty_name_is_refused_as_empty(line: list[str], words: str, capsys: Capture) -> None:
    assert f"beanpole: {words}" in refused(line, capsys)


@pytest.mark.parametrize("count", ["0", "1", "7"])
def test_one_job_and_a_number_of_jobs_exclude_each_other(count: str, capsys: Capture) -> None:
    """It kicked the one job, and passed over the number, which may be the id of another one."""
    words = f"--job 5 is one job: leave out the number {count}"
    assert words in refused(["kick", "--job", "5", count, *NOWHERE], capsys)
    assert words in refused(["kick", count, "--job", "5", *NOWHERE], capsys)


@pytest.mark.parametrize("tube", ["default", "mail"])
def test_one_job_and_a_tube_exclude_each_other(tube: str, capsys: Capture) -> None:
    """It kicked the one job, though it was in another tube."""
    words = "--job 5 is one job, whatever its tube: leave out --tube"
    assert words in refused(["kick", "--job", "5", "--tube", tube, *NOWHERE], capsys)


@pytest.mark.parametrize("option", ["--addr", "--dir"])
def test_a_doctor_of_files_takes_no_cluster(option: str, tmp_path: Path, capsys: Capture) -> None:
    line = ["doctor", str(tmp_path), option, "127.0.0.1:1"]
    assert "--addr and --dir name a cluster, which is not checked" in refused(line, capsys)


@pytest.mark.parametrize("every", ["1e400", "inf", "nan", "0", "-1"])
def test_an_export_finishes_a_file_at_some_time(
    every: str, tmp_path: Path, capsys: Capture
) -> None:
    line = ["events", "export", "--follow", "--to", str(tmp_path / "out"), f"--every={every}"]
    words = f"--every = {float(every)} is not allowed: it must be above 0, and finite"
    assert words in refused([*line, *NOWHERE], capsys)


@pytest.mark.parametrize("time", ["99999999999d", "99999999999", "9" * 5000])
def test_a_time_that_is_too_long(time: str, capsys: Capture) -> None:
    line = ["job", "list", "--older", time, *NOWHERE]
    assert f"'{time}' is too long: at most 4294967295 s, 136 years" in refused(line, capsys)


def test_zeros_before_a_time_do_not_make_it_long() -> None:
    assert duration_s("0" * 5000 + "5") == 5 and duration_s("00m") == 0


@pytest.mark.parametrize("size", ["1 TiB", "1TiB"])
def test_the_units_of_sizes_are_named(size: str, tmp_path: Path, capsys: Capture) -> None:
    setting = f"queue_bytes_max={size}"
    line = ["up", "--dir", str(tmp_path / "c"), "--nodes", "1", "--set", setting]
    assert "(KiB, MiB or GiB)" in refused(line, capsys)
    line = ["user", "set", "u", "--bytes-max", size, *NOWHERE]
    assert "with KiB, MiB or GiB behind it" in refused(line, capsys)
