"""Replies that must stay true: tubes that exist, late refusals, counts of clients by kind."""

from typing import Any

import pytest
import yaml

from beanpole import commands as c
from beanpole.core.jobs import display_names
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.node.stage import Port, Stage

# `default` and one other.
TUBES_MAX = 2


@pytest.fixture
def stage() -> Stage:
    """Return a serving leader; n1 is up with session 1 and 2 as its next batch number."""
    return served()


def served(**settings: Any) -> Stage:
    stage = Stage(**settings)
    stage.lead()
    stage.come_up()
    stage.batch("n1", 1, (c.OPEN, 1), first=True)
    stage.commit()
    return stage


def ask(stage: Stage, port: Port, connection: object, data: bytes) -> bytes:
    """Send data, commit everything, and return the reply."""
    connection.received(data)  # type: ignore[attr-defined]
    stage.run()
    stage.commit()
    stage.run()
    return port.take()


def figures(stage: Stage) -> dict[bytes, bytes]:
    """Return the statistics that another client sees."""
    connection, port = stage.client()
    body = ask(stage, port, connection, b"stats\r\n")
    connection.lost()
    stage.run()
    stage.commit()
    pairs = [line.partition(b": ") for line in body.splitlines() if b": " in line]
    return {key: value for key, _, value in pairs}


# --- tubes that do not exist yet ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_line", "reply"),
    [(b"use new\r\n", b"USING new\r\n"), (b"watch new\r\n", b"WATCHING 2\r\n")],
)
def test_a_tube_exists_when_its_client_is_told(
    stage: Stage, request_line: bytes, reply: bytes
) -> None:
    connection, port = stage.client(request_line)
    assert port.take() == b""
    stage.commit()
    stage.run()
    assert port.take() == reply
    assert b"new" in stage.node.context.machine.queue.tubes
    # Naming it is free once it exists.
    _, second = stage.client(request_line)
    assert second.take() == reply
    connection.received(request_line)
    stage.run()
    assert port.take() == reply


def test_what_stands_behind_a_new_tube_is_answered_behind_it(stage: Stage) -> None:
    connection, port = stage.client()
    put = b"put 0 0 60 1\r\nx\r\n"
    told = ask(stage, port, connection, b"use new\r\n" + put + b"watch newer\r\nreserve\r\n")
    assert told == b"USING new\r\nINSERTED 1\r\nWATCHING 2\r\n"
    assert stage.node.context.machine.queue.tubes[b"new"].ready_count == 1


def test_a_new_tube_that_no_majority_makes_is_not_bound() -> None:
    stage = served(command_timeout_ms=3000)
    stage.become("follower", None, 1)
    connection, port = stage.client(b"use new\r\nlist-tube-used\r\n")
    stage.pass_us(2_900_000)
    assert port.take() == b""
    stage.pass_us(300_000)
    assert port.take() == b"INTERNAL_ERROR\r\nUSING default\r\n"
    assert not connection.closed


# --- at the limit of tubes ------------------------------------------------------------------------


@pytest.mark.parametrize("word", [b"use", b"watch"])
def test_one_tube_too_many_is_refused_at_once(word: bytes) -> None:
    stage = served(tubes_max=TUBES_MAX)
    connection, port = stage.client()
    assert ask(stage, port, connection, b"use one\r\n") == b"USING one\r\n"
    connection.received(word + b" two\r\nlist-tubes-watched\r\n")
    stage.run()
    assert port.take() == b"OUT_OF_MEMORY\r\nOK 14\r\n---\n- default\n\r\n"


@pytest.mark.parametrize("word", [b"use", b"watch"])
def test_a_tube_that_another_node_was_faster_to_make_is_refused(word: bytes) -> None:
    stage = served(tubes_max=TUBES_MAX)
    stage.batch("n1", 2, (c.USE, 1, b"theirs"))
    connection, port = stage.client(word + b" ours\r\nignore default\r\nlist-tube-used\r\n")
    stage.commit()
    stage.run()
    assert port.take() == b"OUT_OF_MEMORY\r\nNOT_IGNORED\r\nUSING default\r\n"
    assert not connection.closed


def told_too_early(stage: Stage, data: bytes) -> tuple[object, Port]:
    """Let a client watch a tube that its node knows, but that is gone when the WATCH applies."""
    first, port = stage.client()
    assert ask(stage, port, first, b"use gone\r\n") == b"USING gone\r\n"
    first.received(b"use default\r\n")
    stage.run()
    stage.batch("n1", 2, (c.USE, 1, b"theirs"))
    second, port = stage.client(b"watch gone\r\nignore default\r\n" + data)
    assert port.take() == b"WATCHING 2\r\nWATCHING 1\r\n"
    stage.commit()
    stage.run()
    assert b"gone" not in stage.node.context.machine.queue.tubes
    return second, port


@pytest.mark.parametrize("data", [b"", b"reserve\r\n"])
def test_a_session_ends_with_the_error_of_what_was_answered_too_early(data: bytes) -> None:
    stage = served(tubes_max=TUBES_MAX)
    connection, port = told_too_early(stage, data)
    assert connection.closed  # type: ignore[attr-defined]
    assert (port.output, port.closed) == (b"OUT_OF_MEMORY\r\n", True)


def test_no_error_is_taken_for_the_answer_of_what_stands_behind() -> None:
    stage = served(tubes_max=TUBES_MAX)
    connection, port = told_too_early(stage, b"put 0 0 60 1\r\nx\r\n")
    assert connection.closed  # type: ignore[attr-defined]
    assert (port.output, port.closed) == (b"", True)
    assert stage.node.context.machine.queue.ready == 1, (
        "it is done, so OUT_OF_MEMORY would be wrong"
    )


# --- producers, workers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_line",
    [b"list-tube-used", b"list-tubes-watched", b"use default", b"watch default", b"ignore absent"],
)
def test_a_connection_counts_from_its_first_command(stage: Stage, request_line: bytes) -> None:
    default = stage.node.context.machine.queue.default
    before = (default.users, default.watchers)
    connection, port = stage.client()
    assert ask(stage, port, connection, request_line + b"\r\n")
    assert (default.users, default.watchers) == (before[0] + 1, before[1] + 1)


def test_a_put_that_is_too_big_makes_no_producer(stage: Stage) -> None:
    size = stage.node.context.config.max_job_size + 1
    connection, port = stage.client()
    told = ask(stage, port, connection, b"put 0 0 60 %d\r\n%b\r\n" % (size, b"x" * size))
    assert told == b"JOB_TOO_BIG\r\n"
    assert figures(stage)[b"current-producers"] == b"0"
    assert ask(stage, port, connection, b"put 0 0 60 1\r\nxyz\r\n").startswith(b"EXPECTED_CRLF")
    assert figures(stage)[b"current-producers"] == b"1"


def test_a_reserve_job_that_finds_one_makes_a_worker(stage: Stage) -> None:
    connection, port = stage.client()
    ask(stage, port, connection, b"put 0 0 60 1\r\nx\r\n")
    assert ask(stage, port, connection, b"reserve-job 2\r\n") == b"NOT_FOUND\r\n"
    assert figures(stage)[b"current-workers"] == b"0"
    assert ask(stage, port, connection, b"reserve-job 1\r\n") == b"RESERVED 1 1\r\nx\r\n"
    assert figures(stage)[b"current-workers"] == b"1"


def test_statistics_do_not_count_what_stands_behind_them(stage: Stage) -> None:
    connection, port = stage.client()
    packet = b"stats\r\nkick 1\r\nput 0 0 60 1\r\nx\r\nreserve\r\n"
    told = ask(stage, port, connection, packet)
    for line in (b"cmd-kick: 0", b"cmd-put: 0", b"cmd-reserve: 0", b"current-producers: 0"):
        assert line + b"\n" in told
    assert told.endswith(b"KICKED 0\r\nINSERTED 1\r\nRESERVED 1 1\r\nx\r\n")


def test_what_the_statistics_say_of_the_program(stage: Stage) -> None:
    found = figures(stage)
    assert found[b"version"] == b'"1.13"'
    assert {found[key] for key in found if key.startswith(b"binlog") and b"max" not in key} == {
        b"0"
    }


@pytest.mark.parametrize(
    ("queue", "name"),
    [
        (b"\x02resize", b"gearman:resize"),
        (b"\x01resize", b"workq:resize"),
        (b'\x02a"\n\xff', rb"gearman:a\"\n\\xff"),
        ("\x02r\xf6\x85\u2028\x7f\U0001f600".encode(), rb"gearman:r\xf6\x85\u2028\x7f\U0001f600"),
    ],
)
def test_the_queue_of_a_job_whose_alias_is_removed_has_a_name(queue: bytes, name: bytes) -> None:
    """It is ASCII, as clients decode it, and YAML."""
    scene = FollowerScene()
    scene.others((c.OPEN, 1), (c.SET_ALIAS, 1, b"al", queue))
    connection, port = scene.client()
    for line in (b"use al", b"put 0 0 60 1\r\nx", b"watch al", b"reserve-job 1"):
        connection.received(line + b"\r\n")
        scene.commit_own()
    port.take()
    for shown in (b"al", name):
        connection.received(b"stats-job 1\r\n")
        scene.commit_own()
        assert b'\ntube: "%b"\nstate: reserved\n' % shown in port.take()
        scene.others((c.SET_ALIAS, 1, b"al", b""))
    assert yaml.safe_load(b'"%b"' % name) == display_names.queue(queue)
