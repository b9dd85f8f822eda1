"""docs/protocol.md is complete: every command, every reply word, every limit."""

from pathlib import Path

import pytest

from beanpole import constants
from beanpole.protocol.beanstalk import requests as r
from beanpole.protocol.beanstalk.client import REPLY_WORDS
from beanpoled.frontends.beanstalk import extensions

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "protocol.md").read_text()
# fmt: off
COMMANDS = [
    "put", "use", "reserve", "reserve-with-timeout", "reserve-job", "delete", "release", "bury",
    "touch", "watch", "ignore", "peek", "peek-ready", "peek-delayed", "peek-buried", "kick",
    "kick-job", "stats", "stats-job", "stats-tube", "list-tubes", "list-tube-used",
    "list-tubes-watched", "pause-tube", "quit",
]
# fmt: on


def rows(heading: str) -> list[str]:
    """Return the rows of the table below a heading, without its head."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][2:]


def test_every_command_has_its_row() -> None:
    assert len(COMMANDS) == 25
    assert [row.split("`")[1].split()[0] for row in rows("Commands")] == COMMANDS


def test_every_extension_has_its_row() -> None:
    known = [*(name.decode() for name in extensions.names(4)), "extensions"]
    words = [row.split("`")[1].split()[0] for row in rows("Extensions")]
    assert sorted(words) == sorted(known)


def test_every_reply_word_has_its_row() -> None:
    assert len(REPLY_WORDS) == 28
    words = [row.split("`")[1].split()[0] for row in rows("Reply words")]
    assert sorted(words) == sorted(word.decode() for word in REPLY_WORDS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LINE_MAX_BYTES", r.LINE_MAX_BYTES),
        ("TUBE_NAME_MAX_BYTES", constants.TUBE_NAME_MAX_BYTES),
        ("U32_MAX", constants.U32_MAX),
        ("U64_MAX", r.U64_MAX),
        ("TIMEOUT_MAX_S", r.TIMEOUT_MAX_S),
        ("TTR_MIN_S", r.TTR_MIN_S),
        ("JOB_SIZE_DEFAULT_BYTES", constants.JOB_SIZE_DEFAULT_BYTES),
        ("WATCHED_TUBES_MAX", constants.WATCHED_TUBES_MAX),
    ],
)
def test_every_limit_is_written_as_it_is(name: str, value: int) -> None:
    (row,) = [row for row in rows("Limits") if f"`{name}`" in row]
    assert str(value) in row
