"""Arguments of the seed form and of dotted names, limits of all forms, and any arguments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beanpole.qless as q
from beanpole.protocol.qless import calls
from beanpole.protocol.qless.recognition import Script
from tests.unit.protocol.qless.scripts import (
    CORE_SCRIPT,
    DOTTED_SCRIPT,
    SEED_PLACES,
    THROTTLES_SCRIPT,
    UNIFIED_SCRIPT,
    Words,
    call,
    refusal,
    seed_script,
)

# --- the other forms -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "code", "expected", "now"),
    [
        ("Heartbeat", ["j", "w", 103], q.HEARTBEAT, (b"j", b"w", None), 103.0),
        ("Fail", ["j", "w", "g", "m", 108], q.FAIL, (b"j", b"w", b"g", b"m", None), 108.0),
        ("Retry", ["j", "q", "w", 111], q.RETRY, (b"j", b"q", b"w", 0.0, None, None), 111.0),
        ("Jobs", ["depends", 101, "q"], q.JOBS, (q.DEPENDS, b"q", 0, 25), 101.0),
        ("Jobs", ["complete", 5], q.JOBS, (q.COMPLETE_, b"", 5, 25), 0.0),
        ("Unfail", [109, "g", "q", 10], q.UNFAIL, (b"q", b"g", 10), 109.0),
        ("Queues", [101, "q"], q.QUEUE_COUNTS, (b"q",), 101.0),
        ("Workers", [112], q.WORKER_COUNTS, (), 112.0),
        ("Workers", [112, "w"], q.WORKER_JOBS, (b"w",), 112.0),
        ("Stats", ["q", 112], q.STATS, (b"q", 112.0), 0.0),
        ("Tag", ["add", "j", 103, "t"], q.TAG_ADD, (b"j", (b"t",)), 103.0),
        ("Tag", ["get", "t"], q.TAGGED, (b"t", 0, 25), 0.0),
        ("Track", ["track", "j", 103], q.TRACK, (b"j",), 103.0),
        ("Track", [], q.TRACKED, (), 0.0),
        ("Cancel", ["j", "ignored"], q.CANCEL, ((b"j",),), 0.0),
        ("Priority", ["j", 5], q.PRIORITY, (b"j", 5.0), 0.0),
        ("Depends", ["j", "on", "a"], q.DEPENDS_ON, (b"j", (b"a",)), 0.0),
        ("Config", ["set", "o", "v"], q.CONFIG_SET, (b"o", b"v"), 0.0),
        ("Config", ["get"], q.CONFIG_ALL, (), 0.0),
        ("Failed", ["g"], q.FAILED_JOBS, (b"g", 0, 25), 0.0),
        ("Recur", ["get", "r"], q.RECUR_GET, (b"r",), 0.0),
        ("Recur", ["off", "r"], q.UNRECUR, (b"r",), 0.0),
        ("Recur", ["tag", "r", "y"], q.RECUR_TAG, (b"r", (b"y",)), 0.0),
        ("Recur", ["update", "r", "data", "[]"], q.RECUR_UPDATE, (b"r", ((b"data", b"{}"),)), 0.0),
    ],
)
def test_the_seed_form(
    name: str, args: list[object], code: int, expected: tuple[object, ...], now: float
) -> None:
    found = call(seed_script(name), *args)
    assert (found.code, found.args, found.now) == (code, expected, now)


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("Put", ["j5", "K", "{}", 100, 0], b"Put(): Expected 1 KEYS argument"),
        ("Jobs", ["bogus", 1, "q"], b'Jobs(): Unknown type "bogus"'),
        ("Config", ["bogus"], b"Config(): Unrecognized command bogus"),
        ("Config", [], b"attempt to concatenate local 'command' (a nil value)"),
        ("Cancel", [], b'Cancel(): Arg "jid" missing.'),
        ("Depends", ["j"], b"Depends(): Arg 2 missing"),
        ("Heartbeat", ["j", "w", "x"], b'Heartbeat(): Arg "now" missing'),
        ("Fail", ["j", "w", "g", "m", "x"], b'Fail(): Arg "now" missing or malformed: x'),
        ("Recur", ["x"], b"Recur(): First argument must be one of [on, off, get, update, tag, "),
        ("Recur", ["get"], b'Recur(): Arg "jid" missing'),
        ("Tag", [], b'Tag(): Missing first arg "add", "remove" or "get"'),
        ("Workers", ["x"], b'Workers(): Arg "now" missing or not a number: x'),
    ],
)
def test_errors_of_the_seed_form(name: str, args: list[object], text: bytes) -> None:
    assert refusal(seed_script(name), *args).startswith(text)


def test_keys_of_the_seed_form() -> None:
    two = [b"q", b"q2"]
    text = b"Pop(): Got 2, expected 1 KEYS argument"
    assert refusal(seed_script("Pop"), "w", 1, 1, keys=two) == text
    for name in SEED_PLACES:
        if name not in ("Put", "Pop", "Peek"):
            assert b"(): " in refusal(seed_script(name), "get", 1, 2, 3, keys=two)


@pytest.mark.parametrize(
    ("args", "code", "expected"),
    [
        (["job.addDependency", 1, "j", "a"], q.DEPENDS_ON, (b"j", (b"a",))),
        (["job.removeDependency", 1, "j", "all"], q.DEPENDS_OFF, (b"j", None)),
        (["job.addTag", 1, "j", "t"], q.TAG_ADD, (b"j", (b"t",))),
        (["job.track", 1, "j"], q.TRACK, (b"j",)),
        (["jobs.completed", 1, 0, 10], q.JOBS, (q.COMPLETE_, b"", 0, 10)),
        (["jobs.tagged", 1, "t"], q.TAGGED, (b"t", 0, 25)),
        (["jobs.failedByGroup", 1, "g"], q.FAILED_JOBS, (b"g", 0, 25)),
        (["tags.top", 1, 0, 5], q.TOP_TAGS, (0, 5)),
        (["failureGroups.counts", 1], q.FAILED_GROUPS, ()),
        (["queues.counts", 1], q.QUEUE_COUNTS, (None,)),
        (["queues.names", 1], q.QUEUE_NAMES, ()),
        (["worker.jobs", 1, "w"], q.WORKER_JOBS, (b"w",)),
        (["config.getAll", 1], q.CONFIG_ALL, ()),
        (["recurringJob.cancel", 1, "r"], q.UNRECUR, (b"r",)),
        (["queuePriorityPatterns.getAll", 1], q.PATTERNS, (q.PATTERNS_OF_PRIORITIES,)),
        (
            ["queueIdentifierPatterns.setAll", 1, "a", '["x"]', "b", "[]"],
            q.SET_PATTERNS,
            (q.PATTERNS_OF_QUEUES, ((b"a", b'["x"]'), (b"default", b'["*"]'))),
        ),
        (
            ["queuePriorityPatterns.setAll", 1, '{"fairly":true}'],
            q.SET_PATTERNS,
            (q.PATTERNS_OF_PRIORITIES, ((b"0", b'{"fairly":true}'),)),
        ),
    ],
)
def test_names_with_dots(args: list[object], code: int, expected: tuple[object, ...]) -> None:
    found = call(DOTTED_SCRIPT, *args)
    assert (found.code, found.args) == (code, expected)


def test_errors_of_names_with_dots() -> None:
    text = b'Unfail(): Arg "count" must be greater than zero'
    assert refusal(DOTTED_SCRIPT, "queue.unfail", 1, "q", "g", 0) == text
    assert refusal(DOTTED_SCRIPT, "put", 1) == b"Unknown command put"
    assert refusal(DOTTED_SCRIPT, "job.addDependency", 1) == b"Job(): no jid provided"


# --- limits --------------------------------------------------------------------------------------


PUT = ["put", 100, "w", "q", "j", "K"]
TOO_LONG = b'"%b"' % (b"x" * q.DATA_MAX_BYTES)
TOO_DEEP = b"[" * 200 + b"]" * 200


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["get", 1, b"j" * (q.NAME_MAX_BYTES + 1)], b"a name has more than 4096 bytes"),
        (["cancel", 1, *["j"] * (q.CALL_JOBS_MAX + 1)], b"more than 1000 jobs"),
        (["tag", 1, "add", "j", *["t"] * (q.TAGS_MAX + 1)], b"more than 1000 tags"),
        (
            [*PUT, TOO_LONG, 0],
            b"data has more than 1048576 bytes",
        ),
        (
            [
                "put",
                100,
                "w",
                "q",
                "j",
                "K",
                "{}",
                0,
                "depends",
                b"[" + b"1," * q.DEPENDENCIES_MAX + b"1]",
            ],
            b"more than 1000 dependencies",
        ),
        (
            [*PUT, TOO_DEEP, 0],
            b"Found too many nested data structures (129) at",
        ),
        (["heartbeat", 1, "j", "w", b'"%b"' % (b"/" * 600_000)], b"data has more than 1048576"),
        (["multiget", 1, *[b"j" * 4096] * 600], b"the arguments have more than 2097152 bytes"),
        (["put", 1e300], b'Arg "now" missing or not a number: nil'),
    ],
)
def test_limits(args: list[object], text: bytes) -> None:
    assert refusal(CORE_SCRIPT, *args).startswith(text)


ANY = st.lists(
    st.sampled_from([b"j", b"q", b"1", b"{}", b"[]", b"on", b"off", b"get", b"interval", b"x"])
    | st.binary(max_size=8),
    max_size=9,
)


@given(
    st.sampled_from([UNIFIED_SCRIPT, CORE_SCRIPT, THROTTLES_SCRIPT, DOTTED_SCRIPT]),
    st.data(),
    ANY,
)
def test_any_arguments_are_a_call_or_an_error(
    script: Script, data: st.DataObject, args: Words
) -> None:
    name = data.draw(st.sampled_from(sorted(script.names)))
    found = calls.read(script, [], [name, b"1", *args])
    assert isinstance(found, calls.Call | calls.Refusal)
    if isinstance(found, calls.Call):
        _check_args(found.args)


@given(st.sampled_from(sorted(SEED_PLACES)), st.lists(st.binary(max_size=3), max_size=2), ANY)
def test_any_arguments_of_the_seed_form(name: str, keys: Words, args: Words) -> None:
    found = calls.read(seed_script(name), keys, args)
    assert isinstance(found, calls.Call | calls.Refusal)
    if isinstance(found, calls.Call):
        _check_args(found.args)


def _check_args(args: tuple[object, ...]) -> None:
    """Assert that the log gets plain values, with bounded numbers."""
    for item in args:
        assert isinstance(item, tuple | bytes | float | int | None)
        if isinstance(item, tuple):
            _check_args(item)
        elif isinstance(item, float | int):
            assert abs(item) <= q.NUMBER_MAX
