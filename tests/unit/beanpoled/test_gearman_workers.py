"""Gearman's workers at one node: functions, sleep, and jobs that return to their queue."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole.constants import WATCHED_TUBES_MAX
from beanpole.core.jobs.job import Tube
from beanpole.core.jobs.queue import Queue
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import request
from beanpoled.frontends.gearman import worker as gearman_worker
from tests.unit.beanpoled.gearman_scene import (
    NO_JOB,
    NOOP,
    NOT_FOUND,
    Scene,
    created,
    grab,
    handle,
    submit,
    worker,
)
from tests.unit.node.stage import SECOND
from tests.unit.node.test_deadlines import Held


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- functions and sleep --------------------------------------------------------------------------


def test_polling_writes_nothing(scene: Scene) -> None:
    one = worker(scene, b"f", b"g")
    for kind in (p.GRAB_JOB, p.GRAB_JOB_UNIQ, p.GRAB_JOB_ALL):
        one.send(kind)
        one.send(p.PRE_SLEEP)
    assert one.replies() == NO_JOB * 3
    assert scene.commit_own() == []


def test_a_pipeline_does_not_look_at_all_functions_for_each_packet(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [b"f%d" % number for number in range(100)]
    one = worker(scene, *names)
    looked = [0]
    find = Queue.find

    def count(queue: Queue, name: bytes) -> Tube | None:
        looked[0] += 1
        return find(queue, name)

    monkeypatch.setattr(Queue, "find", count)
    own = (request(kind, names[7]) for kind in (p.CANT_DO, p.CAN_DO))
    polls = b"".join([request(p.GRAB_JOB), request(p.PRE_SLEEP), request(p.PRE_SLEEP), *own])
    one.connection.received(polls * 50)
    scene.run()
    assert looked[0] < 5 * len(names), "not for each of 250 packets"
    scene.commit_own()
    assert one.replies() == NO_JOB * 50
    client = scene.connect()
    client.ask(p.SUBMIT_JOB, names[7], b"", b"data")
    assert one.replies() == NOOP
    assert grab(one) == 1


def test_giving_up_all_functions_gives_back_all_jobs(scene: Scene) -> None:
    names = [b"f%d" % number for number in range(3)]
    client, one = scene.connect(), worker(scene, *names)
    for name in names:
        client.ask(p.SUBMIT_JOB, name, b"", b"data")
    assert [grab(one) for _ in names] == [1, 2, 3]
    assert one.ask(p.RESET_ABILITIES) == []
    other = worker(scene, *names)
    assert [grab(other) for _ in names] == [3, 2, 1]


@pytest.mark.parametrize(
    "give_up",
    [request(p.CANT_DO, b"f"), request(p.RESET_ABILITIES), None],
    ids=["CANT_DO", "RESET_ABILITIES", "lost"],
)
def test_jobs_come_back_newest_first_whichever_way(scene: Scene, give_up: bytes | None) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    for _ in range(4):
        submit(client, p.SUBMIT_JOB_BG)
    assert [grab(one), grab(one), grab(one)] == [1, 2, 3]
    if give_up is None:
        one.connection.lost()
    else:
        one.connection.received(give_up)
    scene.commit_own()
    other = worker(scene, b"f")
    assert [grab(other) for _ in range(4)] == [4, 3, 2, 1], "as in gearmand"


def test_each_job_is_given_back_once(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    for _ in range(3):
        submit(client)
        grab(one)
    pair = request(p.CANT_DO, b"f") + request(p.CAN_DO, b"f")
    one.connection.received(pair * 10)
    assert len(scene.commit_own()) == 3 + 20, "releases, and IGNORE and WATCH for each pair"
    assert [grab(one), grab(one), grab(one)] == [3, 2, 1]
    one.ask(p.CANT_DO, b"f")
    assert grab(worker(scene, b"f")) == 1, "and once more when it has come back"


@pytest.mark.constants
@pytest.mark.parametrize("give_up", [request(p.CANT_DO, b"f"), request(p.RESET_ABILITIES)])
def test_many_jobs_are_given_back_in_steps(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, give_up: bytes
) -> None:
    monkeypatch.setattr(gearman_worker, "GIVEN_BACK_PER_STEP_MAX", 2)
    client, one = scene.connect(), worker(scene, b"f")
    for job in range(1, 8):
        submit(client)
        assert grab(one) == job
    ends = request(p.WORK_COMPLETE, handle(7), b"")
    one.connection.received(give_up + ends + request(p.ECHO_REQ, b"x"))
    released = []
    while True:
        commands = scene.node.origin._open.commands
        released.append([item[0] for item in commands].count(c.RELEASE))
        if one.connection._rested not in scene.host.soon:
            break
        scene.host.soon.remove(one.connection._rested)
        one.connection._rested()
    assert released == [2, 4, 6, 7]
    logged = scene.commit_own()
    assert [item[2] for item in logged if item[0] == c.RELEASE] == [7, 6, 5, 4, 3, 2, 1]
    assert logged[-1][0] == c.FINISH
    assert one.replies() == [*NOT_FOUND, (p.ECHO_RES, (b"x",))]


@pytest.mark.constants
def test_a_worker_that_is_lost_gives_back_no_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of its session returns the others."""
    monkeypatch.setattr(gearman_worker, "GIVEN_BACK_PER_STEP_MAX", 2)
    client, one, other = scene.connect(), worker(scene, b"f"), worker(scene, b"f")
    for job in range(1, 5):
        submit(client)
        assert grab(one) == job
    one.connection.received(request(p.CANT_DO, b"f"))
    one.connection.lost()
    codes = [item[0] for item in scene.commit_own()]
    assert codes == [c.IGNORE, c.RELEASE, c.RELEASE, c.CLOSE]
    assert [grab(other) for _ in range(4)] == [4, 3, 2, 1]


def counted(client: Any) -> Held:
    """Count from now on which jobs of a client are looked at."""
    session = client.connection._clients.session(client.connection.number)
    held = session.reserved = Held(session.reserved)
    return held


PAIR = request(p.CANT_DO, b"f") + request(p.CAN_DO, b"f")


def test_giving_up_functions_does_not_look_at_all_jobs_for_each_packet(scene: Scene) -> None:
    client, one, other = scene.connect(), worker(scene, b"f", b"g"), worker(scene, b"f", b"g")
    for function in (b"g", b"f", b"g"):
        client.ask(p.SUBMIT_JOB, function, b"", b"data")
        grab(one)
    held = counted(one)
    one.connection.received(PAIR * 50 + request(p.RESET_ABILITIES) * 50)
    assert held.looked <= 3 + 1, "not for each of 150 packets"
    assert len(scene.commit_own()) == 3 + 100 + 2, (
        "releases, IGNORE and WATCH for each pair, the end"
    )
    assert [grab(other), grab(other), grab(other)] == [2, 3, 1]
    assert one.ask(p.RESET_ABILITIES) == []
    assert scene.commit_own() == []


def test_giving_up_functions_does_not_look_at_all_jobs_for_each_entry(scene: Scene) -> None:
    client, one, other = scene.connect(), worker(scene, b"g", b"f"), worker(scene, b"g", b"f")
    for _ in range(100):
        client.ask(p.SUBMIT_JOB, b"g", b"", b"data")
        grab(one)
    one.connection.received(PAIR)
    scene.commit_own()
    held = counted(one)
    scene.pass_cluster_us(1000)
    for _ in range(3):
        submit(client)
        job = grab(one)
        one.connection.received(PAIR)
        scene.commit_own()
        assert job not in held and len(held) == 100
        assert grab(other) == job, "it was given back"
        scene.pass_cluster_us(1000)
    assert held.looked <= 20
    one.connection.received(request(p.CANT_DO, b"g"))
    scene.commit_own()
    assert not held
    assert [grab(other) for _ in range(100)] == list(range(100, 0, -1)), "the newest first"


def test_a_worker_is_woken_once(scene: Scene) -> None:
    client, one, other = scene.connect(), worker(scene, b"f"), worker(scene, b"g", b"f")
    for each in (one, other):
        each.send(p.PRE_SLEEP)
        assert each.replies() == []
    submit(client)
    assert (one.replies(), other.replies()) == (NOOP, NOOP)
    submit(client)
    assert (one.replies(), other.replies()) == ([], []), "until it sleeps again"
    one.send(p.PRE_SLEEP)
    assert one.replies() == NOOP, "something is ready"
    assert (grab(one), grab(one), grab(one)) == (1, 2, 0)
    one.send(p.PRE_SLEEP)
    assert one.replies() == []
    assert scene.commit_own() == []


def test_a_function_that_comes_while_it_is_awake_wakes_no_worker(scene: Scene) -> None:
    """A second NOOP would make it ask for a job, and sleep again, for nothing."""
    client, one = scene.connect(), worker(scene, b"f")
    one.send(p.PRE_SLEEP)
    submit(client)
    assert one.replies() == NOOP
    assert one.ask(p.CAN_DO, b"g") == []
    assert grab(one) == 1


def test_no_wake_up_is_lost_to_a_function_that_comes_while_it_sleeps(scene: Scene) -> None:
    client, one = scene.connect(), scene.connect()
    submit(client)
    one.send(p.PRE_SLEEP)
    assert one.replies() == []
    assert one.ask(p.CAN_DO, b"f") == NOOP
    assert grab(one) == 1
    one.send(p.PRE_SLEEP)
    assert one.ask(p.CANT_DO, b"f") == [], "its job comes back, and is for others"


def test_a_worker_that_grabs_sleeps_no_more(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    one.send(p.PRE_SLEEP)
    assert grab(one) == 0
    submit(client)
    assert one.replies() == []


def test_a_job_of_another_node_wakes(scene: Scene) -> None:
    one = worker(scene, b"f")
    one.send(p.PRE_SLEEP)
    scene.others((c.OPEN, 1), (c.SET_PROTOCOL, 1, 4))
    scene.others((c.SUBMIT, 1, b"\x02f", 5, 0, b"", 0, 0, b"", b"x"))
    assert one.replies() == NOOP
    assert grab(one) == 1


def test_an_epoch_job_wakes_when_it_is_due(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    now_s = scene.host.walls_us // SECOND
    assert client.ask(p.SUBMIT_JOB_EPOCH, b"f", b"", b"%d" % (now_s + 2), b"x") == created(1)
    assert grab(one) == 0
    one.send(p.PRE_SLEEP)
    scene.pass_cluster_us(SECOND)
    assert one.replies() == []
    scene.pass_cluster_us(SECOND)
    assert one.replies() == NOOP
    assert grab(one) == 1
    assert client.ask(p.SUBMIT_JOB_EPOCH, b"f", b"", b"%d" % (now_s - 9), b"x") == created(2)
    assert grab(one) == 2, "what is past is now"
    for word in (b"", b"soon", b"-5", b"9" * 18):
        ((kind, (code, _)),) = client.ask(p.SUBMIT_JOB_EPOCH, b"f", b"", word, b"x")
        assert (kind, code) == (p.ERROR, b"INVALID_ARGUMENTS")


def test_jobs_of_a_function_that_is_given_up_go_to_others(scene: Scene) -> None:
    client, one, other = scene.connect(), worker(scene, b"f", b"g"), worker(scene, b"f", b"g")
    submit(client)
    client.ask(p.SUBMIT_JOB, b"g", b"", b"x")
    submit(client)
    assert (grab(one), grab(one)) == (1, 2)
    assert one.ask(p.CANT_DO, b"f") == []
    assert one.ask(p.CANT_DO, b"unheard of") == []
    assert one.ask(p.WORK_COMPLETE, handle(1), b"late") == NOT_FOUND
    assert one.ask(p.WORK_COMPLETE, handle(2), b"r") == []
    assert client.replies() == [(p.WORK_COMPLETE, (handle(2), b"r"))]
    assert (grab(other), grab(other)) == (3, 1), "what comes back goes to the end"
    client.ask(p.SUBMIT_JOB, b"g", b"", b"x")
    job = grab(one)
    assert one.ask(p.RESET_ABILITIES) == []
    assert one.ask(p.WORK_COMPLETE, handle(job), b"late") == NOT_FOUND
    assert grab(one) == 0
    assert grab(other) == job


def test_a_status_behind_a_job_that_was_given_up_is_not_found(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    for give_up in (request(p.CANT_DO, b"f"), request(p.RESET_ABILITIES)):
        submit(client)
        job = grab(one)
        before, behind = (request(p.WORK_STATUS, handle(job), done, b"10") for done in (b"1", b"2"))
        one.connection.received(before + give_up + behind)
        scene.commit_own()
        assert client.replies() == [(p.WORK_STATUS, (handle(job), b"1", b"10"))]
        assert one.replies() == NOT_FOUND
        assert one.ask(p.CAN_DO, b"f") == []
        assert grab(one) == job
        one.ask(p.WORK_COMPLETE, handle(job), b"r")
        assert client.replies() == [(p.WORK_COMPLETE, (handle(job), b"r"))]


def test_the_functions_of_a_worker_are_bounded(scene: Scene) -> None:
    one = scene.connect()
    for number in range(WATCHED_TUBES_MAX):
        one.send(p.CAN_DO, b"f%d" % number)
    assert one.ask(p.CAN_DO, b"f0") == [], "again"
    too_many = (p.ERROR, (b"QUEUE_ERROR", b"A worker has 1024 functions at most"))
    assert one.ask(p.CAN_DO, b"one more") == [too_many]
    assert one.ask(p.CANT_DO, b"f7") == []
    assert one.ask(p.CAN_DO, b"one more") == []


def test_a_function_for_which_there_is_no_room(scene: Scene) -> None:
    one = worker(scene, b"f")
    limits = (scene.machine.jobs_max, 2, scene.machine.sessions_max, scene.machine.queue_bytes_max)
    scene.apply_sections((c.LEADER, 0, 0, ((c.EPOCH, 2, 0, *limits),)))
    full = (p.ERROR, (b"QUEUE_ERROR", b"A limit of the cluster is reached"))
    assert one.ask(p.CAN_DO, b"g") == [full]
    assert not one.connection.watches(b"\x02g")
    assert one.connection.watches(b"\x02f")
    assert one.ask(p.SUBMIT_JOB_BG, b"g", b"", b"x") == [full]
    assert one.text(b"create function g\n").startswith(b"ERR QUEUE_ERROR A+limit+of")


def test_a_time_out_of_a_function(scene: Scene) -> None:
    client, one, other = scene.connect(), scene.connect(), worker(scene, b"f")
    for word, us in (
        (b"2", SECOND),
        (b"2500", 2_500_000),
        (b"0", 0),
        (b"-1", 0),
        (b"often", 0),
        (b" 1500", 1_500_000),
        (b"\0\0\x03\xe8", 0),
        (b"1500", 1_500_000),
    ):
        assert one.ask(p.CAN_DO_TIMEOUT, b"f", word) == []
        submit(client)
        job = grab(one)
        held = scene.machine.queue.jobs[job]
        assert held.due_us == (held.order + us if us else 0)
        if word != b"1500":
            one.ask(p.WORK_COMPLETE, handle(job), b"")
    client.replies()
    scene.pass_cluster_us(1_500_000)
    assert client.replies() == [], "it is tried again"
    assert one.ask(p.WORK_COMPLETE, handle(job), b"late") == NOT_FOUND
    assert grab(other) == job
    assert scene.machine.queue.jobs[job].due_us == 0


def test_a_job_behind_a_removed_alias_keeps_the_name_of_its_queue(scene: Scene) -> None:
    client, one = scene.connect(), scene.connect()
    scene.others((c.OPEN, 1), (c.SET_ALIAS, 1, b"\x02al", b"al"))
    one.ask(p.CAN_DO, b"al")
    client.ask(p.SUBMIT_JOB_BG, b"al", b"", b"x")
    one.send(p.GRAB_JOB)
    scene.others((c.SET_ALIAS, 1, b"\x02al", b""))  # TAKE is applied behind it
    scene.commit_own()
    assert one.replies() == [(p.JOB_ASSIGN, (handle(1), b"al", b"x"))]
    one.ask(p.CANT_DO, b"al")
    assert scene.machine.queue.ready == 1, "the worker has given up the function"
