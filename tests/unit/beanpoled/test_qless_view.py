"""Qless in a node's metrics and status, after real calls of clients."""

import json
import re
import sys
from typing import Any

import pytest

from beanpole import qless as q
from beanpole.core.qless import calls, failing, recurring, throttles
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import QlessQueue
from beanpoled import qless_view, view
from beanpoled.cli import status, status_qless
from beanpoled.frontends.clients import STALL_MAX_US
from beanpoled.http import metrics
from beanpoled.node_view import LocalNodeView
from beanpoled.rpc.server import describe
from tests.unit.beanpoled.fakes import trust_of
from tests.unit.beanpoled.qless_scene import Client, Scene, array
from tests.unit.core.cluster import copy_of, image_of
from tests.unit.core.qless.checking import Qless


@pytest.fixture
def scene() -> Scene:
    return Scene()


def put(client: Client, queue: bytes, jid: bytes, delay: bytes = b"0") -> None:
    client.call(b"put", b"1", b"w", queue, jid, b"klass", b"{}", delay)


def shown(scene: Scene) -> dict[str, float]:
    """Return the node's metrics by name and labels, without `scope`, which test_metrics checks."""
    lines = metrics.render(LocalNodeView(scene.node, trust_of())).splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    scope = re.compile(r',?scope="cluster"|\{scope="cluster"\}')
    return {scope.sub("", name).replace("{}", ""): float(number) for name, number in pairs}


def test_every_call_and_every_refusal_has_a_name() -> None:
    assert set(q.CALL_NAMES) == set(calls.CALLS)
    assert len(set(q.CALL_NAMES.values())) == len(q.CALL_NAMES)
    assert len(set(q.REFUSALS.values())) == len(q.REFUSALS)
    assert set(q.REFUSALS) == set(range(1, q.QUOTA + 1))


def test_calls_and_errors_are_counted_by_their_names(scene: Scene) -> None:
    client = scene.connect()
    before = shown(scene)
    put(client, b"q", b"a")
    put(client, b"q", b"b")
    client.call(b"fail", b"1", b"none", b"w", b"group", b"why")
    client.call(b"fail", b"1", b"a", b"w", b"group", b"why")
    client.call(b"pop", b"no number", b"q", b"w", b"1")
    client.ask(array(b"EVALSHA", b"0" * 40, b"0"))
    client.ask(array(b"SCRIPT", b"LOAD", b"return 1"))
    client.ask(b"FLUSHDB\r\nNONSENSE\r\n")
    client.ask(array(b"GET"))
    now = shown(scene)
    grown = {name: n - before.get(name, 0) for name, n in now.items() if n != before.get(name, 0)}
    wanted = {
        'calls_total{call="put"}': 2,
        'calls_total{call="fail"}': 2,
        'errors{protocol="qless",error="no_job"}': 1,
        'errors{protocol="qless",error="not_running"}': 1,
        'errors{protocol="qless",error="arguments"}': 1,
        'errors{protocol="qless",error="no_script"}': 1,
        'errors{protocol="qless",error="unsupported_script"}': 1,
        'errors{protocol="qless",error="command"}': 3,
    }
    prefixes = ("calls_total", "errors")
    short = {"beanpole_qless_": "", "beanpole_error_replies_total": "errors"}
    found = {}
    for name, count in grown.items():
        for long, instead in short.items():
            name = name.replace(long, instead)
        found[name] = count
    assert {name: n for name, n in found.items() if name.startswith(prefixes)} == wanted


def test_jobs_are_shown_by_queue_in_the_words_of_qless(scene: Scene) -> None:
    client = scene.connect()
    for number in range(3):
        put(client, b"many", b"m%d" % number)
    put(client, b"later", b"l", b"100")
    client.call(b"pop", b"2", b"many", b"worker", b"1")
    found = shown(scene)
    name = 'beanpole_qless_queue_jobs{{queue="{}",state="{}"}}'.format
    assert found[name("many", "waiting")] == 2
    assert found[name("many", "running")] == 1
    assert found[name("later", "scheduled")] == 1
    assert found['beanpole_qless_jobs{state="waiting"}'] == 2
    assert found["beanpole_qless_workers"] == 1
    assert found['beanpole_protocol_jobs_total{protocol="qless"}'] == 4
    assert found["beanpole_qless_locks_lost_total"] == 0
    client.call(b"peek", b"70", b"many", b"1")
    client.call(b"pop", b"70", b"many", b"other", b"1")
    assert shown(scene)["beanpole_qless_locks_lost_total"] == 1
    # A node loaded from a snapshot continues to count.
    loaded = copy_of(scene.machine).qless
    assert (loaded.locks_lost_total, loaded.jobs_total) == (1, 4)


def test_only_the_queues_with_most_jobs_have_figures(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qless_view, "QUEUES_MAX", 2)
    client = scene.connect()
    long = b"x" * (view.QUEUE_NAME_MAX_BYTES + 1)
    for queue, count in ((b"one", 1), (b"two", 2), (b"three", 3), (long, 4)):
        for number in range(count):
            put(client, queue, b"%b-%d" % (queue[:5], number))
    found = qless_view.figures(scene.machine.qless)
    assert [queue.name for queue in found.queues] == [b"three", b"two"]
    assert (found.jobs.waiting, found.queues_total) == (10, 4)


def test_what_is_published_and_clients_that_do_not_read_are_counted(scene: Scene) -> None:
    listener, slow, client = scene.connect(), scene.connect(), scene.connect()
    listener.send(b"SUBSCRIBE ql:log\r\n")
    slow.send(b"PSUBSCRIBE ql:*\r\n")
    put(client, b"q", b"a")
    assert shown(scene)["beanpole_qless_published_total"] == 2
    assert shown(scene)["beanpole_qless_subscribers"] == 2
    slow.connection.stall()
    put(client, b"q", b"b")
    assert slow.connection.closed
    assert shown(scene)['beanpole_connections_slow_total{protocol="qless"}'] == 1
    assert shown(scene)["beanpole_qless_subscribers"] == 1
    client.connection.stall()
    scene.node.clients.stalled[client.connection] -= STALL_MAX_US + 1
    scene.node.clients.run_periodic()
    assert client.connection.closed
    assert shown(scene)['beanpole_connections_slow_total{protocol="qless"}'] == 2


def test_status_shows_queues_and_workers_in_the_words_of_qless(scene: Scene) -> None:
    node = describe(LocalNodeView(scene.node, trust_of()))
    assert status_qless.lines([node]) == []
    client = scene.connect()
    put(client, b"mail", b"a")
    put(client, b"mail", b"b")
    put(client, b"a queue\nwith a long and strange name", b"c", b"50")
    client.call(b"pop", b"2", b"mail", b"worker", b"1")
    client.call(b"fail", b"3", b"b", b"worker", b"group", b"why")
    scene.machine.qless.queues[b"mail"].paused = True
    node = describe(LocalNodeView(scene.node, trust_of()))
    lines = [" ".join(line.split()) for line in status_qless.lines([node])]
    assert lines == [
        "queues of qless waiting running scheduled depends throttled recurring failed complete",
        "mail (paused) 1 0 0 0 0 0",
        "a queue.with a long a... 0 0 1 0 0 0",
        "all 1 0 1 0 0 0 1 0",
        "qless: 1 workers, 0 throttles, 0 locks lost",
    ]
    found = status._node_as_json(node)["qless"]
    assert found["workers"] == 1
    assert found["jobs"]["failed"] == 1
    assert found["queues"][0] == {
        "name": "mail",
        "paused": True,
        "jobs": {**dict.fromkeys(status_qless.STATES, 0), "waiting": 1},
    }
    json.dumps(found)
    node.ClearField("qless")  # as from an older release
    assert status_qless.lines([node]) == []
    assert status._node_as_json(node)["qless"] is None


def test_a_description_counts_the_queues_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qless_view, "FRESH_MAX", 1)
    client = scene.connect()
    put(client, b"q", b"a")
    put(client, b"other", b"b")
    node_view = LocalNodeView(scene.node, trust_of())
    counted: list[bytes] = []
    count = qless_view._counts

    def counting(queue: QlessQueue) -> tuple[int, ...]:
        counted.append(queue.name)
        return count(queue)

    monkeypatch.setattr(qless_view, "_counts", counting)
    described = describe(node_view)
    assert described.jobs.ready == described.qless.jobs.waiting == 2
    assert counted == [b"q", b"other"] * 2, "twice each: the largest are shown"


def test_figures_of_many_queues_are_counted_again_when_they_are_old(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = scene.connect()
    recent, tables = qless_view.RecentFigures(), scene.machine.qless
    put(client, b"q", b"a")
    assert recent.look(tables, 0, None, 0).jobs.waiting == 1
    put(client, b"q", b"b")
    assert recent.look(tables, 0, None, 1).jobs.waiting == 2, "few queues: always the present state"
    monkeypatch.setattr(qless_view, "FRESH_MAX", 0)
    put(client, b"q", b"c")
    assert recent.look(tables, 0, None, qless_view.KEPT_US).jobs.waiting == 2
    assert recent.look(tables, 0, None, qless_view.KEPT_US + 1).jobs.waiting == 3
    put(client, b"q", b"d")
    loaded = copy_of(scene.machine)
    assert recent.look(loaded.qless, 1, None, qless_view.KEPT_US + 1).jobs.waiting == 4


def test_figures_of_many_throttles_are_counted_again_when_they_are_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """100,000 throttles took a node 30 ms or more for each page of metrics, however often."""
    world = Qless()
    recent = qless_view.RecentFigures()
    monkeypatch.setattr(qless_view, "FRESH_MAX", 2)
    world.give(throttles.throttle_set, 0, b"a", 1, 0)
    assert recent.look(world.t, 0, None, 0).throttles == 1
    world.give(throttles.throttle_set, 0, b"b", 1, 0)
    assert recent.look(world.t, 0, None, 1).throttles == 2, "few: always the present state"
    world.give(throttles.throttle_set, 0, b"c", 1, 0)
    assert recent.look(world.t, 0, None, 2).throttles == 2
    assert recent.look(world.t, 0, None, qless_view.KEPT_US + 1).throttles == 3


def test_failed_jobs_are_counted_without_their_groups() -> None:
    """There may be as many groups as jobs: 100,000 took a node 10 ms or more."""

    class Unread(dict[bytes, Scores]):
        def values(self) -> Any:
            raise AssertionError("the groups are looked at")

    world = Qless()
    for number in range(9):
        world.put(0, b"%d" % number, throttles=(b"t",), priority=9.0 - number)
    world.put(0, b"scheduled", delay=50)
    world.put(0, b"dependent", depends=(b"scheduled",))
    world.give(recurring.recur, 0, b"q", b"r", b"K", b"{}", 9.0, 9.0, 0.0, (), 5, 0.0, None)
    assert world.pop(0, 5) == [b"%d" % number for number in range(5)]
    for number in range(3):
        group = b"group %d" % (number % 2)
        world.give(failing.fail, 1, b"%d" % number, b"w", group, b"m", None)
    world.done(1, b"3")
    world.give(throttles.throttle_set, 1, b"t", 1, 0)
    assert world.pop(2, 1) == []
    world.t.groups = Unread(world.t.groups)
    found = qless_view.figures(world.t)
    assert (found.failed, found.failure_groups, found.complete) == (3, 2, 1)
    assert found.jobs == view.QlessCounts(3, 1, 1, 1, 1, 1)
    assert (found.throttles, found.throttle_locks) == (1, 2)


def test_tables_that_a_snapshot_replaces_are_not_kept_for_their_figures(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qless_view, "FRESH_MAX", 0)
    client = scene.connect()
    put(client, b"q", b"a")
    old = scene.machine
    image = image_of(old)
    put(client, b"q", b"b")
    before = sys.getrefcount(old.qless)
    node_view = LocalNodeView(scene.node, trust_of())
    assert describe(node_view).qless.jobs.waiting == 2
    now = sys.getrefcount(old.qless)
    assert now == before
    scene.node.callbacks.load_image(iter(image))
    assert describe(node_view).qless.jobs.waiting == 1, "in the same second"
