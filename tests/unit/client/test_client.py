"""The synchronous client against scripted nodes on real sockets."""

import socket
from collections.abc import Callable, Iterator

import pytest

from beanpole.client.beanstalk import Client, Job
from beanpole.errors import ClientError, OutcomeUnknown
from tests.unit.client.scripted import Node, Script


@pytest.fixture
def start() -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def begin(*scripts: Script, path: str = "") -> Node:
        nodes.append(Node(*scripts, path=path))
        return nodes[-1]

    yield begin
    for node in nodes:
        node.finish()


def dead_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_a_whole_session(start: Callable[..., Node]) -> None:
    node = start(
        [
            (b"use t\r\n", b"USING t\r\n"),
            (b"watch t\r\n", b"WATCHING 2\r\n"),
            (b"ignore default\r\n", b"WATCHING 1\r\n"),
            (b"put 5 0 60 2\r\nhi\r\n", b"INSERTED 7\r\n"),
            (b"reserve-with-timeout 1\r\n", b"RESERVED 7 2\r\nhi\r\n"),
            (b"touch 7\r\n", b"TOUCHED\r\n"),
            (b"release 7 5 1\r\n", b"RELEASED\r\n"),
            (b"peek-delayed\r\n", b"FOUND 7 2\r\nhi\r\n"),
            (b"kick 10\r\n", b"KICKED 1\r\n"),
            (b"reserve-job 7\r\n", b"RESERVED 7 2\r\nhi\r\n"),
            (b"bury 7 9\r\n", b"BURIED\r\n"),
            (b"kick-job 7\r\n", b"KICKED\r\n"),
            (b"pause-tube t 3\r\n", b"PAUSED\r\n"),
            (b"stats-job 7\r\n", b"OK 4\r\n---\n\r\n"),
            (b"delete 7\r\n", b"DELETED\r\n"),
            (b"delete 7\r\n", b"NOT_FOUND\r\n"),
            (b"peek 7\r\n", b"NOT_FOUND\r\n"),
            (b"stats-job 7\r\n", b"NOT_FOUND\r\n"),
            (b"reserve-with-timeout 0\r\n", b"TIMED_OUT\r\n"),
        ]
    )
    with Client([node.address]) as client:
        client.use(b"t")
        client.watch([b"t"])
        assert client.put(b"hi", 5, 0, 60) == 7
        assert client.reserve(1) == Job(7, b"hi")
        assert client.touch(7)
        assert client.release(7, 5, 1)
        assert client.peek(b"delayed") == Job(7, b"hi")
        assert client.kick(10) == 1
        assert client.reserve_job(7) == Job(7, b"hi")
        assert client.bury(7, 9)
        assert client.kick_job(7)
        assert client.pause(b"t", 3)
        assert client.text(b"stats-job", 7) == "---\n"
        assert client.delete(7)
        assert not client.delete(7)
        assert client.peek(7) is None
        assert client.text(b"stats-job", 7) is None
        assert client.reserve(0) is None


def test_a_unix_socket(
    start: Callable[..., Node], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = str(tmp_path_factory.mktemp("s") / "sock")
    node = start([(b"list-tubes\r\n", b"OK 14\r\n---\n- default\n\r\n")], path=path)
    with Client([node.address]) as client:
        assert client.text(b"list-tubes") == "---\n- default\n"


def test_the_next_node_gets_the_session_and_the_repeatable_command(
    start: Callable[..., Node],
) -> None:
    use = (b"use t\r\n", b"USING t\r\n")
    watch = (b"watch t\r\n", b"WATCHING 2\r\n")
    ignore = (b"ignore default\r\n", b"WATCHING 1\r\n")
    first = start([use, watch, ignore, (b"reserve\r\n", None)])
    second = start([use, watch, ignore, (b"reserve\r\n", b"RESERVED 3 1\r\nx\r\n")])
    with Client([dead_address(), first.address, second.address]) as client:
        client.use(b"t")
        client.watch([b"t"])
        assert client.reserve() == Job(3, b"x")
        assert client.address == second.address


def test_a_put_whose_outcome_is_unknown_is_not_repeated(start: Callable[..., Node]) -> None:
    first = start([(b"put 65536 0 120 1\r\nx\r\n", None)])
    second = start([(b"delete 4\r\n", b"DELETED\r\n")])
    with Client([first.address, second.address]) as client:
        with pytest.raises(OutcomeUnknown, match=first.address):
            client.put(b"x")
        assert client.delete(4)


def test_a_job_that_a_lost_connection_may_hold_is_not_said_to_be_missing(
    start: Callable[..., Node],
) -> None:
    first = start([(b"reserve-job 4\r\n", None)])
    second = start([(b"delete 5\r\n", b"DELETED\r\n")])
    with Client([first.address, second.address]) as client:
        with pytest.raises(OutcomeUnknown, match=first.address):
            client.reserve_job(4)
        assert client.delete(5)


def test_a_put_goes_on_when_a_node_drains(start: Callable[..., Node]) -> None:
    request = b"put 65536 0 120 1\r\nx\r\n"
    first = start([(request, b"DRAINING\r\n")])
    second = start([(request, b"INSERTED 1\r\n")])
    with Client([first.address, second.address]) as client:
        assert client.put(b"x") == 1


def test_a_refusal_is_the_nodes_word(start: Callable[..., Node]) -> None:
    node = start(
        [
            (b"use -\r\n", b"BAD_FORMAT\r\n"),
            (b"put 65536 0 120 1\r\nx\r\n", b"DRAINING\r\n"),
            (b"put 65536 0 120 1\r\nx\r\n", b"JOB_TOO_BIG\r\n"),
        ]
    )
    with Client([node.address]) as client:
        for call in (lambda: client.use(b"-"), lambda: client.put(b"x"), lambda: client.put(b"x")):
            with pytest.raises(ClientError, match=r"BAD_FORMAT|DRAINING|JOB_TOO_BIG"):
                call()


def test_no_node_at_all_is_said_after_the_patience_with_all_reasons() -> None:
    addresses = [dead_address(), "unix:/nowhere/at/all"]
    with Client(addresses, patience_s=0.1) as client, pytest.raises(ClientError) as caught:
        client.reserve(0)
    assert "no node answers" in str(caught.value)
    assert addresses[0] in str(caught.value)
    assert "/nowhere/at/all" in str(caught.value)


def test_a_server_of_another_protocol_is_not_believed(start: Callable[..., Node]) -> None:
    node = start([(b"stats\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n")])
    with Client([node.address], patience_s=0) as client, pytest.raises(ClientError):
        client.text(b"stats")
