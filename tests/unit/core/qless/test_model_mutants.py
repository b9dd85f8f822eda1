"""Defects planted in the machine are found by the comparison with the model."""

from collections.abc import Callable
from typing import Any

import pytest

from beanpole import qless as q
from beanpole.core.qless import (
    calls,
    cancelling,
    completing,
    config,
    dependencies,
    failing,
    history,
    locks,
    popping,
    queues,
    recurring,
    statistics,
    tags,
    throttles,
    tracking,
    views,
    workers,
)
from beanpole.core.qless.tables import Tables
from tests.unit.core.qless.beside_model import walk

FLAVOURS = (q.THROTTLES, q.CORE)
STEPS = 300
SEEDS = 20

# Makes the replacement of a function, given the function.
Mutant = Callable[[Any], Any]


def _nothing(_: Any) -> Any:
    return lambda *_args, **_more: None


def _always(value: Any) -> Mutant:
    return lambda _: lambda *_args, **_more: value


def _plus(seconds: float) -> Mutant:
    return lambda whole: lambda *args: whole(*args) + seconds


def _without_item(kind: int) -> Mutant:
    def mutant(whole: Any) -> Any:
        return lambda t, job, now, what, *more: (
            None if what == kind else whole(t, job, now, what, *more)
        )

    return mutant


def _with_argument(place: int, change: Callable[[Any], Any]) -> Mutant:
    def mutant(whole: Any) -> Any:
        def changed(*args: Any, **more: Any) -> Any:
            return whole(*args[:place], change(args[place]), *args[place + 1 :], **more)

        return changed

    return mutant


MUTANTS: dict[str, tuple[Any, str, Mutant]] = {
    "locks last a second longer": (locks, "end_of_lock", _plus(1.0)),
    "lost locks use up no attempt": (locks, "_attempt", _always(True)),
    "lost locks are not published": (locks, "lose", _nothing),
    "priorities do not count": (queues, "work_score", lambda _: lambda now, _p: -now / 1e10),
    "scheduled jobs never wait": (queues, "move_scheduled", _always(0)),
    "queues are not known": (queues, "know", _nothing),
    "throttles have room for all": (throttles, "all_available", _always(True)),
    "nobody goes on after a release": (throttles, "_let_wait", _nothing),
    "a put keeps its locks": (throttles, "leave", _nothing),
    "dependents are not freed": (dependencies, "free_dependents", _nothing),
    "nothing is depended on": (dependencies, "unfinished", _always([])),
    "circles are not seen": (dependencies, "_leads_to", _always(False)),
    "a run's end is not in the history": (history, "append", _without_item(q.HAS_DONE)),
    "waits are a second longer": (statistics, "note_wait", _with_argument(3, lambda s: s + 1.0)),
    "runs are not counted": (statistics, "note_run", _nothing),
    "failures are not counted": (statistics, "bump", _nothing),
    "tags stay when a job goes": (tags, "drop", _nothing),
    "nothing is tracked": (tracking, "is_tracked", _always(False)),
    "options do not count": (config, "number", lambda _: lambda _t, _name, default: default),
    "complete jobs stay": (completing, "_purge", _nothing),
    "failed jobs are in no group": (failing, "enter_group", _nothing),
    "a template makes one more": (recurring, "spawn", _with_argument(3, lambda n: n + 1)),
    "workers are not seen": (workers, "seen", _nothing),
    "a pop gives one more": (popping, "_allowed", _plus(1)),
    "a job shows no dependents": (
        views,
        "job_view",
        lambda whole: lambda t, job: whole(t, job)._replace(dependents=()),
    ),
    "canceled in silence": (cancelling, "_publish_canceled", _nothing),
    "workers keep what they lost": (Tables, "let_go", _nothing),
}


def is_noticed() -> bool:
    """Whether some walk finds a difference, or an assertion of the machine fails."""
    for seed in range(SEEDS):
        for flavour in FLAVOURS:
            try:
                if walk(seed, flavour, STEPS)[1]:
                    return True
            except AssertionError:
                return True
            except KeyError:
                continue  # an accident of the mutant is no verdict; another walk shows a difference
    return False


def test_nothing_is_noticed_of_the_machine_as_it_is() -> None:
    assert not is_noticed()


@pytest.mark.constants  # compiled code ignores patched attributes
@pytest.mark.parametrize("name", MUTANTS)
def test_the_model_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, attribute, mutant = MUTANTS[name]
    monkeypatch.setattr(where, attribute, mutant(getattr(where, attribute)))
    assert is_noticed()


@pytest.mark.constants
@pytest.mark.parametrize("code", [q.PRIORITY, q.UNTRACK, q.PAUSE, q.TAG_REMOVE, q.THROTTLE_DELETE])
def test_a_call_that_does_nothing_is_noticed(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle(calls.Call):
        __slots__ = ()

    def idle(_t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
        return q.OK, args[-1] if code == q.PRIORITY else None

    whole = calls.CALLS[code]
    monkeypatch.setitem(calls.CALLS, code, Idle(idle, grows=whole.grows))
    monkeypatch.setattr(calls.CALLS[code], "shape", whole.shape)
    assert is_noticed()
