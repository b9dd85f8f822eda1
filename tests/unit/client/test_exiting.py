"""The exit status of a command, whatever becomes of its output."""

import argparse
import os
import subprocess
import sys
from collections.abc import Collection

import pytest

from beanpole.client import exiting
from beanpole.client.printing import Parser
from beanpole.errors import ClientError
from tests.unit.unread import dead_pipe

PIPELINE = "from pyspark_beanpole.cli import main; exit(main())"
BEANPOLE = "from beanpoled.cli import main; exit(main())"
# A command of which the answer is no.
NO = """
import argparse
from beanpole.client.exiting import run
def make():
    parser = argparse.ArgumentParser()
    parser.set_defaults(run=lambda _: print("no") or 1)
    return parser
exit(run("beanpole", make, []))
"""

# A command that goes on behind a message; it ends by its argument.
MESSAGES = """
import sys
from beanpole.client.exiting import run
from beanpole.client.printing import Parser
from beanpole.errors import ClientError, ConfigurationError
def make():
    parser = Parser()
    parser.set_defaults(run=command)
    return parser
def command(_):
    print("half way", file=sys.stderr, flush=True)
    print("done")
    if sys.argv[1] == "2":
        raise ConfigurationError("it is wrong")
    if sys.argv[1] == "3":
        raise ClientError("no node answers")
    return int(sys.argv[1])
exit(run("beanpole", make, []))
"""


def ended(program: str, redirections: str, *words: str) -> subprocess.CompletedProcess[str]:
    line = ["sh", "-c", f'"$0" "$@" {redirections}', sys.executable, "-c", program, *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def unread(program: str, *words: str) -> tuple[int, str]:
    """Run a program whose buffered output has no reader; return its status and its messages."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    writer = dead_pipe()
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=buffered,
        timeout=60,
        check=False,
    )
    os.close(writer)
    return done.returncode, done.stderr


def test_a_verdict_stays_if_nobody_reads_it() -> None:
    assert unread(NO) == (1, "")


@pytest.mark.parametrize("status", [0, 1, 2, 3])
@pytest.mark.parametrize("is_full", [False, True])
def test_standard_error_that_cannot_be_written_decides_nothing(status: int, is_full: bool) -> None:
    """With `2>&1 | head`, an export and an import ended half way, as a success."""
    writer = os.open("/dev/full", os.O_WRONLY) if is_full else dead_pipe()
    done = subprocess.run(
        [sys.executable, "-c", MESSAGES, str(status)],
        stdout=subprocess.PIPE,
        stderr=writer,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (status, "done\n")


def test_output_before_an_error_does_not_change_its_status() -> None:
    """Python writes what is buffered at its exit, and ends with 120 where it cannot."""
    assert unread(MESSAGES, "3") == (3, "half way\nbeanpole: no node answers\n")


@pytest.mark.slow
def test_the_pipeline_takes_no_closed_output_either() -> None:
    done = ended(PIPELINE, ">&-", "job", "1", "--addresses", "127.0.0.1:1", "--patience", "0")
    assert done.returncode == 2
    assert done.stderr == "beanpole pipeline: standard output is closed\n"


@pytest.mark.slow
@pytest.mark.parametrize(("program", "word"), [(BEANPOLE, "peek"), (PIPELINE, "job")])
def test_what_is_for_standard_error_goes_to_no_other_place(program: str, word: str) -> None:
    """Programs read standard output, such as the token that `user token` prints."""
    address = {"peek": "--addr", "job": "--addresses"}[word]
    done = ended(program, "2>&-", word, "1", address, "nowhere")
    assert (done.returncode, done.stdout) == (2, "")


def test_ctrl_c_while_a_hint_is_looked_for_ends_in_silence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: argparse.Namespace) -> int:
        raise ClientError("no node answers")

    def hint(_: argparse.Namespace, __: Collection[str]) -> str:
        raise KeyboardInterrupt

    parser = Parser()
    parser.set_defaults(run=fail)
    monkeypatch.setattr(exiting, "hint", hint)
    assert exiting.run("beanpole", lambda: parser, []) == exiting.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "beanpole: no node answers\n"
