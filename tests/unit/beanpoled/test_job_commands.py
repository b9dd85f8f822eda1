"""The commands for jobs (put, reserve, bury and the like) and wrong lines, at scripted nodes."""

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beanpole.client.admin import Admin
from beanpole.errors import ConfigurationError
from beanpole.pb import jobs_pb2
from beanpoled.cli import main
from tests.unit.client.scripted import Node, Script

Start = Callable[[Script], Node]


@pytest.fixture
def start() -> Iterator[Start]:
    nodes: list[Node] = []

    def begin(script: Script) -> Node:
        nodes.append(Node(script))
        return nodes[-1]

    yield begin
    for node in nodes:
        node.finish()


CASES: list[tuple[list[str], Script, int, str]] = [
    (["put", "hi"], [(b"put 65536 0 120 2\r\nhi\r\n", b"INSERTED 7\r\n")], 0, "INSERTED 7\n"),
    (
        ["put", "--tube", "t", "--priority", "1", "--delay", "2", "--ttr", "3", "hi"],
        [(b"use t\r\n", b"USING t\r\n"), (b"put 1 2 3 2\r\nhi\r\n", b"INSERTED 8\r\n")],
        0,
        "INSERTED 8\n",
    ),
    (["put", "x"], [(b"put 65536 0 120 1\r\nx\r\n", b"JOB_TOO_BIG\r\n")], 3, ""),
    (["put", "x"], [(b"put 65536 0 120 1\r\nx\r\n", None)], 3, ""),
    (
        ["reserve", "--timeout", "1", "--delete"],
        [
            (b"reserve-with-timeout 1\r\n", b"RESERVED 7 2\r\nhi\r\n"),
            (b"delete 7\r\n", b"DELETED\r\n"),
        ],
        0,
        "RESERVED 7 2\nhi\nDELETED\n",
    ),
    (
        ["reserve", "--tube", "a", "--tube", "b", "--timeout", "0"],
        [
            (b"watch a\r\n", b"WATCHING 2\r\n"),
            (b"watch b\r\n", b"WATCHING 3\r\n"),
            (b"ignore default\r\n", b"WATCHING 2\r\n"),
            (b"reserve-with-timeout 0\r\n", b"TIMED_OUT\r\n"),
        ],
        1,
        "TIMED_OUT\n",
    ),
    (
        ["delete", "7", "8"],
        [(b"delete 7\r\n", b"DELETED\r\n"), (b"delete 8\r\n", b"NOT_FOUND\r\n")],
        1,
        "DELETED\nNOT_FOUND\n",
    ),
    (
        ["delete", "7", "8"],
        [(b"delete 7\r\n", b"NOT_FOUND\r\n"), (b"delete 8\r\n", b"DELETED\r\n")],
        1,
        "NOT_FOUND\nDELETED\n",
    ),
    (
        ["delete", "7", "8"],
        [(b"delete 7\r\n", b"DELETED\r\n"), (b"delete 8\r\n", None)],
        3,
        "DELETED\n",
    ),
    (
        ["release", "7", "--delay", "5"],
        [
            (b"stats-job 7\r\n", b"OK 14\r\n---\npri: 1234\n\r\n"),
            (b"reserve-job 7\r\n", b"RESERVED 7 1\r\nx\r\n"),
            (b"release 7 1234 5\r\n", b"RELEASED\r\n"),
        ],
        0,
        "RELEASED\n",
    ),
    (
        ["release", "7"],
        [(b"stats-job 7\r\n", b"NOT_FOUND\r\n"), (b"reserve-job 7\r\n", b"NOT_FOUND\r\n")],
        1,
        "NOT_FOUND\n",
    ),
    (
        ["bury", "7", "--priority", "3"],
        [(b"reserve-job 7\r\n", b"RESERVED 7 1\r\nx\r\n"), (b"bury 7 3\r\n", b"BURIED\r\n")],
        0,
        "BURIED\n",
    ),
    (["kick", "--job", "7"], [(b"kick-job 7\r\n", b"KICKED\r\n")], 0, "KICKED\n"),
    (
        ["kick", "9", "--tube", "t"],
        [(b"use t\r\n", b"USING t\r\n"), (b"kick 9\r\n", b"KICKED 4\r\n")],
        0,
        "KICKED 4\n",
    ),
    (["peek", "7"], [(b"peek 7\r\n", b"FOUND 7 1\r\nx\r\n")], 0, "FOUND 7 1\nx\n"),
    (["peek", "buried"], [(b"peek-buried\r\n", b"NOT_FOUND\r\n")], 1, "NOT_FOUND\n"),
    (["stats"], [(b"stats\r\n", b"OK 9\r\n---\na: 1\n\r\n")], 0, "a: 1\n"),
    (["stats", "--json"], [(b"stats\r\n", b"OK 11\r\n---\nid: 12\n\r\n")], 0, '{"id": "12"}\n'),
    (
        ["stats-job", "12", "--json"],
        [(b"stats-job 12\r\n", b"OK 11\r\n---\nid: 12\n\r\n")],
        0,
        '{"id": 12}\n',
    ),
    (["stats-tube", "t"], [(b"stats-tube t\r\n", b"NOT_FOUND\r\n")], 1, "NOT_FOUND\n"),
    (["stats-job", "7"], [(b"stats-job 7\r\n", b"OK 9\r\n---\na: 1\n\r\n")], 0, "a: 1\n"),
    (["tubes"], [(b"list-tubes\r\n", b"OK 14\r\n---\n- default\n\r\n")], 0, "default\n"),
]


@pytest.mark.parametrize(
    ("line", "script", "done", "out"), CASES, ids=[" ".join(case[0]) for case in CASES]
)
def test_a_command_by_hand(
    start: Start,
    capfdbinary: pytest.CaptureFixture[bytes],
    line: list[str],
    script: Script,
    done: int,
    out: str,
) -> None:
    node = start(script)
    assert main([line[0], "--addr", node.address, *line[1:]]) == done
    sys.stdout.flush()
    captured = capfdbinary.readouterr()
    assert captured.out.decode() == out
    assert (done == 3) == captured.err.startswith(b"beanpole: ")


@pytest.mark.parametrize("words", ["stats-tube t", "stats-job 7"])
def test_json_has_nothing_of_what_is_not_there(
    words: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start([(f"{words}\r\n".encode(), b"NOT_FOUND\r\n")])
    assert main([*words.split(), "--json", "--addr", node.address]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "NOT_FOUND\n")


@pytest.mark.parametrize("lost", ["stats-job", "reserve-job", "bury"])
def test_a_bury_whose_node_dies_never_says_that_the_job_is_missing(
    start: Start, capfdbinary: pytest.CaptureFixture[bytes], lost: str
) -> None:
    said: Script = [
        (b"stats-job 7\r\n", b"OK 14\r\n---\npri: 1234\n\r\n"),
        (b"reserve-job 7\r\n", b"RESERVED 7 1\r\nx\r\n"),
        (b"bury 7 1234\r\n", b"BURIED\r\n"),
    ]
    at = next(at for at, (request, _) in enumerate(said) if request.startswith(lost.encode()))
    # Only the read is repeated: a reservation and its bury need one connection.
    if has_other := lost == "stats-job":
        # With a second node, a command first asks whether the node stands still.
        said.insert(0, (b"list-tube-used\r\n", b"USING default\r\n"))
        at += 1
    first = start([*said[:at], (said[at][0], None)])
    second = start(said) if has_other else first
    status = main(["bury", "7", "--addr", f"{first.address},{second.address}"])
    out, err = capfdbinary.readouterr()
    assert b"NOT_FOUND" not in out
    if second is first:
        assert (status, out) == (3, b"") and first.address.encode() in err
    else:
        assert (status, out) == (0, b"BURIED\n")


def test_reserve_says_that_the_job_goes_back(
    start: Start, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    reserved = (b"reserve-with-timeout 0\r\n", b"RESERVED 5 1\r\nx\r\n")
    assert main(["reserve", "--timeout", "0", "--addr", start([reserved]).address]) == 0
    out, err = capfdbinary.readouterr()
    assert out == b"RESERVED 5 1\nx\n"
    assert err.startswith(b"job 5 goes back to the queue now") and b"--delete" in err
    script: Script = [reserved, (b"delete 5\r\n", b"DELETED\r\n")]
    line = ["reserve", "--timeout", "0", "--delete", "--addr", start(script).address]
    assert main(line) == 0
    assert capfdbinary.readouterr().err == b""


def test_a_body_from_standard_input(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start([(b"put 65536 0 120 3\r\n\x00\xff\n\r\n", b"INSERTED 1\r\n")])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x00\xff\n")))
    assert main(["put", "--addr", node.address]) == 0
    assert capsys.readouterr().out == "INSERTED 1\n"


def test_the_address_comes_from_the_variable_or_the_folder(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BEANPOLE_ADDR", start([(b"delete 1\r\n", b"DELETED\r\n")]).address)
    assert main(["delete", "1"]) == 0
    monkeypatch.delenv("BEANPOLE_ADDR")
    node = start([(b"delete 2\r\n", b"DELETED\r\n")])
    listed = {"cluster": "dev", "nodes": [{"beanstalk": node.address}]}
    (tmp_path / "cluster.json").write_text(json.dumps(listed))
    assert main(["delete", "--dir", str(tmp_path), "2"]) == 0


@pytest.mark.parametrize(
    "line",
    [
        ["put", "--priority", "-1", "x"],
        ["put", "--ttr", "4294967296", "x"],
        ["put", "--tube", "a b", "x"],
        ["put", "--tube", "mäil", "x"],
        ["put", "--tube=-mail", "x"],
        ["put", "--tube", "x" * 201, "x"],
        ["reserve", "--tube", ""],
        ["reserve", "--timeout", "2147483648"],
        ["delete", "-5"],
        ["delete", "18446744073709551616"],
        ["stats-job", "1" * 5000],
        ["kick", "--job", "x"],
        ["delete"],
        ["nothing"],
        [],
        # An empty name would stand for all queues, and 0 for no limit.
        *(["queue", way, ""] for way in ("show", "clear", "kick", "pause", "resume")),
        *(["job", way, "--queue", ""] for way in ("list", "delete", "kick", "bury")),
        *(["job", way, "--queue", "q", "--limit", "0"] for way in ("delete", "kick", "bury")),
        ["job", "move", "--from", "", "--to", "q"],
        ["job", "move", "--from", "q", "--to", ""],
        ["job", "delete", "--queue", "q", "--younger", "0"],
        ["job", "delete", "--queue", "q", "--text", ""],
        ["job", "search", ""],
        ["job", "search", "x", "--text", "y"],
        ["queue", "kick", "q", "0"],
        *(["user", "set", "u", f"--{name}", "0"] for name in ("jobs-max", "bytes-max")),
        ["user", "set", "u", "--commands-per-second-max", "0"],
        *(["policy", "set", "q", f"--{name}", "0"] for name in ("attempts", "jobs-max", "unique")),
        *(["policy", "set", "q", f"--{name}", "4294967296"] for name in ("attempts",)),
        ["policy", "set", "q", "--default-priority", "4294967296"],
        ["policy", "set", "q", "--unique", "25h"],
        *([of, "set", "u", "--bytes-max", "9" * 15 + "GiB"] for of in ("user", "policy")),
    ],
)
def test_a_wrong_command_line(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(line)
    assert caught.value.code == 2
    assert "usage: beanpole" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["something", "-1", "18446744073709551616", "9" * 5000])
def test_wrong_words(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peek", "--addr", "127.0.0.1:1", "--", what]) == 2
    assert "give a job's id, or ready, delayed or buried" in capsys.readouterr().err
    assert main(["stats", "--addr", "x"]) == 2
    assert "--addr = 'x' is not allowed" in capsys.readouterr().err


def test_a_name_that_is_not_utf_8_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "set", "q\udcff", "--jobs-max", "5"]) == 2
    assert r"'\udcff' cannot be written as utf-8" in capsys.readouterr().err


def test_a_tube_is_not_its_own_dead_tube(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["policy", "set", "mail", "--attempts", "3", "--dead", "mail"]
    assert main(line) == 2
    assert "--dead mail: these jobs are in that tube" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (["--dead", "mail-dead"], "--dead mail-dead needs --attempts N"),
        (["--full", "refuse"], "--full refuse needs the limit that it is about: --jobs-max or"),
    ],
)
def test_rules_that_need_another_name_its_option(
    rules: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "set", "mail", *rules]) == 2
    assert words in capsys.readouterr().err


def test_a_node_that_refuses_a_rule_is_quoted_with_its_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise ConfigurationError("attempts_max has no effect on queues of workq")

    monkeypatch.setattr("beanpoled.cli.policy._ask", refuse)
    assert main(["policy", "set", "workq:x", "--attempts", "3"]) == 2
    assert "beanpole: --attempts has no effect on queues of workq" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["show", "list --queue"])
def test_the_policy_of_no_queue(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In a call, an empty name means all policies: `show` would print the first of them."""
    with pytest.raises(SystemExit) as ended:
        main(["policy", *words.split(), "", "--addr", "127.0.0.1:1"])
    assert ended.value.code == 2
    assert "'' is no queue" in capsys.readouterr().err


def test_ages_that_exclude_each_other_are_named_as_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ["job", "list", "--older", "2h", "--younger", "10m", "--addr", "127.0.0.1:1"]
    assert main(line) == 2
    assert (
        "older than --older (7200 s) and younger than --younger (600 s)" in capsys.readouterr().err
    )


@pytest.mark.parametrize("number", ["18446744073709551616", "-1", "1.5", "9" * 5000])
@pytest.mark.parametrize(
    "command",
    [
        *("job show", "job delete", "job kick", "job list --after", "job list --limit"),
        *("queue kick mail", "job kick --limit", "delete", "stats-job", "kick --job"),
    ],
)
def test_the_range_of_ids_and_counts_is_named(
    command: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    least = int(command in ("queue kick mail", "job kick --limit"))  # 0 would mean all
    with pytest.raises(SystemExit) as caught:
        main([*command.split(), number])
    assert caught.value.code == 2
    words = f"'{number}' is not a whole number from {least} to 18446744073709551615"
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("number", ["9223372036854775808", "18446744073709551615", "0" * 50 + "7"])
def test_ids_of_64_bits_are_asked_for(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ask(_: Admin, __: str, request: jobs_pb2.GetJobRequest) -> jobs_pb2.AdminJob:
        asked.append(request.id)
        return jobs_pb2.AdminJob(state=jobs_pb2.JOB_STATE_READY)

    monkeypatch.setattr(Admin, "ask", ask)
    assert main(["job", "show", number, "--addr", "127.0.0.1:1"]) == 0
    assert asked == [int(number)]


def test_a_job_that_left_its_queue_is_not_called_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another command has moved it meanwhile; of an id that was given, the same is "not found"."""
    gone = jobs_pb2.JobResult(id=7, outcome=jobs_pb2.JOB_OUTCOME_NOT_FOUND)
    told = jobs_pb2.ChangeProgress(matched=1, results=[gone], complete=True)
    monkeypatch.setattr(Admin, "change", lambda *_: told)
    where = ["--to", "b", "--addr", "127.0.0.1:1"]
    assert main(["job", "move", "--from", "a", *where]) == 1
    assert capsys.readouterr().err == "job 7 is not there any more\n"
    assert main(["job", "move", "7", *where]) == 1
    assert capsys.readouterr().err == "job 7 not found\n"


def test_numbers_of_work_are_whole_and_their_defaults_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["work", "--first-delay", "0.1", "mail", "--", "true"])
    assert "'0.1' is not a whole number from 0 to 86400" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["work", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "is buried (default 5)" in told and "doubled at each try (default 1)" in told


@pytest.mark.parametrize("queue", ["", "a b", "gearman:x", "mäil", "x" * 201])
def test_work_of_no_tube(queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["work", "--addr", "127.0.0.1:1", queue, "--", "true"]) == 2
    assert "is not a tube's name: 1 to 200 letters" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["/nonexistent", "no-such-program", "/etc/passwd", ""])
def test_work_without_a_program(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["work", "--addr", "127.0.0.1:1", "mail", "--", command]) == 2
    assert f"there is no program {command!r} that can be run" in capsys.readouterr().err


def test_work_with_a_token_that_nobody_has(
    start: Start, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = (b"extensions\r\n", b"OK 11\r\n---\n- auth\n\r\n")
    node = start([known, (b"auth nobodys\r\n", b"DENIED\r\n")])
    monkeypatch.setenv("BEANPOLE_TOKEN", "nobodys")
    assert main(["work", "--addr", node.address, "mail", "--", "true"]) == 3
    out, err = capsys.readouterr()
    assert "deleted=0" in out
    assert "DENIED: no user has this token" in err and "Traceback" not in err


def by_hand(redirections: str, *line: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell that redirects its standard input or output."""
    command = shlex.join([sys.executable, "-c", "from beanpoled.cli import main; exit(main())"])
    words = f"{command} {shlex.join(line)} {redirections}"
    return subprocess.run(
        ["sh", "-c", words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirections", "line", "status", "words"),
    [
        (">/dev/full", ["tubes"], 3, "beanpole: the disk is full\n"),
        (">&-", ["tubes"], 2, "beanpole: standard output is closed\n"),
        ("<&-", ["put"], 2, "beanpole: put: standard input is closed; give the body as an"),
        ("<&-", ["user", "rules", "--set", "-"], 2, "beanpole: --set -: standard input is closed"),
        ("<&-", ["job", "delete", "--queue", "q"], 2, "beanpole: job delete: --yes says that it"),
    ],
)
def test_standard_streams_that_do_not_work(
    start: Start, redirections: str, line: list[str], status: int, words: str
) -> None:
    address = "127.0.0.1:1"  # a closed stream is reported before any node is asked
    if status == 3:
        address = start([(b"list-tubes\r\n", b"OK 14\r\n---\n- default\n\r\n")]).address
    done = by_hand(redirections, *line, "--addr", address)
    assert done.stderr.startswith(words)
    assert "Traceback" not in done.stderr
    assert done.returncode == status


@pytest.mark.slow
def test_all_jobs_are_deleted_if_nobody_reads_the_words(start: Start) -> None:
    """Status 0 says that all is done, and there may be thousands of jobs."""
    script = [(b"delete %d\r\n" % job, b"DELETED\r\n") for job in (1, 2)]
    node = start([*script, (b"delete 3\r\n", b"NOT_FOUND\r\n")])
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-u", "-c", "from beanpoled.cli import main; exit(main())"]
    done = subprocess.run(
        [*program, "delete", "1", "2", "3", "--addr", node.address],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
