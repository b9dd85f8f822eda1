"""`beanpole user` and the token of commands: the sources of secrets."""

import argparse
import io
from pathlib import Path

import pytest

from beanpole.client import where
from beanpole.errors import ConfigurationError
from beanpole.pb import users_pb2
from beanpoled.cli import main
from beanpoled.cli.user import limit_words, read_rules, right

PUT, WORK = users_pb2.RIGHT_PUT, users_pb2.RIGHT_WORK


def test_rights_of_a_pattern() -> None:
    assert right("put,work=mail-*") == users_pb2.Rights(pattern="mail-*", rights=[PUT, WORK])
    assert right("put=gearman:a=b").pattern == "gearman:a=b"
    assert len(right("all=all:*").rights) == 4


@pytest.mark.parametrize(
    "text", ["", "put", "put=", "=mail", "reserve=mail", "put,=mail", "all,put=x"]
)
def test_what_is_no_right(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="put, work, admin, events, all"):
        right(text)


def test_rules_are_lines() -> None:
    rules = read_rules("# all\n\ngearman 10.0.0.0/8 - resizer\n - - ci.example builder \n")
    assert rules == [
        users_pb2.Rule(protocol="gearman", network="10.0.0.0/8", user="resizer"),
        users_pb2.Rule(certificate="ci.example", user="builder"),
    ]
    with pytest.raises(ConfigurationError, match="line 2: 'gearman lee' is not PROTOCOL"):
        read_rules("- - - lee\ngearman lee\n")


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "--set rules: No such file or directory\n"), (b"\xff", "--set rules: 'utf-8' codec")],
)
def test_rules_that_cannot_be_read(
    content: bytes | None,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("rules").write_bytes(content)
    assert main(["user", "rules", "--set", "rules", "--addr", "127.0.0.1:1"]) == 2
    assert words in capsys.readouterr().err


def test_an_empty_input_does_not_remove_all_rules(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program before the pipe had failed, and every client by a rule lost its rights."""
    line = ["user", "rules", "--addr", "127.0.0.1:1", "--set"]
    for text, words in (
        ("", "--set -: standard input is empty; --set /dev/null removes all rules\n"),
        (" \n", "--set -: standard input is empty; --set /dev/null removes all rules\n"),
        ("# none\n", "no answer"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert main([*line, "-"]) == (3 if words == "no answer" else 2)
        assert words in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main([*line, "/dev/null"]) == 3, "it was asked for"
    assert "no answer" in capsys.readouterr().err


def test_a_token_is_found_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert where.token({}) == ""
    assert where.token({where.TOKEN: "plain"}) == "plain"
    assert where.token({where.TOKEN_FILE: str(file)}) == "from-file"
    file.write_text("x" * 128)
    assert where.token({where.TOKEN_FILE: str(file)}) == "x" * 128


@pytest.mark.parametrize("text", ["", "two words", "tökén", "a\nb", "x" * 129, "x" * 70_000])
def test_what_is_no_token_names_its_source_and_not_itself(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=where.TOKEN_FILE) as refused:
        where.token({where.TOKEN_FILE: str(file)})
    assert not text or text not in str(refused.value)


def test_a_token_that_is_too_long_is_refused_before_a_node_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nodes closed the connection, which the command took for an outage, for 11 s."""
    file = tmp_path / "token"
    file.write_text("x" * 200)
    monkeypatch.setenv(where.TOKEN_FILE, str(file))
    for line in (["put", "x"], ["status"]):
        assert main([*line, "--addr", "127.0.0.1:1"]) == 2
        told = capsys.readouterr().err
        assert "a token has 1 to 128 characters, and this has 200" in told
        assert told.count("\n") == 1 and "xx" not in told


def test_two_sources_and_no_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="give one of them"):
        where.token({where.TOKEN: "a", where.TOKEN_FILE: "b"})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        where.token({where.TOKEN_FILE: str(tmp_path / "none")})


def test_what_a_user_may_have_and_has() -> None:
    limits = users_pb2.Limits(jobs_max=9, bytes_max=50, commands_per_second_max=3)
    user = users_pb2.User(limits=limits, jobs=2, bytes=7)
    rate = "at most 3 commands a second at each node"
    assert limit_words(user) == ["2 of 9 jobs", "7 of 50 bytes", rate]
    assert limit_words(user, with_use=False) == ["at most 9 jobs", "at most 50 bytes", rate]
    assert limit_words(users_pb2.User(jobs=2)) == []
