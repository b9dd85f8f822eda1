"""The synchronous client against scripted nodes on real sockets."""

import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from beanpole.client import beanstalk, dialing, stream
from beanpole.client.beanstalk import Client, Job
from beanpole.client.patience import CONNECT_TIMEOUT_S, Waits
from beanpole.client.stream import StreamClient
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


EXTENSIONS = b"extensions\r\n"
USERS = (EXTENSIONS, b"OK 11\r\n---\n- auth\n\r\n")
# Nothing listens there. Another process could get a port that was free a moment ago.
DEAD = "127.0.0.1:1"


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
    first = start([use, watch, ignore, (b"reserve-with-timeout 30\r\n", None)])
    second = start([use, watch, ignore, (b"reserve-with-timeout 30\r\n", b"RESERVED 3 1\r\nx\r\n")])
    with Client([DEAD, first.address, second.address]) as client:
        client.use(b"t")
        client.watch([b"t"])
        assert client.reserve() == Job(3, b"x")
        assert client.address == second.address


def test_a_put_whose_outcome_is_unknown_is_not_repeated(start: Callable[..., Node]) -> None:
    first = start([(b"put 65536 0 120 1\r\nx\r\n", None)])
    second = start([(b"delete 4\r\n", b"DELETED\r\n")])
    with Client([first.address, second.address]) as client:
        with pytest.raises(OutcomeUnknown, match=f"it may have been done: {first.address}: "):
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


def test_a_denied_command_says_what_is_missing(start: Callable[..., Node]) -> None:
    node = start([(b"put 65536 0 120 1\r\nx\r\n", b"DENIED\r\n")])
    with Client([node.address]) as client, pytest.raises(ClientError, match="lacks the right"):
        client.put(b"x")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("DRAINING", "no node takes jobs now"),
        ("INTERNAL_ERROR", "it reaches no majority"),
        ("JOB_TOO_BIG", "larger than max_job_size, a setting"),
        ("OUT_OF_MEMORY", "a limit of the cluster"),
    ],
)
def test_a_refusal_says_its_reason(start: Callable[..., Node], word: str, reason: str) -> None:
    node = start([(b"put 65536 0 120 1\r\nx\r\n", f"{word}\r\n".encode())])
    with Client([node.address]) as client, pytest.raises(ClientError, match=f"{word}: .*{reason}"):
        client.put(b"x")


def test_no_node_at_all_is_said_after_the_patience_with_all_reasons() -> None:
    addresses = [DEAD, "unix:/nowhere/at/all"]
    with Client(addresses, patience_s=0.1) as client, pytest.raises(ClientError) as caught:
        client.reserve(0)
    assert "no node answers" in str(caught.value)
    assert addresses[0] in str(caught.value)
    assert "/nowhere/at/all" in str(caught.value)


def test_the_reasons_of_a_client_have_no_numbers_of_the_system() -> None:
    with (
        Client([DEAD, "unix:/nowhere/at/all"], patience_s=0.0) as client,
        pytest.raises(ClientError) as caught,
    ):
        client.delete(1)
    assert str(caught.value) == (
        f"no node answers: {DEAD}: Connection refused; "
        "unix:/nowhere/at/all: No such file or directory"
    )


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Give several nodes one name, each with a port of its own; return the address to use."""

    def name(*addresses: str) -> str:
        places = [(host, int(port)) for host, port in (one.split(":") for one in addresses)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]
        resolved = socket.getaddrinfo

        def resolve(host: str, *arguments: Any, **options: Any) -> Any:
            return found if host == "nodes.test" else resolved(host, *arguments, **options)

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        return "nodes.test:11300"

    return name


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A node that accepts connections, as the kernel does for a process that stands still."""
    exchange = StreamClient._exchange
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)

        def exchanged(client: StreamClient, *arguments: Any) -> Any:
            assert client._socket is not None
            if client._socket.getpeername() == listener.getsockname():
                raise TimeoutError("timed out")
            return exchange(client, *arguments)

        monkeypatch.setattr(StreamClient, "_exchange", exchanged)
        yield listener


def address_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_silent_node_is_left_for_another_of_its_name(
    start: Callable[..., Node], named: Callable[..., str], silent: socket.socket
) -> None:
    """It was taken again and again, because it accepts connections and is resolved first."""
    other = start([(b"stats-job 7\r\n", b"NOT_FOUND\r\n")])
    with Client([named(address_of(silent), other.address)], patience_s=0) as client:
        assert client.text(b"stats-job", 7) is None


def test_a_node_that_is_silent_from_the_start_is_left_for_another_of_its_name(
    start: Callable[..., Node], named: Callable[..., str], silent: socket.socket
) -> None:
    """The first requests of a client with a token belong to its connection."""
    accepted = (b"auth secret\r\n", b"ACCEPTED\r\n")
    other = start([USERS, accepted, (b"stats-job 7\r\n", b"NOT_FOUND\r\n")])
    address = named(address_of(silent), other.address)
    with Client([address], patience_s=0, token="secret") as client:
        assert client.text(b"stats-job", 7) is None


@pytest.mark.parametrize("token", ["", "secret"])
def test_no_put_is_sent_to_a_node_that_stands_still(
    token: str, start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome would be unknown."""
    monkeypatch.setattr(stream, "CONNECT_TIMEOUT_S", 1.0)
    put = (b"put 0 0 60 1\r\nx\r\n", b"INSERTED 7\r\n")
    first = [(b"list-tube-used\r\n", b"USING default\r\n")]
    if token:
        first = [USERS, (b"auth secret\r\n", b"ACCEPTED\r\n")]
    with socket.create_server(("127.0.0.1", 0)) as still:
        other = start([*first, put])
        addresses = [address_of(still), other.address]
        with Client(addresses, token=token, asks_first=True) as client:
            assert client.put(b"x", 0, 0, 60) == 7
        with still.accept()[0] as asked:
            assert asked.makefile("rb").read() == first[0][0]


def test_a_host_that_does_not_accept_is_none_to_wait_for(
    named: Callable[..., str], silent: socket.socket
) -> None:
    """`localhost` has an address of IPv6, where no node listens."""
    client = Client([named(DEAD, address_of(silent))], patience_s=0)
    with client, pytest.raises(stream.Unanswered, match=r"nodes\.test:11300: timed out"):
        client.peek(7)
    silent.accept()[0].close()
    with pytest.raises(BlockingIOError):
        silent.accept()


def test_a_put_at_a_draining_node_goes_to_another_of_its_name(
    start: Callable[..., Node], named: Callable[..., str]
) -> None:
    put = b"put 0 0 60 1\r\nx\r\n"
    first, second = start([(put, b"DRAINING\r\n")]), start([(put, b"INSERTED 7\r\n")])
    with Client([named(first.address, second.address)]) as client:
        assert client.put(b"x", 0, 0, 60) == 7


class Clock:
    """The time of a client: a node takes `waits_s` for the next exchange of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, waits_s: list[float]) -> None:
        self.now_s = 0.0
        exchange = StreamClient._exchange

        def waits(*arguments: Any) -> Any:
            self.now_s += waits_s.pop(0)
            return exchange(*arguments)

        monkeypatch.setattr(StreamClient, "_exchange", waits)
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=lambda _: None)
        monkeypatch.setattr(stream, "time", clock)
        monkeypatch.setattr(beanstalk, "time", clock)


def within(seconds: int) -> bytes:
    return b"reserve-with-timeout %d\r\n" % seconds


@pytest.mark.parametrize("timeout_s", [None, 3600])
def test_a_long_wait_goes_on_at_another_node(
    timeout_s: int | None, start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait counts for nothing when its node is lost: the client has its patience then."""
    late, found = b"TIMED_OUT\r\n", b"RESERVED 7 2\r\nhi\r\n"
    lost = start([(within(30), late), (within(30), None)])
    other = start([(within(5), late), (within(30), found)])
    Clock(monkeypatch, [30, 25, 5, 1])
    with Client([lost.address, other.address]) as client:
        assert client.reserve(timeout_s) == Job(7, b"hi")


def test_a_wait_that_is_repeated_ends_when_it_would_have_ended(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = start([(within(30), b"TIMED_OUT\r\n"), (within(10), None)])
    other = start([(within(3), b"TIMED_OUT\r\n")])
    clock = Clock(monkeypatch, [30, 7.5, 3])
    with Client([lost.address, other.address]) as client:
        assert client.reserve(40) is None
    assert clock.now_s == 40.5


@pytest.mark.parametrize(
    ("ask", "script"),
    [
        (lambda client: client.reserve(), (within(0), b"RESERVED 7 2\r\nhi\r\n")),
        (lambda client: client.peek(7), (b"peek 7\r\n", b"FOUND 7 2\r\nhi\r\n")),
    ],
    ids=["a wait without end", "no wait"],
)
def test_a_node_that_vanished_is_left_although_it_takes_all_of_the_patience(
    ask: Callable[[Client], Job | None],
    script: tuple[bytes, bytes],
    start: Callable[..., Node],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange = StreamClient._exchange

    def limited(client: Client, *arguments: Any) -> Any:
        # The other node answers, and has the time for it.
        client._waits = Waits(0.1 if client.address == vanished else 60, CONNECT_TIMEOUT_S)
        return exchange(client, *arguments)

    monkeypatch.setattr(StreamClient, "_exchange", limited)
    monkeypatch.setattr(beanstalk, "WAIT_SLICE_S", 0)
    other = start([script])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        vanished = f"127.0.0.1:{silent.getsockname()[1]}"
        # As by default, it is shorter than the time for a reply.
        with Client([vanished, other.address], patience_s=0.05) as client:
            assert ask(client) == Job(7, b"hi")
        with Client([vanished], patience_s=0.05) as client, pytest.raises(ClientError) as caught:
            client.peek(7)
        assert str(caught.value) == f"{vanished}: timed out"


def test_the_kernel_asks_for_a_node_that_is_silent(start: Callable[..., Node]) -> None:
    node = start([(within(0), b"TIMED_OUT\r\n")])
    with Client([node.address]) as client:
        client.reserve(0)
        assert client._socket is not None
        assert client._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle_s = client._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        assert idle_s == dialing.KEEPALIVE_IDLE_S


def test_a_connection_whose_tube_is_not_restored_is_not_used(start: Callable[..., Node]) -> None:
    node = start(
        [(b"use t\r\n", b"USING t\r\n"), (b"stats-job 1\r\n", None)],
        [(b"use t\r\n", b"OUT_OF_MEMORY\r\n")],
        [
            (b"use t\r\n", b"USING t\r\n"),
            (b"stats-job 1\r\n", b"NOT_FOUND\r\n"),
            (b"put 5 0 60 2\r\nhi\r\n", b"INSERTED 7\r\n"),
        ],
    )
    with Client([node.address]) as client:
        client.use(b"t")
        assert client.text(b"stats-job", 1) is None
        assert client.put(b"hi", 5, 0, 60) == 7, "into its tube, not into `default`"


@pytest.mark.parametrize("refusal", [b"INTERNAL_ERROR\r\n", b"OUT_OF_MEMORY\r\n"])
@pytest.mark.parametrize("token", ["", "secret"])
def test_a_node_that_does_not_restore_a_connection_is_left(
    start: Callable[..., Node], refusal: bytes, token: str
) -> None:
    tube = (b"use t\r\n", b"USING t\r\n")
    begins = [USERS, (b"auth secret\r\n", b"ACCEPTED\r\n"), tube] if token else [tube]
    refused = begins[1] if token else tube
    first = start([*begins, (within(0), None)])
    second = start([*begins[: begins.index(refused)], (refused[0], refusal)])
    third = start([*begins, (within(0), b"RESERVED 3 1\r\nx\r\n")])
    addresses = [node.address for node in (first, second, third)]
    with Client(addresses, token=token) as client:
        client.use(b"t")
        assert client.reserve(0) == Job(3, b"x")


def test_a_tube_that_is_denied_on_a_later_connection_is_told_at_once(
    start: Callable[..., Node],
) -> None:
    first = start([(b"use t\r\n", b"USING t\r\n"), (within(0), None)])
    second = start([(b"use t\r\n", b"DENIED\r\n")])
    with Client([first.address, second.address]) as client:
        client.use(b"t")
        with pytest.raises(ClientError, match="lacks the right"):
            client.reserve(0)


def test_a_server_of_another_protocol_is_not_believed(start: Callable[..., Node]) -> None:
    node = start([(b"stats\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n")])
    with Client([node.address], patience_s=0) as client, pytest.raises(ClientError):
        client.text(b"stats")


def test_a_token_is_sent_before_anything_else(start: Callable[..., Node]) -> None:
    node = start([USERS, (b"auth secret\r\n", b"ACCEPTED\r\n"), (b"use t\r\n", b"USING t\r\n")])
    with Client([node.address], token="secret") as client:
        client.use(b"t")


@pytest.mark.parametrize("reply", [b"UNKNOWN_COMMAND\r\n", b"OK 17\r\n---\n- put-unique\n\r\n"])
def test_a_server_without_users_never_sees_a_token(
    start: Callable[..., Node], reply: bytes
) -> None:
    node = start([(EXTENSIONS, reply)])
    words = f"{node.address} does not support users"
    with Client([node.address], token="secret") as client, pytest.raises(ClientError, match=words):
        client.put(b"x")


def test_a_node_without_room_for_a_client_is_passed_over(start: Callable[..., Node]) -> None:
    full = start([(EXTENSIONS, b"OUT_OF_MEMORY\r\n")])
    node = start([USERS, (b"auth secret\r\n", b"ACCEPTED\r\n"), (b"delete 4\r\n", b"DELETED\r\n")])
    with Client([full.address, node.address], token="secret") as client:
        assert client.delete(4)


def test_a_token_that_nobody_has(start: Callable[..., Node]) -> None:
    node = start([USERS, (b"auth secret\r\n", b"DENIED\r\n")])
    with (
        Client([node.address], token="secret") as client,
        pytest.raises(ClientError, match="DENIED: no user has this token"),
    ):
        client.put(b"x")


def test_the_reply_to_an_interrupted_request_answers_no_other(start: Callable[..., Node]) -> None:
    node = start(
        [(b"kick 1\r\n", b"KICKED 1\r\n")],
        [(b"kick 2\r\n", b"KICKED 2\r\n")],
    )

    def interrupted() -> None:
        raise KeyboardInterrupt

    with Client([node.address]) as client:
        with pytest.raises(KeyboardInterrupt):
            client._request(lambda _: b"kick 1\r\n", interrupted, repeat=True, wait_s=0)
        assert client.kick(2) == 2
