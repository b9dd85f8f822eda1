"""Gearman's clients and workers at one node: packets, their recipients and their order."""

import pytest

from beanpole import commands as c
from beanpole.constants import RESULT_MAX_BYTES
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import request
from beanpoled.frontends.gearman.shared import Shared
from tests.unit.beanpoled.gearman_scene import (
    NO_JOB,
    NOT_FOUND,
    Scene,
    created,
    grab,
    handle,
    submit,
    worker,
)
from tests.unit.core.cluster import copy_of
from tests.unit.node.stage import SECOND


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- the way of a job -----------------------------------------------------------------------------


def test_a_client_hears_of_its_job(scene: Scene) -> None:
    client, bystander, one = scene.connect(), scene.connect(), worker(scene, b"f")
    assert submit(client) == created(1)
    assert one.ask(p.GRAB_JOB) == [(p.JOB_ASSIGN, (handle(1), b"f", b"data"))]
    for kind in (p.WORK_DATA, p.WORK_WARNING):
        assert one.ask(kind, handle(1), b"so far") == []
        assert client.replies() == [(kind, (handle(1), b"so far"))]
    assert one.ask(p.WORK_STATUS, handle(1), b"1", b"2") == []
    assert client.replies() == [(p.WORK_STATUS, (handle(1), b"1", b"2"))]
    assert one.ask(p.WORK_COMPLETE, handle(1), b"re\0sult") == []
    assert client.replies() == [(p.WORK_COMPLETE, (handle(1), b"re\0sult"))]
    assert one.ask(p.WORK_COMPLETE, handle(1), b"again") == NOT_FOUND
    assert bystander.replies() == client.replies() == []
    assert not scene.machine.queue.jobs


def test_all_of_it_in_one_piece(scene: Scene) -> None:
    """All requests are pipelined: a worker grabs its own job, and replies are in order."""
    both = scene.connect()
    both.connection.received(
        request(p.CAN_DO, b"f")
        + request(p.SUBMIT_JOB, b"f", b"", b"x")
        + request(p.GRAB_JOB)
        + request(p.WORK_COMPLETE, handle(1), b"r")
        + request(p.ECHO_REQ, b"e")
        + request(p.GRAB_JOB)
    )
    scene.commit_own()
    kinds = [kind for kind, _ in both.replies()]
    assert sorted(kinds) == sorted(
        [p.JOB_CREATED, p.JOB_ASSIGN, p.WORK_COMPLETE, p.ECHO_RES, p.NO_JOB]
    )
    kinds.remove(p.WORK_COMPLETE)  # it is no reply to a request
    assert kinds == [p.JOB_CREATED, p.JOB_ASSIGN, p.ECHO_RES, p.NO_JOB]


def test_an_error_keeps_its_place(scene: Scene) -> None:
    one = worker(scene, b"f")
    for kind, more in (
        (p.WORK_STATUS, (b"1", b"2")),
        (p.WORK_COMPLETE, (b"r",)),
        (p.WORK_FAIL, ()),
        (p.WORK_DATA, (b"d",)),
        (p.WORK_EXCEPTION, (b"e",)),
    ):
        one.connection.received(request(kind, handle(9), *more) + request(p.ECHO_REQ, b"behind"))
        scene.commit_own()
        assert [found[0] for found in one.replies()] == [p.ERROR, p.ECHO_RES]
        assert one.ask(kind, b"H:elsewhere:9", *more)[0][0] == p.ERROR


def test_only_the_holder_may_speak(scene: Scene) -> None:
    client, one, other = scene.connect(), worker(scene, b"f"), worker(scene, b"f")
    submit(client)
    assert grab(one) == 1
    assert other.ask(p.WORK_COMPLETE, handle(1), b"mine") == NOT_FOUND
    assert other.ask(p.WORK_STATUS, handle(1), b"1", b"1") == NOT_FOUND
    assert other.ask(p.WORK_DATA, handle(1), b"x") == [
        (p.ERROR, (b"JOB_NOT_FOUND", b"Job does not exist on server"))
    ]
    assert client.replies() == []


def test_every_way_to_submit(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    for kind in (p.SUBMIT_JOB_LOW_BG, p.SUBMIT_JOB_BG, p.SUBMIT_JOB_LOW, p.SUBMIT_JOB_HIGH):
        assert submit(client, kind)[0][0] == p.JOB_CREATED
    assert submit(client, p.SUBMIT_JOB_HIGH_BG) == created(5)
    assert client.ask(p.SUBMIT_REDUCE_JOB, b"f", b"u", b"red", b"", b"data") == created(6)
    last = client.ask(p.SUBMIT_REDUCE_JOB_BACKGROUND, b"f", b"", b"", b"", b"data")
    assert last == created(7)
    assert [grab(one) for _ in range(8)] == [4, 5, 2, 6, 7, 1, 3, 0]


def test_the_three_ways_to_grab(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    for unique in (b"u1", b"-", b""):
        submit(client, p.SUBMIT_JOB_BG, unique)
    client.ask(p.SUBMIT_REDUCE_JOB, b"f", b"u4", b"red", b"", b"data")
    client.ask(p.SUBMIT_REDUCE_JOB, b"f", b"u5", b"red", b"", b"data")
    rest = (b"f", b"u1", b"data")
    assert one.ask(p.GRAB_JOB_UNIQ) == [(p.JOB_ASSIGN_UNIQ, (handle(1), *rest))]
    assert one.ask(p.GRAB_JOB_ALL) == [(p.JOB_ASSIGN_UNIQ, (handle(2), b"f", b"-", b"data"))]
    assert one.ask(p.GRAB_JOB_ALL) == [(p.JOB_ASSIGN_UNIQ, (handle(3), b"f", b"", b"data"))]
    reduced = (handle(4), b"f", b"u4", b"red", b"data")
    assert one.ask(p.GRAB_JOB_ALL) == [(p.JOB_ASSIGN_ALL, reduced)]
    assert one.ask(p.GRAB_JOB) == [(p.JOB_ASSIGN, (handle(5), b"f", b"data"))]


# --- the same job again ---------------------------------------------------------------------------


def test_the_same_unique_is_the_same_job(scene: Scene) -> None:
    client, other, one = scene.connect(), scene.connect(), worker(scene, b"f")
    assert submit(client, unique=b"u") == created(1)
    assert submit(other, unique=b"u") == created(1)
    assert submit(other, p.SUBMIT_JOB_BG, unique=b"u") == created(1)
    assert other.ask(p.SUBMIT_JOB, b"g", b"u", b"data") == created(2), "of another function"
    assert submit(other) == created(3)
    assert submit(other) == created(4)
    assert submit(other, unique=b"-") == created(5)
    assert submit(other, unique=b"-") == created(5), "the body is the same"
    assert other.ask(p.SUBMIT_JOB_BG, b"f", b"-", b"another") == created(6)
    assert grab(one) == 1
    one.ask(p.WORK_COMPLETE, handle(1), b"r")
    for each in (client, other):
        assert each.replies() == [(p.WORK_COMPLETE, (handle(1), b"r"))]
    assert submit(client, unique=b"u") == created(7), "it has ended, so this is another"


def test_each_submission_has_its_answer(scene: Scene) -> None:
    """A library has a task for each submission, and counts the results."""
    client, one = scene.connect(), worker(scene, b"f")
    for _ in range(2):
        assert submit(client, unique=b"u") == created(1)
    grab(one)
    one.ask(p.WORK_DATA, handle(1), b"d")
    one.ask(p.WORK_COMPLETE, handle(1), b"r")
    data, end = (p.WORK_DATA, (handle(1), b"d")), (p.WORK_COMPLETE, (handle(1), b"r"))
    assert client.replies() == [data, data, end, end]


def test_a_client_that_goes_takes_its_job_along(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    submit(client)
    submit(client, p.SUBMIT_JOB_BG)
    client.connection.lost()
    scene.commit_own()
    assert grab(one) == 2
    assert grab(one) == 0


def test_a_background_job_survives_a_client_that_attached_itself(scene: Scene) -> None:
    client, other, one = scene.connect(), scene.connect(), worker(scene, b"f")
    submit(client, p.SUBMIT_JOB_BG, b"u")
    submit(other, p.SUBMIT_JOB, b"u")
    other.connection.lost()
    scene.commit_own()
    assert grab(one) == 1


# --- exceptions and failures ----------------------------------------------------------------------


def test_clients_of_one_job_share_the_bytes_of_its_result(scene: Scene) -> None:
    clients, one = [scene.connect() for _ in range(3)], worker(scene, b"f")
    told: list[bytes] = []
    for client in clients:
        submit(client, unique=b"u")
        client.port.write = told.append  # type: ignore[method-assign,assignment]
    grab(one)
    one.ask(p.WORK_COMPLETE, handle(1), b"x" * RESULT_MAX_BYTES)
    assert len(told) == 3
    assert told[0] is told[1] is told[2], "a gigabyte for a thousand clients"


def test_an_exception_is_for_those_that_asked(scene: Scene) -> None:
    plain, asked, one = scene.connect(), scene.connect(), worker(scene, b"f")
    assert asked.ask(p.OPTION_REQ, b"Exceptions") == [(p.OPTION_RES, (b"Exceptions",))]
    unknown = (p.ERROR, (b"UNKNOWN_OPTION", b"Server does not recognize given option"))
    for wrong in (b"nonsense", b"exceptionsX", b"\0exceptions"):
        assert asked.ask(p.OPTION_REQ, wrong) == [unknown]
    submit(plain, unique=b"u")
    submit(asked, unique=b"u")
    grab(one)
    assert one.ask(p.WORK_EXCEPTION, handle(1), b"boom") == []
    assert plain.replies() == [(p.WORK_FAIL, (handle(1),))]
    assert asked.replies() == [(p.WORK_EXCEPTION, (handle(1), b"boom"))]
    assert one.ask(p.WORK_FAIL, handle(1)) == [], "many libraries send it behind the exception"
    assert one.ask(p.WORK_FAIL, handle(1)) == NOT_FOUND, "and once"


def test_an_option_ends_at_a_nul(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    option = b"exceptions\0"
    assert client.ask(p.OPTION_REQ, option) == [(p.OPTION_RES, (option,))]
    submit(client)
    grab(one)
    one.ask(p.WORK_EXCEPTION, handle(1), b"why")
    assert client.replies() == [(p.WORK_EXCEPTION, (handle(1), b"why"))]


def test_what_follows_an_exception_is_swallowed_for_this_job_alone(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    submit(client)
    submit(client)
    assert (grab(one), grab(one)) == (1, 2)
    one.send(p.WORK_EXCEPTION, handle(1), b"boom")
    one.send(p.WORK_FAIL, handle(2))
    one.send(p.WORK_COMPLETE, handle(1), b"")
    scene.commit_own()
    assert one.replies() == []
    assert client.replies() == [(p.WORK_FAIL, (handle(1),)), (p.WORK_FAIL, (handle(2),))]


def test_an_exception_that_came_too_late_says_nothing_of_the_next_attempt(scene: Scene) -> None:
    client, one = scene.connect(), scene.connect()
    one.ask(p.CAN_DO_TIMEOUT, b"f", b"1000")
    submit(client)
    assert grab(one) == 1
    scene.pass_cluster_us(2 * SECOND)
    ((kind, _),) = one.ask(p.WORK_EXCEPTION, handle(1), b"too late")
    assert kind == p.ERROR
    assert grab(one) == 1, "once more"
    assert one.ask(p.WORK_COMPLETE, handle(1), b"done") == []
    assert client.replies() == [(p.WORK_COMPLETE, (handle(1), b"done"))]


def test_a_failure_ends_a_job(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    client.ask(p.OPTION_REQ, b"exceptions")
    for finish in ((p.WORK_FAIL, b""), (p.WORK_EXCEPTION, b"")):
        submit(client)
        job = grab(one)
        arguments = (handle(job),) if finish[0] == p.WORK_FAIL else (handle(job), finish[1])
        assert one.ask(finish[0], *arguments) == []
        assert client.replies() == [(p.WORK_FAIL, (handle(job),))]
        assert grab(one) == 0, "it is not tried again"
    submit(client)
    job = grab(one)
    assert one.ask(p.WORK_FAIL, handle(job) + b"\0") == [], "some send a NUL behind it"
    assert client.replies() == [(p.WORK_FAIL, (handle(job),))]


def test_a_result_above_the_limit_fails_its_job(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    client.ask(p.OPTION_REQ, b"exceptions")
    largest = bytes(RESULT_MAX_BYTES)
    text = b"The result has more than 1048576 bytes"
    submit(client)
    grab(one)
    told = one.ask(p.WORK_DATA, handle(1), largest + b"x")
    assert told == [(p.ERROR, (b"ARGUMENT_TOO_LARGE", b"The data has more than 1048576 bytes"))]
    assert one.ask(p.WORK_DATA, handle(1), largest) == []
    assert one.ask(p.WORK_COMPLETE, handle(1), largest + b"x") == [], "libraries end on an ERROR"
    assert client.replies() == [
        (p.WORK_DATA, (handle(1), largest)),
        (p.WORK_EXCEPTION, (handle(1), text)),
    ]
    submit(client)
    grab(one)
    assert one.ask(p.WORK_COMPLETE, handle(2), largest) == []
    assert client.replies() == [(p.WORK_COMPLETE, (handle(2), largest))]
    assert one.ask(p.WORK_COMPLETE, handle(2), largest + b"x") == NOT_FOUND


# --- questions ------------------------------------------------------------------------------------


def test_the_status_of_a_job(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    submit(client, unique=b"u")
    states = [(b"1", b"0", b"0", b"0"), (b"1", b"1", b"0", b"0"), (b"1", b"1", b"3", b"10")]
    for number, state in enumerate(states):
        if number == 1:
            grab(one)
        elif number:
            one.ask(p.WORK_STATUS, handle(1), b"3", b"10")
        client.replies()
        assert client.ask(p.GET_STATUS, handle(1)) == [(p.STATUS_RES, (handle(1), *state))]
        unique = (p.STATUS_RES_UNIQUE, (b"u", *state, b"1"))
        assert client.ask(p.GET_STATUS_UNIQUE, b"u") == [unique]
    state = (b"1", b"1", b"3", b"10")
    for tail in (b"\0", b"\0\0", b"\0x"):  # as gearmand: without what follows the NUL
        assert client.ask(p.GET_STATUS, handle(1) + tail) == [(p.STATUS_RES, (handle(1), *state))]
    one.ask(p.WORK_COMPLETE, handle(1), b"")
    client.replies()
    for nothing in (handle(1), handle(10**15), b"H:elsewhere:1", b"", b"H:stage:", b"H:stage:-1"):
        assert client.ask(p.GET_STATUS, nothing) == [
            (p.STATUS_RES, (nothing, b"0", b"0", b"0", b"0"))
        ]
    for nothing in (b"u", b"", b"x"):
        gone = (p.STATUS_RES_UNIQUE, (nothing, b"0", b"0", b"0", b"0", b"0"))
        assert client.ask(p.GET_STATUS_UNIQUE, nothing) == [gone]


def test_a_newer_status_takes_the_place_of_one_that_has_not_left(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    submit(client)
    grab(one)
    one.connection.received(
        b"".join(request(p.WORK_STATUS, handle(1), b"%d" % done, b"9") for done in range(9))
        + request(p.ECHO_REQ, b"e")
        + request(p.WORK_STATUS, handle(2), b"1", b"2")
    )
    assert len(scene.commit_own()) == 2
    assert client.replies() == [(p.WORK_STATUS, (handle(1), b"8", b"9"))]
    assert one.replies() == [(p.ECHO_RES, (b"e",)), *NOT_FOUND]


def test_a_status_stays_between_the_data_around_it(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    submit(client)
    grab(one)
    one.connection.received(
        b"".join(
            request(p.WORK_STATUS, handle(1), b"%d" % done, b"9")
            + request(p.WORK_DATA, handle(1), b"%d" % done)
            for done in range(3)
        )
        + request(p.WORK_STATUS, handle(1), b"8", b"9")
        + request(p.WORK_COMPLETE, handle(1), b"all")
        + request(p.WORK_STATUS, handle(1), b"9", b"9")
    )
    scene.commit_own()
    kinds = [(kind, arguments[1]) for kind, arguments in client.replies()]
    assert kinds == [
        *((p.WORK_STATUS, b"0"), (p.WORK_DATA, b"0")),
        *((p.WORK_STATUS, b"1"), (p.WORK_DATA, b"1")),
        *((p.WORK_STATUS, b"2"), (p.WORK_DATA, b"2")),
        *((p.WORK_STATUS, b"8"), (p.WORK_COMPLETE, b"all")),
    ]
    assert one.replies() == NOT_FOUND


def test_a_status_that_is_too_long(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    submit(client)
    grab(one)
    ((kind, (code, _)),) = one.ask(p.WORK_STATUS, handle(1), b"9" * 60, b"9999")
    assert (kind, code) == (p.ERROR, b"ARGUMENT_TOO_LARGE")
    assert one.ask(p.WORK_STATUS, handle(1), b"9" * 60, b"999") == []


# --- the life of a connection ---------------------------------------------------------------------


def test_bad_bytes_end_a_connection_behind_what_it_is_owed(scene: Scene) -> None:
    client = scene.connect()
    client.connection.received(request(p.SUBMIT_JOB_BG, b"f", b"", b"x") + b"\0BAD" + bytes(9))
    assert not client.port.closed
    scene.commit_own()
    assert client.replies() == created(1)
    assert client.port.closed


def test_a_node_that_drains_or_has_no_disk_takes_no_job(scene: Scene) -> None:
    client = scene.connect()
    scene.node.context.draining = True
    assert submit(client)[0][1] == (b"QUEUE_ERROR", b"This node is draining")
    scene.node.context.draining = False
    scene.apply(c.encode_entry(c.FLAG_PUTS_REFUSED, 0, 0, []))
    assert submit(client)[0][1] == (b"QUEUE_ERROR", b"A limit of the cluster is reached")
    assert scene.commit_own() == []


def test_without_a_majority_each_request_is_told(scene: Scene) -> None:
    client = worker(scene, b"f")
    submit(client, p.SUBMIT_JOB_BG)
    scene.follow(leader="n1", term=2)
    scene.node.router.link_down("n1")
    nothing = b"No majority of the nodes answers; it is not done"
    for kind, arguments in (
        (p.SUBMIT_JOB, (b"f", b"", b"x")),
        (p.CAN_DO, (b"g",)),
        (p.WORK_COMPLETE, (handle(1), b"")),
        (p.WORK_EXCEPTION, (handle(1), b"boom")),
        (p.WORK_FAIL, (handle(1),)),
        (p.GET_STATUS, (handle(1),)),
        (p.GET_STATUS_UNIQUE, (b"u",)),
    ):
        client.send(kind, *arguments)
        scene.node.origin.expire(scene.node.context.loop_us + 1)
        scene.run()
        assert client.replies() == [(p.ERROR, (b"QUEUE_ERROR", nothing))], p.NAMES[kind]
    assert not client.connection.watches(b"\x02g")
    client.send(p.GRAB_JOB)
    scene.node.origin.expire(scene.node.context.loop_us + 1)
    scene.run()
    assert client.replies() == NO_JOB
    client.connection.received(b"status\n")
    scene.run()
    scene.node.origin.expire(scene.node.context.loop_us + 1)
    scene.run()
    assert client.port.take() == b"ERR QUEUE_ERROR %b\r\n" % nothing.replace(b" ", b"+")
    assert not client.port.closed


def test_a_session_too_many_is_told_and_closed(scene: Scene) -> None:
    limits = (10**6, 10**6, 1, 2**40)
    scene.apply_sections((c.LEADER, 0, 0, ((c.EPOCH, 2, 0, *limits),)))
    first, second = scene.connect(), scene.connect()
    assert submit(first) == created(1)
    full = (p.ERROR, (b"QUEUE_ERROR", b"A limit of the cluster is reached"))
    assert submit(second) == [full]
    assert second.port.closed
    assert not first.port.closed


def test_one_client_too_many(scene: Scene) -> None:
    crowded = Scene(connections_max=1)
    first, second, third = crowded.connect(), crowded.connect(), crowded.connect()
    assert first.ask(p.ECHO_REQ, b"x") == [(p.ECHO_RES, (b"x",))]
    assert second.ask(p.ECHO_REQ, b"x")[0][0] == p.ERROR
    assert third.text(b"status\n").startswith(b"ERR QUEUE_ERROR The+node+has")
    assert second.port.closed and third.port.closed


def test_a_client_that_does_not_read_is_closed(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    submit(client)
    grab(one)
    client.connection.stall()
    one.ask(p.WORK_DATA, handle(1), b"x")
    assert client.port.closed
    assert client.replies() == []


def test_a_client_that_asks_for_one_job_too_often_is_closed() -> None:
    scene = Scene(client_output_bytes_max=100_000)
    client, one = scene.connect(), worker(scene, b"f")
    for _ in range(3):
        submit(client, unique=b"u")
    grab(one)
    one.ask(p.WORK_DATA, handle(1), bytes(30_000))
    assert len(client.replies()) == 3
    one.ask(p.WORK_DATA, handle(1), bytes(40_000))
    assert client.port.closed and client.replies() == []


def test_what_the_node_has_missed_is_not_invented(scene: Scene) -> None:
    """In the snapshot one job has ended, a worker has the second, and the third is unchanged."""
    waiting = [scene.connect() for _ in range(3)]
    for number, client in enumerate(waiting, 1):
        assert submit(client) == created(number)
    machine = copy_of(scene.machine)
    machine.queue.jobs[2].reserves = 1
    machine.queue.delete(machine.queue.jobs[1], next(iter(machine.origins[0].sessions.values())))
    scene.load(machine)
    assert [client.port.closed for client in waiting] == [True, True, False]
    assert [client.replies() for client in waiting] == [[], [], []]
    assert list(scene.machine.queue.effects.listened) == [3]


def test_what_connections_did_is_counted(scene: Scene) -> None:
    client = scene.connect()
    submit(client)
    client.text(b"version\n")
    counters = scene.node.frontends["gearman"].counters()
    assert (counters["submit_job"], counters["text"], counters["grab_job"]) == (1, 1, 0)


def test_handles_fit_their_bound() -> None:
    shared = Shared("c" * 63, lambda callback: None)
    longest = shared.handle(2**53)
    assert longest == b"H:" + b"c" * 44 + b":9007199254740992"
    assert len(longest) == 63, "and a NUL behind it"
    assert shared.job_of(longest) == 2**53
    for wrong in (longest + b"0", longest[:-16], b"", b"H:c:1", b"H:" + b"c" * 44 + b":x"):
        assert shared.job_of(wrong) == 0
