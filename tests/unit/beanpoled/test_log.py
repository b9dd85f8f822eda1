"""The lines of a node's log: filtering by level, and the two formats."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beanpoled.host.log import LogLines
from beanpoled.host.seam import DEBUG, ERROR, INFO, WARNING
from tests.unit.node.stage import config

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def written(log_level: str, log_format: str) -> list[str]:
    """Write a line of each level; return the output."""
    output = io.StringIO()
    made = config(log_level=log_level, log_format=log_format)
    lines = LogLines(made, output)
    for words, level in (("d", DEBUG), ("i", INFO), ("w", WARNING), ('e "é"', ERROR)):
        lines.write(words, level)
    return output.getvalue().splitlines()


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else() -> None:
    """A node whose log had lost its reader took no SIGTERM, and went on after `fatal`."""
    read, write = os.pipe()
    os.close(read)
    for output in (open(write, "w"), open("/dev/full", "w")):  # noqa: SIM115
        lines = LogLines(config(), output)
        lines.write("no reader, or no room")
        with contextlib.suppress(OSError):
            output.close()  # tries once more
        lines.write("it is closed")


def test_text_has_milliseconds_and_names_what_is_no_ordinary_line() -> None:
    lines = written("debug", "text")
    assert all(re.match(rf"{STAMP} n0 ", line) for line in lines)
    assert [line.split(" n0 ")[1] for line in lines] == [
        "debug: d",
        "i",
        "warning: w",
        'fatal: e "é"',
    ]


def test_json_has_one_object_a_line() -> None:
    entries: list[dict[str, Any]] = [json.loads(line) for line in written("debug", "json")]
    assert [entry["level"] for entry in entries] == ["debug", "info", "warning", "error"]
    assert [entry["message"] for entry in entries] == ["d", "i", "w", 'e "é"']
    for entry in entries:
        assert list(entry) == ["time", "level", "cluster", "node", "message"]
        assert re.fullmatch(STAMP, entry["time"])
        assert (entry["cluster"], entry["node"]) == ("stage", "n0")


@pytest.mark.parametrize(
    ("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)]
)
def test_lines_below_the_level_are_left_out(level: str, count: int) -> None:
    assert len(written(level, "text")) == count


def ended(tmp_path: Path, *flags: str) -> tuple[int, str]:
    """Start a node that cannot run; return its status and its output."""
    given = {
        "cluster": "dev",
        "node-id": "a",
        "data-dir": str(tmp_path),
        "peer-listen": "127.0.0.1:1",
        "grpc-listen": "127.0.0.1:2",
        "http-listen": "127.0.0.1:3",
        "members": "a=127.0.0.1:1/127.0.0.1:2",
    }
    command = [sys.executable, "-m", "beanpoled"]
    command += [f"--{name}={value}" for name, value in given.items()]
    done = subprocess.run(
        [*command, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={name: text for name, text in os.environ.items() if not name.startswith("BEANPOLE_")},
    )
    assert not done.stdout
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("flag", "words"),
    [("--durability=paper", "durability = 'paper'"), ("--nonsense=1", "unknown flag --nonsense")],
)
def test_a_wrong_configuration_has_a_status_of_its_own(
    tmp_path: Path, flag: str, words: str
) -> None:
    status, said = ended(tmp_path, flag)
    assert status == 78 and words in said


def test_the_last_line_is_json_too(tmp_path: Path) -> None:
    (tmp_path / "listen").write_text("no socket")
    status, said = ended(tmp_path, f"--listen=unix:{tmp_path / 'listen'}", "--log-format=json")
    assert status == 78
    last = json.loads(said.splitlines()[-1])
    assert last["level"] == "error" and "no socket" in last["message"]
