"""Requests of clients that do not read: a few short lines must not cost gigabytes."""

import pytest

from beanpoled.frontends.requests import BYTES_IN_A_ROW_MAX, REQUESTS_IN_A_ROW_MAX
from tests.unit.node.stage import Port, Stage

OUTPUT_BYTES_MAX = 256 * 1024
BODY = b"b" * 60_000


@pytest.fixture
def stage() -> Stage:
    stage = Stage(client_output_bytes_max=OUTPUT_BYTES_MAX)
    stage.lead()
    stage.come_up()
    return stage


def ask(stage: Stage, requests: bytes) -> tuple[list[int], bytes]:
    """Send requests; return the sizes of the node's writes, and all writes joined."""
    connection, port = stage.client()
    writes: list[bytes] = []
    port.write = writes.append  # type: ignore[assignment, method-assign]
    connection.received(requests)
    stage.run()
    stage.commit()
    stage.run()
    assert port.reading
    return [len(write) for write in writes], b"".join(writes)


@pytest.mark.parametrize("request_line", [b"peek 1\r\n", b"peek-ready\r\n"])
def test_bodies_are_made_in_bounded_portions(stage: Stage, request_line: bytes) -> None:
    _, producer = stage.client(b"put 0 0 60 60000\r\n" + BODY + b"\r\n")
    stage.commit()
    assert producer.take() == b"INSERTED 1\r\n"
    sizes, replies = ask(stage, request_line * 100)
    assert replies == 100 * (b"FOUND 1 60000\r\n" + BODY + b"\r\n")
    assert max(sizes) < 2 * OUTPUT_BYTES_MAX


def test_lists_of_watched_tubes_are_made_in_bounded_portions(stage: Stage) -> None:
    watches = b"".join(b"watch %s%d\r\n" % (b"t" * 190, n) for n in range(500))
    sizes, replies = ask(stage, watches + b"list-tubes-watched\r\n" * 50)
    assert replies.count(b"- default\n") == 50
    assert max(sizes) < 2 * OUTPUT_BYTES_MAX


def test_lists_of_all_tubes_are_made_in_bounded_portions(stage: Stage) -> None:
    uses = b"".join(b"use %s%d\r\nput 0 0 60 0\r\n\r\n" % (b"t" * 190, n) for n in range(500))
    _, producer = stage.client(uses)
    stage.commit()
    assert producer.take().endswith(b"INSERTED 500\r\n")
    sizes, replies = ask(stage, b"list-tubes\r\n" * 50)
    assert replies.count(b"- default\n") == 50
    assert max(sizes) < 2 * OUTPUT_BYTES_MAX


@pytest.mark.parametrize(
    ("protocol", "request_line", "reply"),
    [
        ("beanstalk", b"\r\n", b"UNKNOWN_COMMAND\r\n"),
        ("beanstalk", b"list-tube-used\r\n", b"USING default\r\n"),
        ("workq", b"x\r\n", b"-CLIENT-ERROR"),
        ("gearman", b"version\n", b"OK "),
        ("qless", b"PING\r\n", b"+PONG\r\n"),
        ("qless", b"*0\r\n", b""),
    ],
)
@pytest.mark.parametrize("rate", [0, 1_000_000])
def test_a_client_acts_on_a_row_of_requests_in_a_turn(
    protocol: str, request_line: bytes, reply: bytes, rate: int
) -> None:
    """Others are served between two rows, and no input is lost or overtaken."""
    stage = Stage(commands_per_second_max=rate)
    stage.lead()
    stage.come_up()
    port = Port()
    connection = stage.node.frontends[protocol].connected(port)
    assert connection is not None
    rows = 5
    connection.received(request_line * (rows * REQUESTS_IN_A_ROW_MAX))
    turns = 0
    while not port.reading:
        assert port.output.count(reply) <= turns * REQUESTS_IN_A_ROW_MAX or not reply
        turns += 1
        soon, stage.host.soon = stage.host.soon, []
        for callback in soon:
            callback()
    stage.run()
    assert turns >= rows
    if reply:
        assert port.output.count(reply) == rows * REQUESTS_IN_A_ROW_MAX


def test_a_row_ends_with_long_replies_too(stage: Stage) -> None:
    port = Port()
    connection = stage.node.frontends["qless"].connected(port)
    assert connection is not None
    count = 1000
    connection.received(b"INFO\r\n" * count)
    sizes: list[int] = []
    while not port.reading:
        soon, stage.host.soon = stage.host.soon, []
        for callback in soon:
            callback()
        sizes.append(len(port.output) - sum(sizes))
    stage.run()
    assert port.output.count(b"redis_version") == count
    assert max(sizes) < 3 * BYTES_IN_A_ROW_MAX < len(port.output)
