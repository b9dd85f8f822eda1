"""Errors that calls return as results, in the words of each dialect."""

from typing import Any

import pytest

import beanpole.qless as q
from beanpole.protocol.qless.answers import answer
from beanpole.protocol.qless.recognition import Script
from beanpole.protocol.resp.values import Error
from tests.unit.protocol.qless.scripts import CORE_SCRIPT, THROTTLES_SCRIPT, call, seed_script


def error(script: Script, *args: object, code: int, details: tuple[Any, ...]) -> bytes:
    """Return the error message of a result."""
    found = answer(script, call(script, *args), (code, details))
    assert isinstance(found, Error)
    end = b" script: " + script.sha + b", on @user_script:1."
    assert found.text.startswith(b"ERR user_script:1: ")
    assert found.text.endswith(end)
    return found.text.removesuffix(end).removeprefix(b"ERR user_script:1: ")


COMPLETE = ["complete", 1, "j1", "w", "q", "{}"]
FAIL = ["fail", 1, "j3", "w", "g", "m"]
BEAT = ["heartbeat", 1, "j1", "w"]
RETRY = ["retry", 1, "j3", "q", "w"]


@pytest.mark.parametrize(
    ("args", "code", "details", "named", "unnamed"),
    [
        (COMPLETE, q.NO_JOB, (b"j1",), b"Complete(): Job j1 ", b"does not exist"),
        (
            COMPLETE,
            q.NOT_RUNNING,
            (b"j1", q.SCHEDULED),
            b"Complete(): Job j1 ",
            b"is not currently running: scheduled",
        ),
        (
            COMPLETE,
            q.OTHER_WORKER,
            (b"j1", b"w1"),
            b"Complete(): Job j1 ",
            b"has been handed out to another worker: w1",
        ),
        (
            COMPLETE,
            q.OTHER_QUEUE,
            (b"j1", b"q9"),
            b"Complete(): Job j1 ",
            b"running in another queue: q9",
        ),
        (FAIL, q.NO_JOB, (b"j3",), b"Fail(): Job j3", b"does not exist"),
        (
            FAIL,
            q.NOT_RUNNING,
            (b"j3", q.FAILED),
            b"Fail(): Job j3",
            b"not currently running: failed",
        ),
        (
            FAIL,
            q.OTHER_WORKER,
            (b"j3", b"w1"),
            b"Fail(): Job j3 ",
            b"running with another worker: w1",
        ),
        (RETRY, q.NO_JOB, (b"j3",), b"Retry(): Job j3 ", b"does not exist"),
        (
            RETRY,
            q.NOT_RUNNING,
            (b"j3", q.WAITING),
            b"Retry(): Job j3 ",
            b"is not currently running: waiting",
        ),
        (
            RETRY,
            q.OTHER_WORKER,
            (b"j3", b"w1"),
            b"Retry(): Job j3 ",
            b"has been given to another worker: w1",
        ),
        (BEAT, q.NO_JOB, (b"j1",), b"Heartbeat(): Job j1 ", b"does not exist"),
        (
            BEAT,
            q.NOT_RUNNING,
            (b"j1", q.SCHEDULED),
            b"Heartbeat(): Job j1 ",
            b"not currently running: scheduled",
        ),
        (
            BEAT,
            q.OTHER_WORKER,
            (b"j1", b"w1"),
            b"Heartbeat(): Job j1 ",
            b"given out to another worker: w1",
        ),
    ],
)
def test_errors_with_and_without_the_jid(
    args: list[object], code: int, details: tuple[Any, ...], named: bytes, unnamed: bytes
) -> None:
    assert error(CORE_SCRIPT, *args, code=code, details=details) == named + unnamed
    plain = args[0] if isinstance(args[0], str) else ""
    expected = plain.capitalize().encode() + b"(): Job " + unnamed
    assert error(THROTTLES_SCRIPT, *args, code=code, details=details) == expected


@pytest.mark.parametrize(
    ("args", "code", "details", "text"),
    [
        (
            ["requeue", 1, "w", "q", "zz", "K", "{}", 0],
            *(q.NO_JOB, (b"zz",), b"Requeue(): Job zz does not exist"),
        ),
        (["track", 1, "track", "j"], q.NO_JOB, (b"j",), b"Track(): Job does not exist"),
        (["log", 1, "nope", "m"], q.NO_JOB, (b"nope",), b"Log(): Job nope does not exist"),
        (["tag", 1, "add", "nope", "x"], q.NO_JOB, (b"nope",), b"Tag(): Job nope does not exist"),
        (["priority", 1, "nope", 5], q.NO_JOB, (b"nope",), b"Priority(): Job nope does not exist"),
        (
            ["depends", 1, "j1", "on", "j2"],
            q.NOT_DEPENDING,
            (b"j1", q.RUNNING),
            b"Depends(): Job j1 not in the depends state: running",
        ),
        (
            ["depends", 1, "j1", "on", "j2"],
            q.NOT_DEPENDING,
            (b"j1", 0),
            b"Depends(): Job j1 not in the depends state: false",
        ),
        (
            ["depends", 1, "j1", "on", "j1"],
            *(q.DEPENDS_ON_ITSELF, (b"j1",), b"Depends(): j1 depends on itself"),
        ),
        (["timeout", 1, "j3"], q.NOT_RUNNING, (b"j3", q.WAITING), b"Timeout(): Job j3 not running"),
        (
            ["cancel", 1, "p"],
            q.HAS_DEPENDENT,
            (b"p", b"c"),
            b"Cancel(): p is a dependency of c but is not mentioned to be canceled",
        ),
        (
            ["recur.update", 1, "nope"],
            *(q.NO_RECURRING, (b"nope",), b"Recur(): No recurring job nope"),
        ),
        (
            ["recur.tag", 1, "nope", "y"],
            *(q.NO_RECURRING, (b"nope",), b"Tag(): Job nope does not exist"),
        ),
        (
            ["recur.untag", 1, "nope", "y"],
            *(q.NO_RECURRING, (b"nope",), b"Untag(): Job nope does not exist"),
        ),
        (
            ["pop", 1, "q", "w", 5],
            q.TOO_MUCH,
            (b"jobs of one call", 1000),
            b"Pop(): too much: jobs of one call, the limit is 1000",
        ),
        (
            ["pause", 1, "q"],
            *(q.TOO_MUCH, (b"queues", 1), b"Qless(): too much: queues, the limit is 1"),
        ),
        (
            ["put", 1, "w", "q", "j", "K", "{}", 0],
            q.NO_ROOM,
            (),
            b"Put(): the cluster has no memory or disk left for more",
        ),
        (
            ["put", 1, "w", "q", "j", "K", "{}", 0],
            q.QUOTA,
            (),
            b"Put(): the quota of the user is used up",
        ),
        (["get", 1, "j"], q.BAD_CALL, (), b"Qless(): bad arguments"),
    ],
)
def test_errors(args: list[object], code: int, details: tuple[Any, ...], text: bytes) -> None:
    assert error(CORE_SCRIPT, *args, code=code, details=details) == text


def test_the_job_that_must_be_there() -> None:
    assert error(THROTTLES_SCRIPT, "timeout", 1, "j", code=q.NO_JOB, details=(b"j",)) == (
        b"Timeout(): Job j not running"
    )
    assert error(CORE_SCRIPT, "timeout", 1, "j", code=q.NO_JOB, details=(b"j",)) == (
        b"Timeout(): Job j does not exist"
    )
    assert error(THROTTLES_SCRIPT, "priority", 1, "j", 5, code=q.NO_JOB, details=(b"j",)) == (
        b"Queue(): no queue name provided"
    )


def test_the_seed_form_says_null() -> None:
    for name, args in (
        ("Heartbeat", ["j", "w", 1]),
        ("Complete", ["j", "w", "q", 1, "{}"]),
        ("Fail", ["j", "w", "g", "m", 1]),
        ("Retry", ["j", "q", "w", 1]),
        ("Depends", ["j", "on", "a"]),
        ("Tag", ["add", "j", 1, "t"]),
        ("Recur", ["update", "r"]),
    ):
        script = seed_script(name)
        for code in (q.NO_JOB, q.NOT_RUNNING, q.OTHER_WORKER, q.NOT_DEPENDING, q.NO_RECURRING):
            assert answer(script, call(script, *args), (code, (b"j", q.WAITING))) is None
    cancel = seed_script("Cancel")
    assert answer(cancel, call(cancel, "j"), (q.OK, None)) is None


def test_errors_of_the_seed_form() -> None:
    text = error(seed_script("Priority"), "nope", 5, code=q.NO_JOB, details=(b"nope",))
    assert text == b"attempt to concatenate local 'queue' (a boolean value)"
    text = error(seed_script("Cancel"), "p", code=q.HAS_DEPENDENT, details=(b"p", b"c"))
    assert text == b"Cancel(): p has un-canceled jobs that depend on it"
