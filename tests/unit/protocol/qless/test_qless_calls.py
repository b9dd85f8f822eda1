"""Arguments become calls, or errors known to clients; the texts are those of Redis 7."""

import pytest

import beanpole.qless as q
from beanpole.protocol.qless import forms
from tests.unit.protocol.qless.scripts import (
    CORE_SCRIPT,
    DOTTED_SCRIPT,
    THROTTLES_SCRIPT,
    UNIFIED_SCRIPT,
    call,
    refusal,
    seed_script,
)

# --- puts ----------------------------------------------------------------------------------------


def test_put_in_each_dialect() -> None:
    options = ["priority", -1, "tags", '["t1","t2"]', "retries", 3, "depends", '["d"]']
    put = call(UNIFIED_SCRIPT, "put", 100, "q", "j", "K", '{"a":1}', 0, *options)
    common = (b"q", b"j", b"K", b'{"a":1}', 0.0)
    given = (-1.0, (b"t1", b"t2"), 3, (b"d",))
    assert put == (q.PUT, q.UNIFIED, 100.0, (*common, None, *given, None, False), forms.BULK)
    put = call(CORE_SCRIPT, "put", 100, "w", "q", "j", "K", '{"a":1}', 0, *options)
    assert put.args == (*common, b"w", *given, None, False)
    put = call(THROTTLES_SCRIPT, "put", 100, "w", "q", "j", "K", '{"a":1}', 0, *options)
    assert put.args == (*common, b"w", *given, (), False)
    put = call(DOTTED_SCRIPT, "queue.put", 100, "w", "q", "j", "K", "{}", 0, "throttles", '["t"]')
    assert put.args[5:] == (b"w", None, None, None, (), (b"t",), False)
    put = call(seed_script("Put"), "j", "K", '{"a":1}', 100, 0, *options, keys=[b"q"])
    assert put == (q.PUT, q.SEED, 100.0, (*common, None, *given, None, False), forms.BULK)


def test_a_put_keeps_what_it_does_not_say() -> None:
    put = call(THROTTLES_SCRIPT, "put", 1.5, "w", "q", "j", "K", "[]", 10.5)
    assert put.now == 1.5
    assert put.args[3:] == (b"[]", 10.5, b"w", None, None, None, (), (), False)


def test_requeue_wants_the_job() -> None:
    requeue = call(CORE_SCRIPT, "requeue", 100, "w", "q", "j", "K", "{}", 0)
    assert requeue.args[-1] is True
    assert refusal(CORE_SCRIPT, "requeue", 100, "w", "q") == b"Job(): no jid provided"
    assert refusal(UNIFIED_SCRIPT, "requeue", 1) == b"Unknown command requeue"


PUT = ["put", 100, "w0", "q", "j5", "K"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([*PUT, "notjson", 0], b"Expected value but found invalid token at character 1"),
        ([*PUT, "false", 0], b'Put(): Arg "data" missing or not JSON: false'),
        (PUT, b"bad argument #1 to 'decode' (string expected, got nil)"),
        ([*PUT, "{}"], b'Put(): Arg "delay" not a number: nil'),
        ([*PUT, "{}", "x"], b'Put(): Arg "delay" not a number: x'),
        ([*PUT, "{}", "nan"], b'Put(): Arg "delay" not a number: nan'),
        ([*PUT, "{}", 0, "odd"], b"Odd number of additional args: table: 0x000000000000"),
        ([*PUT, "{}", 0, "retries", "x"], b'Put(): Arg "retries" not a number: x'),
        ([*PUT, "{}", 0, "retries", "1.5"], b"value is not an integer or out of range"),
        ([*PUT, "{}", 0, "tags", "false"], b'Put(): Arg "tags" not JSONfalse'),
        ([*PUT, "{}", 0, "priority", "x"], b'Put(): Arg "priority" not a numberx'),
        ([*PUT, "{}", 0, "depends", "false"], b'Put(): Arg "depends" not JSON: false'),
        ([*PUT, "{}", 0, "depends", "[[]]"], b'Put(): Arg "depends" not JSON: [[]]'),
        (PUT[:4], b'Put(): Arg "jid" missing'),
        (PUT[:5], b'Put(): Arg "klass" missing'),
        (PUT[:3], b"Queue(): no queue name provided"),
        (["put", "abc"], b'Arg "now" missing or not a number: nil'),
        (["put"], b'Arg "now" missing or not a number: nil'),
        (["put", "inf"], b'Arg "now" missing or not a number: nil'),
        (["nope", 1], b"Unknown command nope"),
        (["throttle.set", 1, "t", 1], b"Unknown command throttle.set"),
        (["tag"], b'Arg "now" missing or not a number: nil'),
        ([], b"Must provide a command"),
    ],
)
def test_errors_of_put(args: list[object], text: bytes) -> None:
    assert refusal(CORE_SCRIPT, *args) == text


def test_the_first_error_is_said() -> None:
    """Redis rejects a fraction in an integer's place only after the script's own checks."""
    args = [*PUT, "{}", "x", "retries", "1.5", "tags", "false"]
    assert refusal(CORE_SCRIPT, *args) == b'Put(): Arg "delay" not a number: x'
    args[7] = "0"
    assert refusal(CORE_SCRIPT, *args) == b'Put(): Arg "tags" not JSONfalse'


def test_keys_are_for_the_seed_form() -> None:
    text = refusal(THROTTLES_SCRIPT, "get", 1, "j", keys=[b"k"])
    assert text == b"No Keys should be provided"


def test_delay_with_dependencies() -> None:
    both = ["depends", '["a"]']
    text = b'Put(): "delay" and "depends" are not allowed to be used together'
    assert refusal(UNIFIED_SCRIPT, "put", 1, "q", "j", "K", "{}", 10, *both) == text
    assert refusal(seed_script("Put"), "j", "K", "{}", 1, 10, *both, keys=[b"q"]) == text
    assert call(CORE_SCRIPT, "put", 1, "w", "q", "j", "K", "{}", 10, *both).args[4] == 10.0


# --- pops, completions and the rest of a job's life ----------------------------------------------


def test_pop_and_peek() -> None:
    pop = call(UNIFIED_SCRIPT, "pop", 100, "q", "w", 2)
    assert pop == (q.POP, q.UNIFIED, 100.0, (b"q", b"w", 2), forms.JOBS)
    assert call(UNIFIED_SCRIPT, "peek", 100, "q", 2).args == (b"q", 0, 2)
    assert call(THROTTLES_SCRIPT, "peek", 100, "q", 5, 2).args == (b"q", 5, 2)
    pop = call(seed_script("Pop"), "w", 2, 100, keys=[b"q"])
    assert pop == (q.POP, q.SEED, 100.0, (b"q", b"w", 2), forms.JOB_LIST)
    assert call(seed_script("Peek"), 2, 101, keys=[b"q"]).args == (b"q", 0, 2)
    for count, text in ((b"x", b": x"), (b"", b": ")):
        expected = b'Pop(): Arg "count" missing or not a number' + text
        assert refusal(THROTTLES_SCRIPT, "pop", 1, "q", "w", count) == expected
    assert refusal(CORE_SCRIPT, "pop", 1, "q") == b'Pop(): Arg "worker" missing'


def test_complete() -> None:
    complete = call(
        CORE_SCRIPT, "complete", 104, "j", "w", "q", "{ }", "next", "q2", "delay", "1.5"
    )
    assert complete.code == q.COMPLETE
    assert complete.args == (b"j", b"w", b"q", b"{ }", b"q2", 1.5, ())
    assert complete.answer == forms.STATE
    complete = call(DOTTED_SCRIPT, "job.complete", 1, "j", "w", "q", "{}")
    assert complete.args == (b"j", b"w", b"q", b"{}", None, 0.0, ())
    complete = call(
        DOTTED_SCRIPT, "job.completeAndRequeue", 1, "j", "w", "q", "{}", "q2", "depends", '["a"]'
    )
    assert complete.args == (b"j", b"w", b"q", b"{}", b"q2", 0.0, (b"a",))


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], b"Job(): no jid provided"),
        (["j"], b'Complete(): Arg "worker" missing'),
        (["j", "w"], b'Complete(): Arg "queue" missing'),
        (["j", "w", "q"], b"bad argument #1 to 'decode' (string expected, got nil)"),
        (["j", "w", "q", "false"], b'Complete(): Arg "data" missing or not JSON: false'),
        (["j", "w", "q", "{}", "delay", "x"], b"assertion failed!"),
        (
            ["j", "w", "q", "{}", "delay", 5],
            b'Complete(): "delay" cannot be used without a "next".',
        ),
        (
            ["j", "w", "q", "{}", "depends", "[]"],
            b'Complete(): "depends" cannot be used without a "next".',
        ),
    ],
)
def test_errors_of_complete(args: list[object], text: bytes) -> None:
    assert refusal(CORE_SCRIPT, "complete", 104, *args) == text


def test_scripts_that_name_the_queue() -> None:
    script = THROTTLES_SCRIPT._replace(names_queue=True)
    assert refusal(script, "complete", 1, "j", "w") == b'Complete(): Arg "queue_name" missing'
    assert refusal(script, "retry", 1, "j") == b'Retry(): Arg "queue_name" missing'
    assert refusal(THROTTLES_SCRIPT, "retry", 1, "j") == b'Retry(): Arg "queue" missing'


def test_data_is_kept_as_it_came_or_encoded_again() -> None:
    """The scripts do the same; the log has the stored form."""
    data, again = '{ "a": [], "b": 1.50 }', b'{"a":{},"b":1.5}'
    kept = data.encode()
    assert call(UNIFIED_SCRIPT, "put", 1, "q", "j", "K", data, 0).args[3] == kept
    assert call(UNIFIED_SCRIPT, "complete", 1, "j", "w", "q", data).args[3] == again
    assert call(THROTTLES_SCRIPT, "complete", 1, "j", "w", "q", data).args[3] == kept
    for script in (UNIFIED_SCRIPT, CORE_SCRIPT, THROTTLES_SCRIPT):
        assert call(script, "heartbeat", 1, "j", "w", data).args[2] == again
        assert call(script, "fail", 1, "j", "w", "g", "m", data).args[4] == again
    assert call(seed_script("Put"), "j", "K", data, 1, 0, keys=[b"q"]).args[3] == again
    assert call(seed_script("Complete"), "j", "w", "q", 1, data).args[3] == again
    assert call(CORE_SCRIPT, "heartbeat", 1, "j", "w", "false").args[2] is None


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["fail", 1, "j", "w", "g", "m"], (q.FAIL, (b"j", b"w", b"g", b"m", None))),
        (["retry", 1, "j", "q", "w"], (q.RETRY, (b"j", b"q", b"w", 0.0, None, None))),
        (
            ["retry", 1, "j", "q", "w", 5, "g", "m"],
            (q.RETRY, (b"j", b"q", b"w", 5.0, b"g", b"m")),
        ),
        (["heartbeat", 1, "j", "w"], (q.HEARTBEAT, (b"j", b"w", None))),
        (["timeout", 1, "a", "b"], (q.TIMEOUT, ((b"a", b"b"),))),
        (["cancel", 1, "a", "b"], (q.CANCEL, ((b"a", b"b"),))),
        (["get", 1, "j"], (q.GET, (b"j",))),
        (["multiget", 1, "a", "b"], (q.MULTIGET, ((b"a", b"b"),))),
        (["priority", 1, "j", "1.5"], (q.PRIORITY, (b"j", 1.5))),
        (["depends", 1, "j", "on", "a"], (q.DEPENDS_ON, (b"j", (b"a",)))),
        (["depends", 1, "j", "off", "a"], (q.DEPENDS_OFF, (b"j", (b"a",)))),
        (["depends", 1, "j", "off", "all"], (q.DEPENDS_OFF, (b"j", None))),
        (["track", 1], (q.TRACKED, ())),
        (["track", 1, "TRACK", "j"], (q.TRACK, (b"j",))),
        (["track", 1, "untrack", "j"], (q.UNTRACK, (b"j",))),
        (["log", 1, "j", "m"], (q.LOG, (b"j", b"m", b""))),
        (["log", 1, "j", "m", '{"x":1}'], (q.LOG, (b"j", b"m", b'{"x":1}'))),
        (["log", 1, "j", "m", '["a"]'], (q.LOG, (b"j", b"m", b'{"1":"a"}'))),
        (["jobs", 1, "complete"], (q.JOBS, (q.COMPLETE_, b"", 0, 25))),
        (["jobs", 1, "stalled", "q", 5, 10], (q.JOBS, (q.STALLED, b"q", 5, 10))),
        (["failed", 1], (q.FAILED_GROUPS, ())),
        (["failed", 1, "g", 25, 25], (q.FAILED_JOBS, (b"g", 25, 25))),
        (["unfail", 1, "q", "g"], (q.UNFAIL, (b"q", b"g", 25))),
        (["queues", 1], (q.QUEUE_COUNTS, (None,))),
        (["queues", 1, "q"], (q.QUEUE_COUNTS, (b"q",))),
        (["length", 1, "q"], (q.LENGTH, (b"q",))),
        (["stats", 1, "q", 86400], (q.STATS, (b"q", 86400.0))),
        (["pause", 1, "a", "b"], (q.PAUSE, ((b"a", b"b"),))),
        (["unpause", 1, "a"], (q.UNPAUSE, ((b"a",),))),
        (["queue.forget", 1, "a"], (q.FORGET_QUEUES, ((b"a",),))),
        (["workers", 1], (q.WORKER_COUNTS, ())),
        (["workers", 1, "w"], (q.WORKER_JOBS, (b"w",))),
        (["worker.deregister", 1, "w"], (q.FORGET_WORKERS, ((b"w",),))),
        (["tag", 1, "add", "j", "a", "b"], (q.TAG_ADD, (b"j", (b"a", b"b")))),
        (["tag", 1, "remove", "j", "a"], (q.TAG_REMOVE, (b"j", (b"a",)))),
        (["tag", 1, "get", "t", 5, 6], (q.TAGGED, (b"t", 5, 6))),
        (["tag", 1, "top"], (q.TOP_TAGS, (0, 25))),
        (["config.get", 1], (q.CONFIG_ALL, ())),
        (["config.get", 1, "o"], (q.CONFIG_GET, (b"o",))),
        (["config.set", 1, "o", "v"], (q.CONFIG_SET, (b"o", b"v"))),
        (["config.unset", 1, "o"], (q.CONFIG_UNSET, (b"o",))),
        (["unrecur", 1, "r"], (q.UNRECUR, (b"r",))),
        (["recur.get", 1, "r"], (q.RECUR_GET, (b"r",))),
        (["recur.tag", 1, "r", "a"], (q.RECUR_TAG, (b"r", (b"a",)))),
        (["recur.untag", 1, "r", "a"], (q.RECUR_UNTAG, (b"r", (b"a",)))),
        (["throttle.set", 1, "t", 5], (q.THROTTLE_SET, (b"t", 5, 0))),
        (["throttle.set", 1, "t", 5, 60], (q.THROTTLE_SET, (b"t", 5, 60))),
        (["queue.throttle.set", 1, "q", 5], (q.THROTTLE_SET, (b"ql:q:q", 5, 0))),
        (["throttle.get", 1, "t"], (q.THROTTLE_GET, (b"t",))),
        (["queue.throttle.get", 1, "q"], (q.THROTTLE_GET, (b"ql:q:q",))),
        (["throttle.ttl", 1, "t"], (q.THROTTLE_GET, (b"t",))),
        (["throttle.delete", 1, "t"], (q.THROTTLE_DELETE, (b"t",))),
        (["throttle.locks", 1, "t"], (q.THROTTLE_LOCKS, (b"t",))),
        (["throttle.pending", 1, "t"], (q.THROTTLE_PENDING, (b"t",))),
        (["throttle.release", 1, "t", "a"], (q.THROTTLE_RELEASE, (b"t", (b"a",)))),
        (["jobs", 1, "throttled", "q"], (q.JOBS, (q.THROTTLED, b"q", 0, 25))),
    ],
)
def test_calls(args: list[object], expected: tuple[int, tuple[object, ...]]) -> None:
    found = call(THROTTLES_SCRIPT, *args)
    assert (found.code, found.args) == expected


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["jobs", 101, "waiting", "q"], b'Jobs(): Unknown type "waiting"'),
        (["jobs", 101, "throttled", "q"], b'Jobs(): Unknown type "throttled"'),
        (["jobs", 101], b'Jobs(): Arg "state" missing'),
        (["jobs", 101, "running"], b'Jobs(): Arg "queue" missing'),
        (["jobs", 101, "complete", "x"], b'Jobs(): Arg "offset" not a number: x'),
        (["track", 1, "follow", "j"], b'Track(): Unknown action "follow"'),
        (["track", 1, "track"], b'Track(): Arg "jid" missing'),
        (["tag", 1], b'Tag(): Arg "command" must be "add", "remove", "get" or "top"'),
        (["tag", 1, "x"], b'Tag(): First argument must be "add", "remove" or "get"'),
        (["tag", 1, "get", "t", "x"], b'Tag(): Arg "offset" not a number: x'),
        (["tag", 1, "add"], b'Tag(): Arg "jid" missing'),
        (["log", 1], b"Log(): Argument 'jid' missing"),
        (["log", 1, "j"], b"Log(): Argument 'message' missing"),
        (["log", 1, "j", "m", "false"], b"Log(): Argument 'data' not cjson: false"),
        (["log", 1, "j", "m", "5"], b"Log(): Argument 'data' not cjson: 5"),
        (["fail", 1, "j"], b'Fail(): Arg "worker" missing'),
        (["fail", 1, "j", "w"], b'Fail(): Arg "group" missing'),
        (["fail", 1, "j", "w", "g"], b'Fail(): Arg "message" missing'),
        (["heartbeat", 1, "j"], b'Heatbeat(): Arg "worker" missing'),
        (["retry", 1, "j", "q", "w", "x"], b'Retry(): Arg "delay" not a number: x'),
        (["depends", 1, "j"], b'Depends(): Arg "command" missing'),
        (["depends", 1, "j", "x"], b'Depends(): Argument "command" must be "on" or "off"'),
        (["priority", 1, "j"], b'Priority(): Arg "priority" missing or not a number: nil'),
        (["stats", 1, "q", "x"], b'Stats(): Arg "date" missing or not a number: x'),
        (["failed", 1, "g", "x"], b'Failed(): Arg "start" is not a number: x'),
        (["failed", 1, "g", 0, "x"], b'Failed(): Arg "limit" is not a number: x'),
        (["unfail", 1, "q"], b'Unfail(): Arg "group" missing'),
        (["unfail", 1, "q", "g", "x"], b'Unfail(): Arg "count" not a number: x'),
        (["config.set", 1], b'config.set(): Arg "option" missing'),
        (["config.set", 1, "o"], b'config.set(): Arg "value" missing'),
        (["config.unset", 1], b'config.unset(): Arg "option" missing'),
        (["get", 1], b"Job(): no jid provided"),
        (["recur.get", 1], b"Recurring(): no jid provided"),
        (["pause", 1], b"Wrong number of args calling Redis command from script"),
        (["worker.deregister", 1], b"Wrong number of args calling Redis command from script"),
        (["length", 1], b"Queue(): no queue name provided"),
    ],
)
def test_errors(args: list[object], text: bytes) -> None:
    assert refusal(CORE_SCRIPT, *args) == text


def test_errors_of_throttles() -> None:
    assert refusal(THROTTLES_SCRIPT, "throttle.get", 1) == b"Throttle(): no tid provided"
    text = b"attempt to concatenate local 'queue' (a nil value)"
    assert refusal(THROTTLES_SCRIPT, "queue.throttle.get", 1) == text
    text = b"Lua redis lib command arguments must be strings or integers"
    assert refusal(THROTTLES_SCRIPT, "throttle.set", 1, "t") == text
    text = b'Throttle(): Arg "maximum" not a number: x'
    assert refusal(THROTTLES_SCRIPT, "throttle.set", 1, "t", "x") == text


# --- templates -----------------------------------------------------------------------------------

RECUR = ["recur", 192, "q", "r1", "K", "{}", "interval", 60, 5]


def test_recur() -> None:
    found = call(CORE_SCRIPT, *RECUR, "tags", '["x"]', "backlog", 2, "retries", 3, "priority", 4)
    expected = (b"q", b"r1", b"K", b"{}", 60.0, 5.0, 4.0, (b"x",), 3, 2.0, None)
    assert (found.code, found.args, found.answer) == (q.RECUR, expected, forms.BULK)
    found = call(THROTTLES_SCRIPT, *RECUR, "throttles", '["t"]')
    assert found.args[6:] == (0.0, (), 0, 0.0, (b"t",))
    found = call(DOTTED_SCRIPT, "queue.recurAtInterval", 1, "q", "r1", "K", "{}", 60, 5)
    assert found.args == (b"q", b"r1", b"K", b"{}", 60.0, 5.0, 0.0, (), 0, 0.0, ())
    found = call(
        seed_script("Recur"), "on", "q", "r1", "K", "{ }", 112, "interval", 60, 0, "tags", '["x"]'
    )
    assert found.now == 112.0
    assert found.args == (b"q", b"r1", b"K", b"{}", 60.0, 0.0, 0.0, (b"x",), 0, 0.0, None)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([*RECUR[:6], "cron", 60, 0], b'Recur(): schedule type "cron" unknown'),
        (RECUR[:6], b'RecurringJob On(): Arg "spec" missing'),
        (RECUR[:3], b'RecurringJob On(): Arg "jid" missing'),
        ([*RECUR[:7], "x"], b'Recur(): Arg "interval" not a number: x'),
        ([*RECUR[:8], "x"], b'Recur(): Arg "offset" not a number: x'),
        ([*RECUR, "odd"], b"Odd number of additional args: table: 0x000000000000"),
        ([*RECUR, "tags", "false"], b'Recur(): Arg "tags" must be JSON string array: false'),
        ([*RECUR, "priority", "x"], b'Recur(): Arg "priority" not a number: x'),
        ([*RECUR, "backlog", "x"], b'Recur(): Arg "backlog" not a number: x'),
        (["recur.update", 1, "r", "priority", "x"], b'Recur(): Arg "priority" must be a number: x'),
        (["recur.update", 1, "r", "color", "x"], b'Recur(): Unrecognized option "color"'),
        (["recur.update", 1, "r", "klass"], b"No value provided for klass"),
        (
            ["recur.update", 1, "r", "interval", 0],
            b'Recur(): Arg "interval" must be greater than 0',
        ),
        (["recur.update", 1, "r", "throttles", "[]"], b'Recur(): Unrecognized option "throttles"'),
    ],
)
def test_errors_of_recur(args: list[object], text: bytes) -> None:
    assert refusal(CORE_SCRIPT, *args) == text


def test_an_interval_must_last() -> None:
    args = [*RECUR[:7], 0, 0]
    text = b'Recur(): Arg "interval" must be greater than 0'
    assert refusal(THROTTLES_SCRIPT, *args) == text
    text = b'Recur(): Arg "interval" must be greater than or equal to 0'
    assert refusal(UNIFIED_SCRIPT, *args) == text


def test_recur_update() -> None:
    pairs = ["priority", "1.5", "interval", 30, "retries", 4, "backlog", 2, "data", "{ }"]
    found = call(
        THROTTLES_SCRIPT,
        *("recur.update", 1, "r", *pairs, "klass", "K2", "queue", "q2", "throttles", '["t"]'),
    )
    assert found.args == (
        b"r",
        (
            *((b"priority", 1.5), (b"interval", 30.0), (b"retries", 4), (b"backlog", 2.0)),
            *((b"data", b"{ }"), (b"klass", b"K2"), (b"queue", b"q2"), (b"throttles", (b"t",))),
        ),
    )
