"""Conversion of qless's hashes and lists in a Redis; `make test-qless` uses a real one."""

from typing import Any

import pytest

from beanpole import qless as q
from beanpole.client import qless_layout as layout
from beanpole.client.qless_import import in_order
from beanpole.core.qless.calls import CALLS

NOW = 1000.0
FIELDS = {
    b"jid": b"j",
    b"klass": b"K",
    b"state": b"waiting",
    b"queue": b"q",
    b"priority": b"2.5",
    b"retries": b"5",
    b"remaining": b"3",
    b"data": b'{"a":1}',
    b"tags": b'["red",7]',
    b"time": b"900.25",
    b"failure": b"{}",
}
NAMES = (
    *("queue", "jid", "klass", "data", "state", "priority", "retries", "remaining", "score"),
    *("time", "due", "tags", "history", "failure", "depends", "throttles", "spawned_from"),
)


def job(*scores: float | None, history: Any = (), **more: bytes) -> dict[str, Any]:
    """Return the arguments of a job's import by name; a node accepts them."""
    fields = {**FIELDS, **{name.encode(): text for name, text in more.items()}}
    beside = layout.Beside(scores, history, [b"d"], [5.5, None])
    found = layout.job(b"j", fields, beside, NOW)
    assert isinstance(found, layout.Job), found
    assert CALLS[q.IMPORT_JOB].shape.refusal(found.arguments) is None, found
    return dict(zip(NAMES, found.arguments, strict=True))


def test_a_job_that_waits() -> None:
    found = job(2.4)
    assert found == {
        "queue": b"q",
        "jid": b"j",
        "klass": b"K",
        "data": b'{"a":1}',
        "state": q.WAITING,
        "priority": 2.5,
        "retries": 5,
        "remaining": 3,
        "score": 2.4,
        "time": 900.25,
        "due": None,
        "tags": ((b"red", 5.5), (b"7", 900.25)),
        "history": (),
        "failure": None,
        "depends": (b"d",),
        "throttles": (),
        "spawned_from": b"",
    }


@pytest.mark.parametrize(
    ("state", "scores", "expected"),
    [
        (b"waiting", [None], (q.WAITING, 2.5 - 900.25 / 1e10)),
        (b"waiting", [float("inf")], (q.STALLED, 0.0)),
        (b"stalled", [float("inf")], (q.STALLED, 0.0)),
        (b"running", [], (q.STALLED, 0.0)),
        (b"throttled", [2.0, None], (q.WAITING, 2.0)),
        (b"throttled", [None, 950.0], (q.WAITING, 2.5 - 950.0 / 1e10)),
        (b"throttled", [None, None], (q.WAITING, 2.5 - 900.25 / 1e10)),
        (b"scheduled", [1234.5], (q.SCHEDULED, 1234.5)),
        (b"scheduled", [None], (q.SCHEDULED, NOW)),
        (b"depends", [900.0], (q.DEPENDS, 900.0)),
    ],
)
def test_states_and_places(
    state: bytes, scores: list[float | None], expected: tuple[int, float]
) -> None:
    found = job(*scores, state=state)
    assert (found["state"], found["score"]) == expected


def test_a_job_that_ran_has_lost_its_lock() -> None:
    found = job(state=b"running", history=[b'[900,"popped",{"worker":"w"}]'])
    assert found["history"] == ((900.0, q.HAS_POPPED, b"w", b""), (NOW, q.HAS_TIMED_OUT, b"", b""))


def test_a_job_that_has_failed() -> None:
    text = b'{"group":"g","message":"why","when":950,"worker":["a table"]}'
    assert job(state=b"failed", failure=text)["failure"] == (b"g", b"why", 950.0, b"")


def test_a_complete_job_has_the_queue_of_its_last_put() -> None:
    history = [b'[1,"put",{"q":"first"}]', b'[2,"put",{"queue":"last"}]', b'[3,"done"]']
    found = job(40.0, state=b"complete", queue=b"", history=history)
    assert (found["queue"], found["score"]) == (b"last", 40.0)


def test_histories_of_both_forms_follow_each_other() -> None:
    stages = b'[{"q":"a","put":1.5,"popped":2,"worker":"w","failed":3},{"q":"b","put":4,"done":5}]'
    items = [b'[6,"failed",{"group":"g","worker":"w"}]', b'[7,"said",{"x":[1]}]', b"no JSON", b"{}"]
    fields = {**FIELDS, b"history": stages}
    made = layout.job(b"j", fields, layout.Beside([1.0], items, [], [None, None]), NOW)
    assert isinstance(made, layout.Job)
    assert made.arguments[NAMES.index("history")] == (
        (1.0, q.HAS_PUT, b"a", b""),
        (2.0, q.HAS_POPPED, b"w", b""),
        (3.0, q.HAS_FAILED, b"", b""),
        (4.0, q.HAS_PUT, b"b", b""),
        (5.0, q.HAS_DONE, b"", b""),
        (6.0, q.HAS_FAILED, b"g", b"w"),
        (7.0, q.HAS_LOGGED, b"said", b'{"x":[1]}'),
    )


def test_histories_that_are_too_long_lose_their_middle() -> None:
    items = [b'[%d,"said"]' % number for number in range(q.HISTORY_MAX + 50)]
    found = job(1.0, history=items)["history"]
    assert len(found) == q.HISTORY_MAX
    assert (found[0][0], found[1][0], found[-1][0]) == (0.0, 51.0, q.HISTORY_MAX + 49.0)
    large = [b'[%d,"%b"]' % (number, b"x" * 400_000) for number in range(4)]
    assert [item[0] for item in job(1.0, history=large)["history"]] == [0.0, 3.0]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"state": b"pondering"}, "its state 'pondering' is not known"),
        ({"state": b"failed"}, "it has failed, and does not say how"),
        ({"retries": b"many"}, "its retries, remaining or priority is no number"),
        ({"priority": b"nan"}, "its retries, remaining or priority is no number"),
    ],
)
def test_what_is_no_job_says_why(more: dict[str, bytes], why: str) -> None:
    fields = {**FIELDS, **{name.encode(): text for name, text in more.items()}}
    assert layout.job(b"j", fields, layout.Beside([1.0], [], [], [None, None]), NOW) == why


INFINITE = [
    (b"scheduled", [float("inf")], "scheduled is inf"),
    (b"scheduled", [float("-inf")], "scheduled is -inf"),
    (b"waiting", [float("-inf")], "waiting is -inf"),
    (b"complete", [float("inf")], "complete is inf"),
    (b"depends", [float("inf")], "depends is inf"),
    (b"throttled", [None, float("inf")], "throttled is inf"),
]


@pytest.mark.parametrize(("state", "scores", "why"), INFINITE)
def test_a_score_that_is_not_finite_is_refused_by_name(
    state: bytes, scores: list[float | None], why: str
) -> None:
    """A scheduled job that is never due had run at the next pop."""
    fields = {**FIELDS, b"state": state}
    found = layout.job(b"j", fields, layout.Beside(scores, [], [], [None, None]), NOW)
    assert found == f"its score among the {why}: numbers are finite"


@pytest.mark.parametrize(
    ("more", "history", "lacks"),
    [
        ({}, [b'[1,"put",{"q":"a"}]'], ()),
        ({"tags": b"{}", "throttles": b"", "history": b"[]"}, [], ()),
        ({"tags": b"[1"}, [], ("its tags",)),
        ({"tags": b'["a",null]'}, [], ("its tags",)),
        ({"throttles": b'"a"'}, [b"", b"7"], ("its throttles", "2 items of its history")),
        ({"history": b"[7]"}, [], ("an item of its history",)),
        ({"history": b"no JSON"}, [b'[1,"put"]'], ("an item of its history",)),
    ],
)
def test_parts_that_cannot_be_read_are_named(
    more: dict[str, bytes], history: list[bytes], lacks: tuple[str, ...]
) -> None:
    fields = {**FIELDS, **{name.encode(): text for name, text in more.items()}}
    times: list[float | None] = [None for _ in layout.names_in(fields[b"tags"])]
    found = layout.job(b"j", fields, layout.Beside([1.0], history, [], times), NOW)
    assert isinstance(found, layout.Job)
    assert found.lacks == lacks


def test_templates() -> None:
    fields = {
        b"queue": b"q",
        b"klass": b"K",
        b"data": b"{}",
        b"interval": b"60",
        b"count": b"7",
        b"priority": b"1",
        b"tags": b"{}",
        b"retries": b"2",
        b"throttles": b'["t"]',
    }
    found = layout.recurring(b"r", fields, 99.5)
    expected = (b"q", b"r", b"K", b"{}", 60.0, 99.5, 1.0, (), 2, 0.0, (b"t",), 7)
    assert found == layout.Template(expected, ())
    assert CALLS[q.IMPORT_RECURRING].shape.refusal(expected) is None
    assert layout.recurring(b"r", fields, None) == "it is in no queue"
    never = layout.recurring(b"r", fields, float("inf"))
    assert never == "its next time is inf: numbers are finite"
    broken = layout.recurring(b"r", {**fields, b"tags": b"[", b"throttles": b"7"}, 99.5)
    assert isinstance(broken, layout.Template)
    assert broken.lacks == ("its tags", "its throttles")
    del fields[b"interval"]
    assert layout.recurring(b"r", fields, 99.5) == "its interval is no number"


def test_jobs_come_behind_those_that_they_wait_for() -> None:
    waits = {
        b"c": [b"b", b"a"],
        b"b": [b"a", b"elsewhere"],
        b"a": [],
        b"x": [b"y"],
        b"y": [b"x"],
        b"z": [b"y"],
        b"self": [b"self"],
    }
    order, circles = in_order(waits)
    assert order == [b"a", b"b", b"c"]
    assert sorted(circles) == [b"self", b"x", b"y", b"z"]


def test_a_long_row_of_dependencies_is_no_deep_one() -> None:
    waits = {b"%d" % number: [b"%d" % (number - 1)] for number in range(50_000, 0, -1)}
    order, circles = in_order(waits)
    assert (len(order), order[0], circles) == (50_000, b"1", [])
