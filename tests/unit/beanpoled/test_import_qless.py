"""Options and report of `beanpole import-qless`; `make test-qless` runs it with a Redis."""

from pathlib import Path

import pytest

from beanpole import qless as q
from beanpole.client.qless_import import SCRIPT, Outcome
from beanpole.protocol.qless.recognition import recognise
from beanpoled.cli import import_qless, main


def test_nodes_know_the_script_of_an_import() -> None:
    script = recognise(SCRIPT)
    assert script is not None
    assert script.flavour == q.THROTTLES


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("host:1", ("", "host:1", 0)),
        ("redis://host", ("", "host:6379", 0)),
        ("redis://a%20b@host:1/7", ("a b", "host:1", 7)),
        ("redis://[::1]", ("", "[::1]:6379", 0)),
        ("redis://[::1]:5/", ("", "[::1]:5", 0)),
    ],
)
def test_where_a_redis_is(text: str, place: tuple[str, str, int]) -> None:
    assert import_qless._place(text) == place


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["host"], "REDIS = 'host' is not allowed: it must be HOST:PORT"),
        (["redis://u:p@host"], "REDIS must not hold a password: use --password-file"),
        (["redis://host/one"], "the database 'one' is no number"),
        (["h:1", "--password-file", "/nowhere"], "--password-file /nowhere: "),
    ],
)
def test_what_is_not_allowed_is_named(
    line: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import-qless", *line]) == 2
    assert words in capsys.readouterr().err


def test_a_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("open sesame\nmore\n")
    assert import_qless._password(path) == "open sesame"


def test_a_report_counts_by_state() -> None:
    outcome = Outcome()
    outcome.note("waiting", brought=3, there=1)
    outcome.refuse("waiting", b"j\xff", "why")
    outcome.note("failed")
    lines = import_qless._report(outcome, dry=False).splitlines()
    assert [line.split() for line in lines] == [
        ["found", "imported", "already", "there", "refused"],
        ["waiting", "5", "3", "1", "1"],
        ["failed", "0", "0", "0", "0"],
    ]
    assert (outcome.refused, len(outcome.reasons)) == (1, 1)
