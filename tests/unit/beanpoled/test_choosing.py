"""The output and the requests of the commands `job` and `queue`, without a cluster."""

import argparse
import io
import json
import os
import pty
import sys
import termios
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from beanpole.client.admin import PART_IDS, Admin, AdminRefused
from beanpole.client.rpc import Nodes
from beanpole.errors import ClientError, ConfigurationError
from beanpole.pb import jobs_pb2, jobs_pb2_grpc
from beanpoled import cli
from beanpoled.cli import choosing, columns, exits, progress, values


class FakeAdmin(Admin):
    """Answers every change with one progress message, and records the requests."""

    def __init__(self, **told: Any) -> None:
        super().__init__(Nodes(["127.0.0.1:1"]))
        self.told = jobs_pb2.ChangeProgress(complete=True, **told)
        self.requests: list[jobs_pb2.ChangeRequest] = []

    def change(
        self,
        request: jobs_pb2.ChangeRequest,
        look: Callable[[jobs_pb2.ChangeProgress], None] = lambda told: None,
    ) -> jobs_pb2.ChangeProgress:
        self.requests.append(jobs_pb2.ChangeRequest.FromString(request.SerializeToString()))
        look(self.told)
        return self.told


class Absent(grpc.RpcError):
    """The named object does not exist."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.NOT_FOUND

    def details(self) -> str:
        return "there is no such thing"

    def trailing_metadata(self) -> tuple[()]:
        return ()


def result(number: int, outcome: int) -> jobs_pb2.JobResult:
    return jobs_pb2.JobResult(id=number, outcome=jobs_pb2.JobOutcome.Name(outcome))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604_800)],
)
def test_times_have_units(text: str, seconds: int) -> None:
    assert values.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1", "1.5h", "2w", "1 h", "9" * 11, "9999999999d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is no time|too long"):
        values.duration_s(text)


class Keyboard(io.StringIO):
    """A terminal at which somebody answers."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("as_json", [False, True])
def test_the_question_before_a_deletion_is_not_among_json(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard("n\n"))
    monkeypatch.setattr(Admin, "change", lambda *_: jobs_pb2.ChangeProgress(changed=7))
    line = ["job", "delete", "--queue", "mail", "--addr", "127.0.0.1:1"]
    assert cli.main([*line, *(["--json"] * as_json)]) == exits.EXIT_NO
    said = capsys.readouterr()
    assert "job delete: 7 jobs. They cannot be brought back." in (said.err if as_json else said.out)
    assert not (said.out if as_json else said.err)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        *((f"queue {way} q", "no queue 'q'; `beanpole") for way in ("show", "clear", "kick")),
        ("queue pause q", "there is no such thing"),
        ("job show 1", "there is no such thing"),
    ],
)
def test_what_does_not_exist_is_told_where_other_commands_tell_it(
    line: str,
    words: str,
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ask(_: Admin, method: str, __: object) -> jobs_pb2.ListQueuesReply:
        if method == "ListQueues":
            return jobs_pb2.ListQueuesReply(complete=True)
        raise AdminRefused(Absent())

    monkeypatch.setattr(Admin, "ask", ask)
    given = [*line.split(), "--addr", "127.0.0.1:1", *(["--json"] * as_json)]
    assert cli.main(given) == exits.EXIT_NO
    said = capsys.readouterr()
    assert words in (said.err if as_json else said.out)
    assert not (said.out if as_json else said.err)


def test_names_of_clients_stay_on_their_line() -> None:
    assert columns.name_words("a\nb\x1b[2J", 20) == "a.b.[2J"
    assert columns.name_words("x" * 30, 10) == "xxxxxxx..."


def test_bodies_that_are_no_text_are_base64() -> None:
    job = jobs_pb2.AdminJob(id=1, state=jobs_pb2.JOB_STATE_READY, body=b"\xff\x00")
    plain = choosing.as_plain(job)
    assert plain["body_base64"] == "/wA=" and "body" not in plain
    assert (
        choosing.as_plain(jobs_pb2.AdminJob(state="JOB_STATE_READY", body=b"text"))["body"]
        == "text"
    )


def test_a_text_that_was_cut_in_a_character_is_text() -> None:
    cut = "caf\u00e9".encode()[:-1]
    fields: dict[str, Any] = {"id": 1, "state": jobs_pb2.JOB_STATE_READY, "body": cut}
    assert choosing.as_plain(jobs_pb2.AdminJob(**fields, body_bytes=5))["body"] == "caf"
    assert "body_base64" in choosing.as_plain(jobs_pb2.AdminJob(**fields, body_bytes=4))


# Clears the screen, moves back, reverses text; the accent and the tab are harmless.
EVIL = "caf\u00e9\x1b[2J\b\u202e\t|\n"


def test_no_text_of_a_client_steers_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = jobs_pb2.AdminJob(
        id=1,
        state=jobs_pb2.JOB_STATE_RESERVED,
        queue=EVIL,
        body=EVIL.encode(),
        protocol="gearman",
        external_id=EVIL,
        progress=EVIL.encode(),
        result=EVIL.encode(),
        holder=jobs_pb2.JobHolder(node="a", protocol="gearman", host=EVIL),
    )
    queue = jobs_pb2.AdminQueue(name=EVIL, aliases=[EVIL])
    answers = {
        "GetJob": job,
        "ListJobs": jobs_pb2.ListJobsReply(jobs=[job], complete=True),
        "ListQueues": jobs_pb2.ListQueuesReply(queues=[queue], complete=True),
    }
    monkeypatch.setattr(Admin, "ask", lambda _, method, request: answers[method])
    for words in ("job show 1", "job list", "queue show q", "queue list"):
        assert cli.main([*words.split(), "--addr", "127.0.0.1:1"]) == 0
        out = capsys.readouterr().out
        assert "caf\u00e9" in out
        assert [char for char in out if not char.isprintable() and char not in "\n\t"] == []
    cli.main(["job", "show", "1", "--addr", "127.0.0.1:1"])
    assert "--- body ---\ncaf\u00e9\\x1b[2J\\x08\\u202e\t|\n\n" in capsys.readouterr().out


def test_a_list_has_all_jobs_where_the_encoding_lacks_a_character(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies = ["caf\u00e9 \u2603", "plain"]
    state = jobs_pb2.JOB_STATE_READY
    jobs = [jobs_pb2.AdminJob(id=1, state=state, body=body.encode()) for body in bodies]
    reply = jobs_pb2.ListJobsReply(jobs=jobs, complete=True)
    monkeypatch.setattr(Admin, "ask", lambda *_: reply)
    for encoding, shown in (("ascii", "caf\\xe9 \\u2603"), ("utf-8", bodies[0])):
        output = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding))
        assert cli.main(["job", "list", "--addr", "127.0.0.1:1"]) == 0
        text = output.getvalue().decode(encoding)
        assert shown in text and "plain" in text


@pytest.mark.parametrize(
    ("limit", "count", "is_told"),
    [
        *((1500, 1500, False), (1500, 1501, True)),
        *((1000, 1000, False), (1000, 1001, True), (3, 3, False), (3, 4, True)),  # whole pages
    ],
)
def test_a_list_that_is_cut_in_its_last_page_says_so(
    limit: int,
    count: int,
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ask(_: Admin, __: str, request: jobs_pb2.ListJobsRequest) -> jobs_pb2.ListJobsReply:
        ids = range(request.after_id + 1, min(request.after_id + request.limit, count) + 1)
        jobs = [jobs_pb2.AdminJob(id=one, state=jobs_pb2.JOB_STATE_READY) for one in ids]
        return jobs_pb2.ListJobsReply(jobs=jobs, complete=ids[-1] == count, next_after_id=ids[-1])

    monkeypatch.setattr(Admin, "ask", ask)
    assert cli.main(["job", "list", "--limit", str(limit), "--addr", "127.0.0.1:1"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1 + limit
    assert (f"there may be more: --after {limit} goes on" in said.err) == is_told


@pytest.mark.parametrize(
    "words",
    [
        *("node connections --node \udcff", "node disconnect \udcff/1", "queue show \udcff"),
        *("cluster leader --transfer \udcff", "job move 1 --to \udcff"),
    ],
)
def test_a_name_that_is_not_utf_8(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words.split(), "--addr", "127.0.0.1:1"]) == exits.EXIT_REFUSED
    assert capsys.readouterr().err == "beanpole: '\\udcff' cannot be written as utf-8\n"


def test_a_buried_job_of_a_long_name_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no tube for notes of such a queue, and a node refuses to look for one."""
    job = jobs_pb2.AdminJob(id=1, state=jobs_pb2.JOB_STATE_BURIED, queue="q" * 200, body=b"its")
    monkeypatch.setattr(Admin, "ask", lambda _, method, request: {"GetJob": job}[method])
    assert cli.main(["job", "show", "1", "--addr", "127.0.0.1:1"]) == 0
    assert "--- body ---\nits\n" in capsys.readouterr().out


class Denied(grpc.RpcError):
    """The answer of a node to a user without a right."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.PERMISSION_DENIED

    def details(self) -> str:
        return "ops lacks the right admin in q.failures"

    def trailing_metadata(self) -> tuple[()]:
        return ()


def test_a_buried_job_is_shown_without_the_right_to_its_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = jobs_pb2.AdminJob(id=1, state=jobs_pb2.JOB_STATE_BURIED, queue="q", body=b"its")

    def ask(_: Admin, method: str, __: Any) -> jobs_pb2.AdminJob:
        if method == "ListJobs":
            raise AdminRefused(Denied())
        return job

    monkeypatch.setattr(Admin, "ask", ask)
    assert cli.main(["job", "show", "1", "--addr", "127.0.0.1:1"]) == 0
    said = capsys.readouterr()
    assert "--- body ---\nits\n" in said.out
    assert "not looked for: ops lacks the right admin in q.failures" in said.err


def changed(admin: FakeAdmin, dry_run: bool = False, **how: bool) -> int:
    arguments = argparse.Namespace(**{"json": False, **how}, dry_run=dry_run)
    request = jobs_pb2.ChangeRequest(action=jobs_pb2.JOB_ACTION_KICK, job_ids=[1])
    return choosing.change(admin, arguments, request, "kicked")


def test_every_job_that_was_not_changed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [result(number, number) for number in range(1, 9)]
    assert changed(FakeAdmin(matched=8, changed=1, results=outcomes)) == 1
    said = capsys.readouterr()
    assert said.out == "1 job kicked, 7 not\n"
    assert len(said.err.splitlines()) == 7 and "job 8 is one of qless" in said.err


def test_jobs_that_a_lost_node_may_have_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """Only outcomes that the change itself can cause are unsure."""
    outcomes = [result(number, number) for number in range(1, 9)]
    for asked_again, unsure, status in (({1, 2, 4, 5}, [2, 4], 3), ({1, 5}, [], 1)):
        admin = FakeAdmin(matched=8, changed=1, results=outcomes)
        admin.asked_again = asked_again
        assert changed(admin) == status
        words = "a node was lost: 2 jobs that could not be kicked, from 2 on, may have been kicked"
        assert (words in capsys.readouterr().err) == bool(unsure)
        assert changed(admin, json=True) == status
        assert json.loads(capsys.readouterr().out)["may_be_changed"] == unsure


def test_one_job_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert changed(FakeAdmin(matched=1, changed=1, results=[result(7, 1)])) == 0
    assert changed(FakeAdmin(matched=1, changed=1, results=[result(7, 1)]), dry_run=True) == 0
    assert capsys.readouterr().out == "job 7 kicked\njob 7 would be kicked\n"


def test_a_change_that_stopped_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    admin = FakeAdmin(matched=0, stopped_by=jobs_pb2.JOB_OUTCOME_QUEUE_FULL)
    assert changed(admin, json=True) == 1
    assert '"stopped_by": "has no room' in capsys.readouterr().out


@pytest.mark.parametrize("words", ["delete", "kick", "bury", "change --priority 1", "move --to q"])
def test_a_limit_of_given_jobs_is_refused(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = FakeAdmin(matched=3, changed=3)
    monkeypatch.setattr(Admin, "change", lambda _, *given: admin.change(*given))
    command = ["job", *words.split(), "1", "2", "3", "--limit", "1", "--addr", "127.0.0.1:1"]
    assert cli.main(command) == exits.EXIT_REFUSED
    assert "--limit is not for ids of jobs" in capsys.readouterr().err
    assert admin.requests == []


@pytest.mark.parametrize(
    ("error", "status"),
    [(ClientError("no node answers"), exits.EXIT_NO_ANSWER), (KeyboardInterrupt(), 130)],
)
def test_a_change_that_is_broken_off_tells_what_it_did(
    error: BaseException,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken_off(_: Admin, __: Any, look: Callable[[jobs_pb2.ChangeProgress], None]) -> Any:
        look(jobs_pb2.ChangeProgress(matched=0))
        look(jobs_pb2.ChangeProgress(matched=2560, changed=2559))
        raise error

    monkeypatch.setattr(Admin, "change", broken_off)
    command = ["job", "kick", "--queue", "q", "--addr", "127.0.0.1:1"]
    assert cli.main(command) == status
    words = "broken off: 2,559 jobs kicked, perhaps some more"
    assert capsys.readouterr().err.splitlines()[0] == words
    assert cli.main([*command, "--dry-run"]) == status
    assert "broken off" not in capsys.readouterr().err, "nothing was changed"


def test_the_first_ids_may_be_changed_where_a_node_was_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the next node refuses: a status of 2 would say that nothing was done."""

    def refused(admin: Admin, request: jobs_pb2.ChangeRequest, _: Any) -> Any:
        admin.asked_again.update(request.job_ids)
        raise AdminRefused(Denied())

    monkeypatch.setattr(Admin, "change", refused)
    assert cli.main(["job", "delete", "7", "8", "--addr", "127.0.0.1:1"]) == exits.EXIT_NO_ANSWER
    words = "broken off: 0 jobs deleted, 0 not; 2 jobs from 7 on perhaps"
    assert capsys.readouterr().err.splitlines()[0] == words


class Refusing(jobs_pb2_grpc.JobAdminServicer):
    """Changes all jobs of the first call but the first, and refuses every further call."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self.code = code
        self.is_first = True

    def Change(self, request: jobs_pb2.ChangeRequest, context: Any) -> Any:
        """See jobs.proto."""
        if not self.is_first:
            context.abort(self.code, "no more")
        self.is_first = False
        results = [result(one, 2 if one == 1 else 1) for one in request.job_ids]
        count = len(results)
        yield jobs_pb2.ChangeProgress(
            matched=count, changed=count - 1, complete=True, results=results
        )


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("code", "is_unsure"),
    [(grpc.StatusCode.INVALID_ARGUMENT, False), (grpc.StatusCode.PERMISSION_DENIED, True)],
)
def test_ids_of_which_a_later_part_is_refused(
    code: grpc.StatusCode, is_unsure: bool, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 would say that nothing was done, and status 1 that all was tried."""
    server = grpc.server(ThreadPoolExecutor(1))
    jobs_pb2_grpc.add_JobAdminServicer_to_server(Refusing(code), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    count, second = 2 * PART_IDS + 9, PART_IDS + 1
    ids = [str(one) for one in range(1, count + 1)]
    words = ["job", "delete", *ids, "--addr", f"127.0.0.1:{port}", *(["--json"] * as_json)]
    assert cli.main(words) == exits.EXIT_NO_ANSWER
    server.stop(None)
    said = capsys.readouterr()
    begun = f"{PART_IDS} jobs from {second} on perhaps; 9 jobs from {2 * PART_IDS + 1} on"
    rest = begun if is_unsure else f"{PART_IDS + 9} jobs from {second} on"
    *missed, told, error = said.err.splitlines()
    assert told == f"broken off: {PART_IDS - 1} jobs deleted, 1 not; {rest} not reached"
    assert error == "beanpole: no more"
    if as_json:
        found = json.loads(said.out)
        unsure = list(range(second, second + PART_IDS)) if is_unsure else []
        assert (found["changed"], found["may_be_changed"]) == (PART_IDS - 1, unsure)
        not_changed = [one["id"] for one in found["not_changed"]]
        assert not_changed == [1, *sorted(set(range(second, count + 1)) - set(unsure))]
    else:
        assert (said.out, missed) == ("", ["job 1 not found"])


def asked(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether an answer at a terminal confirms the destruction of many jobs."""
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    arguments = argparse.Namespace(yes=False, dry_run=False, json=False)
    with os.fdopen(theirs, "r", closefd=True) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        admin = FakeAdmin(matched=9, changed=9)
        found = choosing.confirm(admin, arguments, jobs_pb2.ChangeRequest(), "queue clear q")
    os.close(ours)
    assert [request.dry_run for request in admin.requests] == [True], "it only counts"
    return found


def test_somebody_is_asked_before_many_are_destroyed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(b"y\n", monkeypatch)
    assert "queue clear q: 9 jobs" in capsys.readouterr().out
    assert not asked(b"\n", monkeypatch)
    assert not asked(b"no\n", monkeypatch)


def test_nobody_can_be_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    arguments = argparse.Namespace(yes=False, dry_run=False, json=False)
    with pytest.raises(ConfigurationError, match="--yes"):
        choosing.confirm(FakeAdmin(), arguments, jobs_pb2.ChangeRequest(), "queue clear q")
    for name in ("yes", "dry_run"):
        arguments = argparse.Namespace(
            **{"yes": False, "dry_run": False, "json": False} | {name: True}
        )
        assert choosing.confirm(FakeAdmin(), arguments, jobs_pb2.ChangeRequest(), "clear")


def test_progress_counts_jobs() -> None:
    line = progress.words("moved", 250, 1000, 2.0, lambda count: f"{count:,.0f} jobs")
    assert line == "moved [######------------------]  25% 250 jobs, 125 jobs/s, 0:06 left"


@pytest.mark.constants
@pytest.mark.parametrize(("columns", "chars"), [(20, 19), (200, 35), (0, 35)])
def test_progress_stays_in_one_row(
    columns: int, chars: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PERIOD_S", 0.0)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(progress, "words", lambda *_: "moved [###-----]  25% 250 jobs, 125")
        line = progress.Progress("moved", 1000, terminal)
        line.at(250)
        shown = os.read(ours, 1000).decode()
    os.close(ours)
    assert len(shown.removeprefix("\r\x1b[2K")) == chars


@pytest.mark.parametrize(
    "words",
    [
        *("job list", "job search x", "job show 1", "job delete 1", "job kick 1", "job bury 1"),
        *("job change 1 --priority 1", "job move 1 --to q", "queue list", "queue show q"),
        *("queue clear q --yes", "queue kick q", "queue pause q", "queue resume q"),
    ],
)
def test_a_cluster_that_does_not_answer_is_status_3(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def any_node(*_: Any) -> Any:
        raise ClientError("no node answers")

    monkeypatch.setattr(Admin, "_any", any_node)
    assert cli.main([*words.split(), "--addr", "127.0.0.1:1"]) == exits.EXIT_NO_ANSWER
    assert "no node answers" in capsys.readouterr().err
