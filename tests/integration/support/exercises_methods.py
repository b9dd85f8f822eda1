"""Exercises of the methods of `beanpole.client.blocking.Client` and `aio.Client`.

Each gets a connected client that keeps its reservations and uses and watches a queue of its own,
and a second client at a node that is not killed.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

import pytest

from beanpole.client import aio, blocking
from tests.integration.support.drop_in import maker
from tests.integration.support.exercises import PATIENCE_S, Exercise, Scene
from tests.integration.support.waiting import wait_until

KEEP_S: Final = 60
# For a client that closes: if its `quit` is lost with a node, its session ends after this time.
KEEP_CLOSED_S: Final = 10
TTR_S: Final = 120
# Longer than an election takes.
RESERVE_S: Final = 30

Helper = blocking.Client[str]
Method = Callable[[Any, Helper, Scene], None]


def state(helper: Helper, job: int) -> str:
    return str(helper.stats_job(job)["state"])


def is_gone(helper: Helper, job: int) -> bool:
    try:
        helper.peek(job)
    except blocking.NotFoundError:
        return True
    return False


def reserved(client: Any, helper: Helper) -> Any:
    """Let the client reserve a job."""
    job = helper.put("x", ttr=TTR_S)
    found = client.reserve(timeout=RESERVE_S)
    assert (found.id, found.body) == (job, "x")
    return found


def put(client: Any, helper: Helper, scene: Scene) -> None:
    job = client.put("x", priority=7)
    assert helper.stats_job(job)["pri"] == 7
    keyed = client.put("y", key=scene.queue)
    assert helper.peek(keyed).body == "y"
    assert helper.put("z", key=scene.queue) == keyed


def use(client: Any, helper: Helper, scene: Scene) -> None:
    client.use(scene.queue + "-other")
    assert client.using() == scene.queue + "-other"


def reserve(client: Any, helper: Helper, scene: Scene) -> None:
    job = reserved(client, helper)
    assert state(helper, job.id) == "reserved"
    with pytest.raises(blocking.TimedOutError):
        client.reserve(timeout=0)


def reserve_job(client: Any, helper: Helper, scene: Scene) -> None:
    job = scene.bury(helper)
    assert client.reserve_job(job).body == "x"
    assert state(helper, job) == "reserved"


def delete(client: Any, helper: Helper, scene: Scene) -> None:
    job = reserved(client, helper)
    client.delete(job)
    assert is_gone(helper, job.id)


def release(client: Any, helper: Helper, scene: Scene) -> None:
    job = reserved(client, helper)
    client.release(job, delay=100)
    assert state(helper, job.id) == "delayed"


def bury(client: Any, helper: Helper, scene: Scene) -> None:
    job = reserved(client, helper)
    client.bury(job)
    assert state(helper, job.id) == "buried"


def touch(client: Any, helper: Helper, scene: Scene) -> None:
    job = reserved(client, helper)
    client.touch(job)
    assert helper.stats_job(job.id)["time-left"] > TTR_S - PATIENCE_S
    assert helper.stats_job(job.id)["reserves"] == 1


def watch(client: Any, helper: Helper, scene: Scene) -> None:
    assert client.watch(scene.queue + "-other") == 2
    helper.use(scene.queue + "-other")
    reserved(client, helper)


def ignore(client: Any, helper: Helper, scene: Scene) -> None:
    client.watch("default")
    assert client.ignore("default") == 1
    with pytest.raises(blocking.NotIgnoredError):
        client.ignore(scene.queue)


def peek(client: Any, helper: Helper, scene: Scene) -> None:
    assert client.peek(helper.put("x")).body == "x"


def peek_ready(client: Any, helper: Helper, scene: Scene) -> None:
    assert helper.put("x") == client.peek_ready().id


def peek_delayed(client: Any, helper: Helper, scene: Scene) -> None:
    assert helper.put("x", delay=100) == client.peek_delayed().id


def peek_buried(client: Any, helper: Helper, scene: Scene) -> None:
    assert scene.bury(helper) == client.peek_buried().id


def kick(client: Any, helper: Helper, scene: Scene) -> None:
    jobs = [scene.bury(helper) for _ in range(2)]
    assert client.kick(10) == 2
    assert [state(helper, job) for job in jobs] == ["ready", "ready"]


def kick_job(client: Any, helper: Helper, scene: Scene) -> None:
    job = scene.bury(helper)
    client.kick_job(job)
    assert state(helper, job) == "ready"


def stats_job(client: Any, helper: Helper, scene: Scene) -> None:
    found = client.stats_job(helper.put("x"))
    assert (found["tube"], found["state"]) == (scene.queue, "ready")


def stats_tube(client: Any, helper: Helper, scene: Scene) -> None:
    helper.put("x")
    assert client.stats_tube(scene.queue)["current-jobs-ready"] == 1


def stats(client: Any, helper: Helper, scene: Scene) -> None:
    helper.put("x")
    assert client.stats()["current-jobs-ready"] >= 1


def tubes(client: Any, helper: Helper, scene: Scene) -> None:
    assert scene.queue in client.tubes()


def using(client: Any, helper: Helper, scene: Scene) -> None:
    assert client.using() == scene.queue


def watching(client: Any, helper: Helper, scene: Scene) -> None:
    assert client.watching() == [scene.queue]


def pause_tube(client: Any, helper: Helper, scene: Scene) -> None:
    helper.put("x")
    client.pause_tube(scene.queue, 100)
    assert helper.stats_tube(scene.queue)["pause"] == 100
    with pytest.raises(blocking.TimedOutError):
        client.reserve(timeout=0)


def put_many(client: Any, helper: Helper, scene: Scene) -> None:
    jobs = client.put_many(["a", "b", "c"])
    assert [helper.peek(job).body for job in jobs] == ["a", "b", "c"]


def reserve_many(client: Any, helper: Helper, scene: Scene) -> None:
    jobs = helper.put_many(["a", "b", "c"], ttr=TTR_S)
    found = client.reserve_many(3, timeout=RESERVE_S)
    # Jobs of a lost reply come back with the session, later.
    while len(found) < 3:
        found += client.reserve_many(3 - len(found), timeout=RESERVE_S)
    assert sorted(job.id for job in found) == jobs


def delete_many(client: Any, helper: Helper, scene: Scene) -> None:
    jobs = helper.put_many(["a", "b"])
    assert client.delete_many([*jobs, 2**62]) == [True, True, False]
    assert all(is_gone(helper, job) for job in jobs)


def close(client: Any, helper: Helper, scene: Scene) -> None:
    job = reserved(client, helper)
    client.close()
    assert client.node == ""
    limit_s = RESERVE_S + KEEP_CLOSED_S
    wait_until(lambda: state(helper, job.id) == "ready", limit_s, "that it is back")


def node(client: Any, helper: Helper, scene: Scene) -> None:
    assert client.node in scene.beanstalk


def is_kept(client: Any, helper: Helper, scene: Scene) -> None:
    assert client.is_kept


def held(client: Any, helper: Helper, scene: Scene) -> None:
    job = reserved(client, helper)
    assert list(client.held) == [job.id]


def holds(client: Any, helper: Helper, scene: Scene) -> None:
    job = reserved(client, helper)
    scene.disconnect(job.id)
    assert client.holds(job)
    assert state(helper, job.id) == "reserved"
    assert not client.holds(job.id + 1)


def limit_waits(client: Any, helper: Helper, scene: Scene) -> None:
    client.limit_waits(PATIENCE_S)
    reserved(client, helper)


def connect(client: Any, helper: Helper, scene: Scene) -> None:
    client.close()
    client.connect()
    assert client.using() == scene.queue


def on_lost(client: Any, helper: Helper, scene: Scene) -> None:
    """For a client that does not keep its jobs."""
    job = reserved(client, helper)
    told: list[int] = []
    client.on_lost(told.extend)
    scene.disconnect(job.id)
    with pytest.raises(blocking.NotFoundError):
        client.touch(job)
    assert told == [job.id]


METHODS: Final[Mapping[str, Method]] = {
    one.__name__: one
    for one in (
        *(put, use, reserve, reserve_job, delete, release, bury, touch, watch, ignore),
        *(peek, peek_ready, peek_delayed, peek_buried, kick, kick_job),
        *(stats_job, stats_tube, stats, tubes, using, watching, pause_tube),
        *(put_many, reserve_many, delete_many),
        *(close, connect, node, is_kept, held, holds, limit_waits, on_lost),
    )
}
KEEPS_S: Final[Mapping[Method, int]] = {on_lost: 0, close: KEEP_CLOSED_S}
# The other methods can be repeated at another node without harm, so their outcome is never unknown.
MAY_BE_OPEN: Final = frozenset(
    ("put", "kick", "delete", "release", "bury", "kick_job", "put_many", "delete_many")
)


def public(module: ModuleType) -> set[str]:
    """Return the names of the public methods and attributes of a module's client."""
    return {name for name in dir(module.Client) if not name.startswith("_")}


def _exercise(module: ModuleType, method: Method) -> Exercise:
    def exercise(scene: Scene) -> None:
        keep = KEEPS_S.get(method, KEEP_S)
        named = {"use": scene.queue, "watch": scene.queue, "keep": keep, "spread": False}
        with (
            scene.helper() as helper,
            maker(module)(scene.beanstalk, patience_s=PATIENCE_S, **named) as client,
        ):
            method(client, helper, scene)

    return exercise


EXERCISES: Final[Mapping[str, Exercise]] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": _exercise(module, METHODS[name])
    for module in (blocking, aio)
    for name in sorted(public(module) & set(METHODS))
}
