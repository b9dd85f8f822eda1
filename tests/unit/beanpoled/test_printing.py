"""Standard output whose reader has gone, or whose disk is full."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from beanpole.client.printing import Parser
from beanpole.pb import jobs_pb2
from beanpoled.cli import exits
from tests.unit.beanpoled.test_choosing import FakeAdmin, changed, result
from tests.unit.unread import dead_pipe, unread_output

TIMEOUT_S = 60.0
BEANPOLE = "from beanpoled.cli import main; exit(main())"
BEANPOLED = "from beanpoled.main import main; main()"
PIPELINE = "from pyspark_beanpole.cli import main; exit(main())"
CONFIGURATION = """
cluster = "dev"
node_id = "a"
data_dir = "data"
listen = ["127.0.0.1:0"]
peer_listen = "127.0.0.1:3"
grpc_listen = "127.0.0.1:4"
http_listen = "127.0.0.1:5"
[members.a]
peer = "127.0.0.1:1"
grpc = "127.0.0.1:2"
"""


def ended(
    program: str, words: list[str], output: int, directory: Path, unbuffered: str = ""
) -> tuple[int, str]:
    """Run a program with this standard output, buffered as usual; return its status and errors."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        env=environment,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
def test_a_verdict_stays_where_its_reader_has_gone(tmp_path: Path) -> None:
    writer = dead_pipe()
    try:
        assert ended(BEANPOLE, ["doctor", "no-such-folder"], writer, tmp_path) == (1, "")
    finally:
        os.close(writer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "words", "status_full"),
    [
        (BEANPOLE, ["version"], 3),
        (BEANPOLE, ["top", "--help"], 3),
        (PIPELINE, ["job", "--help"], 3),
        (BEANPOLED, ["--version"], 1),
        (BEANPOLED, ["--config", "node.toml", "--check"], 1),
        (BEANPOLED, ["--dump-wal", "."], 1),
    ],
)
def test_a_reader_that_has_gone_is_no_error_and_a_full_disk_is_one(
    program: str, words: list[str], status_full: int, tmp_path: Path
) -> None:
    (tmp_path / "node.toml").write_text(CONFIGURATION)
    writer = dead_pipe()
    try:
        assert ended(program, words, writer, tmp_path) == (0, "")
    finally:
        os.close(writer)
    for unbuffered in ("", "1"):
        with open("/dev/full", "w") as full:
            status, errors = ended(program, words, full.fileno(), tmp_path, unbuffered)
        assert status == status_full
        assert errors.startswith("beanpole") and errors.count("\n") == 1


@pytest.mark.parametrize("json", [False, True])
def test_the_status_of_a_change_stays_although_nobody_reads_the_count(
    json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = result(999, jobs_pb2.JOB_OUTCOME_NOT_FOUND)
    admin = FakeAdmin(matched=1, results=[missing])
    with unread_output() as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert changed(admin, json=json) == exits.EXIT_NO


def test_an_answer_no_stays_although_nobody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with unread_output() as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert exits.say_no("there is no such job", as_json=False) == exits.EXIT_NO


def test_parsing_leaves_the_output_to_other_threads() -> None:
    """They lost what they wrote meanwhile."""
    seen: list[object] = []
    parser = Parser()
    parser.add_argument("--one", type=lambda _: seen.append(sys.stdout))
    parser.parse_args(["--one", "x"])
    assert seen == [sys.stdout]
