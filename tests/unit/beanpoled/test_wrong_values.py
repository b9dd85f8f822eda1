"""Arguments that are refused before a node is asked: empty, too large, or contradictory ones."""

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
