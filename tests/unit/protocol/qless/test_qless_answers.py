"""Results become JSON, values and error texts of each dialect; expectations are Redis's."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beanpole.qless as q
from beanpole.protocol.qless import cjson, views
from beanpole.protocol.qless.answers import answer, message
from beanpole.protocol.qless.recognition import Script
from beanpole.protocol.qless.requests import Call
from tests.unit.protocol.qless.scripts import (
    CORE_SCRIPT,
    DOTTED_SCRIPT,
    THROTTLES_SCRIPT,
    UNIFIED_SCRIPT,
    call,
    seed_script,
)

HISTORY = (
    (100.0, q.HAS_PUT, b"q", b""),
    (102.0, q.HAS_POPPED, b"w1", b""),
    (103.0, q.HAS_LOGGED, b"msg", b'{"x":1,"when":7}'),
    (104.0, q.HAS_DONE, b"", b""),
    (104.0, q.HAS_PUT, b"q2", b""),
    (104.0, q.HAS_THROTTLED, b"q2", b""),
    (105.0, q.HAS_POPPED, b"w1", b""),
    (106.0, q.HAS_TIMED_OUT, b"", b""),
    (108.0, q.HAS_FAILED, b"grp", b"w1"),
)
JOB = q.JobView(
    jid=b"j1",
    klass=b"K",
    data=b'{"a": [], "u": "a/b"}',
    state=q.RUNNING,
    queue=b"q",
    worker=b"w1",
    tracked=True,
    priority=-1.0,
    expires=163.7,
    retries=3,
    remaining=2,
    tags=(b"t1", b"t2"),
    history=HISTORY,
    failure=q.FailureView(b"grp", b"msg", 108.0, b"w1"),
    throttles=(b"ql:q:q",),
    spawned_from=b"",
    dependents=(b"j3",),
    dependencies=(),
)
BARE = JOB._replace(tags=(), history=HISTORY[:1], failure=None, dependents=(), tracked=False)


def said(script: Script, *args: object, gives: Any, keys: list[bytes] | None = None) -> Any:
    """Return the reply to a call with this result."""
    return answer(script, call(script, *args, keys=keys), (q.OK, gives))


def shown(script: Script, *args: object, gives: Any, keys: list[bytes] | None = None) -> Any:
    """Return the parsed JSON of such a reply."""
    text = said(script, *args, gives=gives, keys=keys)
    assert isinstance(text, bytes)
    return json.loads(text)


COMMON = {
    "jid": "j1",
    "klass": "K",
    "state": "running",
    "queue": "q",
    "worker": "w1",
    "tracked": True,
    "priority": -1,
    "expires": 163.7,
    "retries": 3,
    "remaining": 2,
    "tags": ["t1", "t2"],
    "dependents": ["j3"],
    "dependencies": {},
    "failure": {"group": "grp", "message": "msg", "when": 108, "worker": "w1"},
}
EVENTS = [
    {"when": 100, "what": "put", "q": "q"},
    {"when": 102, "what": "popped", "worker": "w1"},
    {"when": 103, "what": "msg", "x": 1},
    {"when": 104, "what": "done"},
    {"when": 104, "what": "put", "q": "q2"},
    {"when": 104, "what": "throttled", "queue": "q2"},
    {"when": 105, "what": "popped", "worker": "w1"},
    {"when": 106, "what": "timed-out"},
    {"when": 108, "what": "failed", "group": "grp", "worker": "w1"},
]
DATA = '{"a": [], "u": "a/b"}'


def test_a_job_in_each_dialect() -> None:
    unified = {**COMMON, "data": DATA, "history": EVENTS}
    assert shown(UNIFIED_SCRIPT, "get", 1, "j1", gives=JOB) == unified
    core = {**unified, "spawned_from_jid": False}
    assert shown(CORE_SCRIPT, "get", 1, "j1", gives=JOB) == core
    throttles = {**core, "throttles": ["ql:q:q"]}
    assert shown(THROTTLES_SCRIPT, "get", 1, "j1", gives=JOB) == throttles
    spawned = JOB._replace(spawned_from=b"r1")
    found = shown(THROTTLES_SCRIPT, "get", 1, "j1", gives=spawned)
    assert found == {**throttles, "spawned_from_jid": "r1"}
    dotted = shown(DOTTED_SCRIPT, "job.get", 1, "j1", gives=JOB)
    assert dotted["history"][0] == {"when": 100, "what": "put", "queue": "q"}
    seed = {
        **COMMON,
        "data": {"a": {}, "u": "a/b"},
        "history": [
            {"q": "q", "put": 100, "popped": 102, "worker": "w1", "done": 104, "failed": 108},
            {"q": "q2", "put": 104, "popped": 105, "worker": "w1", "failed": 108},
        ],
    }
    assert shown(seed_script("Get"), "j1", gives=JOB) == seed


def test_nothing_is_an_empty_object() -> None:
    found = shown(CORE_SCRIPT, "get", 1, "j1", gives=BARE)
    for key in ("tags", "failure", "dependents", "dependencies"):
        assert found[key] == {}
    assert said(CORE_SCRIPT, "get", 1, "j1", gives=None) is None
    assert said(seed_script("Get"), "j1", gives=None) is None


def test_quirks_of_the_json() -> None:
    text = said(CORE_SCRIPT, "get", 1, "j1", gives=JOB)
    assert b'"u\\": \\"a\\/b\\"' in text
    assert b'"expires":163.7,' in text
    assert b'"priority":-1,' in text


@pytest.mark.constants
def test_entries_of_a_log_are_shown_without_being_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pop of 15 jobs with such an entry of 1 MiB took its node 8 s."""

    def unexpected(text: bytes) -> Any:
        raise AssertionError(text[:20])

    data = {"x": ["", {}, '/\\"\x01'], "when": 1, "what": "put", "\xff": None}
    found = call(THROTTLES_SCRIPT, "log", 1, "j1", "msg", json.dumps(data))
    assert isinstance(found, Call)
    assert found.args[2] == b'{"x":["",{},"\\/\\\\\\"\\u0001"],"\xc3\xbf":null}'
    items = ((103.5, q.HAS_LOGGED, *found.args[1:]), (104.0, q.HAS_LOGGED, b"bare", b""))
    assert views.are_logged((*items, *HISTORY[:2]))
    monkeypatch.setattr(cjson, "decode", unexpected)
    shown_items = shown(THROTTLES_SCRIPT, "get", 1, "j1", gives=JOB._replace(history=items))
    assert shown_items["history"] == [
        {"x": ["", {}, '/\\"\x01'], "\xff": None, "when": 103.5, "what": "msg"},
        {"when": 104, "what": "bare"},
    ]


@pytest.mark.parametrize("data", [b"{}", b"[1]", b"{", b'{"a": 1}', b'{"a":[]}', b'{"what":1}'])
def test_a_foreign_entry_of_a_log_must_be_as_this_one_stores_it(data: bytes) -> None:
    assert not views.are_logged(((1.0, q.HAS_LOGGED, b"m", data),))
    assert views.are_logged(((1.0, q.HAS_FAILED, b"group", data),))


def plain_stages(history: tuple[q.HistoryItem, ...]) -> list[dict[str, Any]]:
    """Return what qless's script returns, in its way: each failure looks at all stages."""
    stages: list[dict[str, Any]] = []
    for when, what, first, second in history:
        if what == q.HAS_PUT or not stages:
            stages.append({})
        stage = stages[-1]
        if what == q.HAS_PUT:
            stage.update(q=first, put=when)
        elif what == q.HAS_POPPED:
            stage.update(popped=when, worker=first)
        elif what == q.HAS_FAILED:
            for one in stages if second else [stage]:
                if not second or one.get("worker") == second:
                    one["failed"] = when
    return stages


KINDS = ((q.HAS_PUT, b"q", b""), (q.HAS_POPPED, b"w", b""), (q.HAS_POPPED, b"v", b""))
FAILURES = ((q.HAS_FAILED, b"g", b"w"), (q.HAS_FAILED, b"g", b"v"), (q.HAS_FAILED, b"g", b""))


@given(st.lists(st.sampled_from((*KINDS, *FAILURES)), max_size=12))
def test_stages_are_those_of_the_script(items: list[tuple[int, bytes, bytes]]) -> None:
    history = tuple((float(when), *item) for when, item in enumerate(items))
    assert views._stages(history) == plain_stages(history)


def test_the_stages_of_a_long_history_take_steps_in_proportion_to_it() -> None:
    """A history of 999 items took a node 23 ms, an answer of 332 such jobs 7 s."""

    def steps(count: int) -> int:
        found = 0

        def note(_frame: object, event: str, _argument: object) -> None:
            nonlocal found
            found += event in ("call", "c_call")

        item = (KINDS[0], KINDS[1], FAILURES[0])
        history = tuple((1.0, *item[number % 3]) for number in range(count))
        sys.setprofile(note)
        try:
            views._stages(history)
        finally:
            sys.setprofile(None)
        return found

    assert steps(999) < 4 * 999


def test_failures_of_the_seed_form_belong_to_the_worker_or_to_the_last_stage() -> None:
    other = JOB._replace(history=(*HISTORY[:4], HISTORY[4], (109.0, q.HAS_FAILED, b"g", b"")))
    found = shown(seed_script("Get"), "j1", gives=other)["history"]
    assert "failed" not in found[0]
    assert found[1] == {"q": "q2", "put": 104, "failed": 109}
    other = JOB._replace(history=(*HISTORY[:2], (109.0, q.HAS_FAILED, b"g", b"stranger")))
    found = shown(seed_script("Get"), "j1", gives=other)["history"]
    assert found == [{"q": "q", "put": 100, "popped": 102, "worker": "w1"}]


def test_pops() -> None:
    assert len(shown(CORE_SCRIPT, "pop", 1, "q", "w", 2, gives=(JOB, JOB))) == 2
    assert said(CORE_SCRIPT, "pop", 1, "q", "w", 2, gives=()) == b"{}"
    assert said(DOTTED_SCRIPT, "queue.pop", 1, "q", "w", 2, gives=()) == b"[]"
    assert said(CORE_SCRIPT, "multiget", 1, "a", gives=()) == b"{}"
    pop = seed_script("Pop")
    found = said(pop, "w", 2, 1, keys=[b"q"], gives=(JOB, BARE))
    assert [json.loads(one)["jid"] for one in found] == ["j1", "j1"]
    assert said(pop, "w", 2, 1, keys=[b"q"], gives=()) == []


@pytest.mark.parametrize(
    ("args", "gives", "expected"),
    [
        (["put", 1, "w", "q", "j1", "K", "{}", 0], b"j1", b"j1"),
        (["complete", 1, "j", "w", "q", "{}"], q.COMPLETE_, b"complete"),
        (["complete", 1, "j", "w", "q", "{}", "next", "q"], q.DEPENDS, b"depends"),
        (["fail", 1, "j", "w", "g", "m"], b"j", b"j"),
        (["retry", 1, "j", "q", "w"], -1, -1),
        (["retry", 1, "j", "q", "w"], -(2**53) - 1, -(2**53) - 1),
        (["heartbeat", 1, "j", "w"], 163.7, 163),
        (["timeout", 1, "j"], None, None),
        (["cancel", 1, "j", "nope"], None, [b"j", b"nope"]),
        (["cancel", 1], None, []),
        (["priority", 1, "j", "5.5"], 5.5, 5),
        (["depends", 1, "j", "on", "a"], True, 1),
        (["track", 1, "track", "j"], True, b"1"),
        (["track", 1, "untrack", "j"], False, b"0"),
        (["log", 1, "j", "m"], None, None),
        (["jobs", 1, "running", "q"], (b"a", b"b"), [b"a", b"b"]),
        (["jobs", 1, "complete"], (), []),
        (["length", 1, "q"], 2, 2),
        (["unfail", 1, "q", "g"], 1, 1),
        (["pause", 1, "q"], None, None),
        (["tag", 1, "add", "j", "t"], (b"t1", b"t"), b'["t1","t"]'),
        (["tag", 1, "remove", "j", "t"], (), b"{}"),
        (["tag", 1, "top"], (), b"{}"),
        (["tag", 1, "get", "t"], (0, ()), b'{"total":0,"jobs":{}}'),
        (["failed", 1], (), b"{}"),
        (["failed", 1], ((b"grp", 1),), b'{"grp":1}'),
        (["failed", 1, "g"], (1, (b"j3",)), b'{"total":1,"jobs":["j3"]}'),
        (["workers", 1, "w"], ((b"j4", b"j2"), ()), b'{"jobs":["j4","j2"],"stalled":{}}'),
        (
            ["workers", 1],
            (q.WorkerView(b"w3", 2, 0), q.WorkerView(b'a/"\xff', 0, 1)),
            b'[{"name":"w3","jobs":2,"stalled":0},{"name":"a\\/\\"\xff","jobs":0,"stalled":1}]',
        ),
        (["config.get", 1, "heartbeat"], None, 60),
        (["config.get", 1, "heartbeat"], b"10", b"10"),
        (["config.get", 1, "application"], None, b"qless"),
        (["config.get", 1, "bogus"], None, None),
        (["config.set", 1, "o", "v"], None, None),
        (["recur", 1, "q", "r", "K", "{}", "interval", 1, 0], b"r", b"r"),
        (["unrecur", 1, "r"], True, 1),
        (["recur.update", 1, "r"], True, 1),
        (["recur.tag", 1, "r", "y"], (b"x", b"y"), b'["x","y"]'),
        (["recur.get", 1, "r"], None, None),
        (["throttle.get", 1, "t"], (5, -1), b'{"id":"t","maximum":5}'),
        (["queue.throttle.get", 1, "q"], (0, -2), b'{"id":"ql:q:q","maximum":0}'),
        (["throttle.ttl", 1, "t"], (5, -2), -2),
        (["throttle.locks", 1, "t"], (b"j",), [b"j"]),
        (["throttle.set", 1, "t", 5], None, None),
    ],
)
def test_answers(args: list[object], gives: Any, expected: Any) -> None:
    found = said(THROTTLES_SCRIPT, *args, gives=gives)
    assert found == expected
    assert type(found) is type(expected)


def test_tags_are_encoded_twice_in_one_dialect() -> None:
    assert said(UNIFIED_SCRIPT, "tag", 1, "add", "j", "t", gives=(b"t",)) == b'"[\\"t\\"]"'
    assert said(UNIFIED_SCRIPT, "tag", 1, "remove", "j", "t", gives=(b"u",)) == b'["u"]'


def test_queues() -> None:
    view = q.QueueView(b"q", 1, 2, 3, 4, 5, 6, 7, True)
    counts = {"name": "q", "waiting": 1, "running": 2, "stalled": 3, "scheduled": 4, "depends": 5}
    seed = {**counts, "recurring": 6}
    assert shown(seed_script("Queues"), 1, "q", gives=(view,)) == seed
    core = {**seed, "paused": True}
    assert shown(CORE_SCRIPT, "queues", 1, "q", gives=(view,)) == core
    assert shown(THROTTLES_SCRIPT, "queues", 1, gives=(view,)) == [{**core, "throttled": 7}]
    assert said(CORE_SCRIPT, "queues", 1, gives=()) == b"{}"
    assert said(DOTTED_SCRIPT, "queues.counts", 1, gives=()) == b"[]"


def test_tracked_jobs() -> None:
    assert said(CORE_SCRIPT, "track", 1, gives=((), ())) == b'{"jobs":{},"expired":{}}'
    found = shown(CORE_SCRIPT, "track", 1, gives=((JOB,), (b"gone",)))
    assert found["jobs"][0]["jid"] == "j1"
    assert found["expired"] == ["gone"]
    assert said(seed_script("Track"), "track", "j", 1, gives=True) == 1


def test_failed_jobs_of_the_seed_form_are_whole() -> None:
    found = shown(seed_script("Failed"), "g", gives=(1, (JOB,)))
    assert found["total"] == 1
    assert found["jobs"][0]["data"] == {"a": {}, "u": "a/b"}


def test_configuration() -> None:
    found = shown(CORE_SCRIPT, "config.get", 1, gives=((b"grace-period", b"5"), (b"own", b"x")))
    assert found == {
        "application": "qless",
        "grace-period": "5",
        "stats-history": 30,
        "own": "x",
        "jobs-history": 604800,
        "heartbeat": 60,
        "jobs-history-count": 50000,
        "histogram-history": 7,
    }
    assert "grace-period" not in shown(seed_script("Config"), "get", gives=())


def test_statistics() -> None:
    wait = q.TimesView(3, 2.5, 25.0, (1, 2) + (0,) * 146)
    run = q.TimesView(1, 2.0, 0.0, (0,) * 148)
    found = shown(CORE_SCRIPT, "stats", 1, "q", 1, gives=q.StatsView(1, 2, 3, wait, run))
    assert (found["retries"], found["failed"], found["failures"]) == (1, 2, 3)
    assert found["wait"]["std"] == 3.5355339059327
    assert found["wait"]["mean"] == 2.5
    assert found["wait"]["histogram"][:3] == [1, 2, 0]
    assert found["run"] == {"count": 1, "mean": 2, "std": 0, "histogram": [0] * 148}


def test_a_template_in_each_dialect() -> None:
    view = q.RecurringView(
        *(b"r1", b"K", b"{ }", b"q", 0.0, 60.0, 0, 5, (b"x",), 2.0, (b"ql:q:q",))
    )
    seed = {
        "jid": "r1",
        "klass": "K",
        "state": "recur",
        "queue": "q",
        "priority": 0,
        "interval": 60,
        "retries": 0,
        "count": 5,
        "data": {},
        "tags": ["x"],
    }
    assert shown(seed_script("Recur"), "get", "r1", gives=view) == seed
    core = {**seed, "data": "{ }", "backlog": 2}
    assert shown(CORE_SCRIPT, "recur.get", 1, "r1", gives=view) == core
    throttles = {**core, "throttles": ["ql:q:q"]}
    assert shown(THROTTLES_SCRIPT, "recur.get", 1, "r1", gives=view) == throttles


def test_throttles_and_patterns_of_names_with_dots() -> None:
    found = shown(DOTTED_SCRIPT, "throttle.get", 1, "t", gives=(5, 60))
    assert found == {"id": "t", "maximum": 5, "ttl": 60}
    args = ("queueIdentifierPatterns.getAll", 1)
    assert shown(DOTTED_SCRIPT, *args, gives=()) == {"default": '["*"]'}
    found = shown(DOTTED_SCRIPT, *args, gives=((b"default", b'["a"]'), (b"b", b'["c"]')))
    assert found == {"default": '["a"]', "b": '["c"]'}
    args = ("queuePriorityPatterns.getAll", 1)
    assert said(DOTTED_SCRIPT, *args, gives=()) == b"[]"
    assert shown(DOTTED_SCRIPT, *args, gives=((b"0", b"{}"),)) == ["{}"]


def test_messages() -> None:
    assert message(b"j1") == b"j1"
    pairs = ((b"jid", b"nope"), (b"queue", None), (b"event", b"canceled"), (b"worker", b""))
    assert message(pairs) == b'{"jid":"nope","queue":false,"event":"canceled","worker":""}'
