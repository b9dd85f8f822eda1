"""A node that refuses a client's handshake of TLS has done nothing: another one is asked.

With TLS 1.3 the alert comes when the client has sent its first command.
"""

import asyncio
import ssl
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import uvloop

from beanpole.client import aio, beanstalk, blocking, workq
from beanpole.client.redis import Redis
from beanpole.client.refusal import is_refusal
from beanpole.client.sansio import batches, faults
from beanpole.client.sansio.session import TRIES_MAX
from beanpole.client.sansio.steps import Endpoint
from beanpole.client.stream import Unanswered
from beanpole.client.where import TLS_CA, TLS_CERTIFICATE, TLS_KEY
from beanpole.errors import OutcomeUnknown
from beanpoled.cli import main
from tests.unit.client.encrypted import Answer, Encrypted, certificates
from tests.unit.client.pretended import World, server

ALERT = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
BEANSTALK = {b"put": b"INSERTED 7\r\n", b"kick": b"KICKED 2\r\n", b"delete": b"NOT_FOUND\r\n"}
JOB = uuid.UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c4")
A, B, C = (Endpoint(name, 1) for name in "abc")


def alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


# --- the alerts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason",
    [
        ALERT,
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "SSL/TLS_ALERT_CERTIFICATE_EXPIRED",
        "TLSV1_ALERT_ACCESS_DENIED",
        "TLSV1_ALERT_DECRYPT_ERROR",
        "TLSV1_ALERT_UNKNOWN_CA",
    ],
)
def test_alerts_of_the_handshake_are_refusals(reason: str) -> None:
    assert is_refusal(alert(reason))


@pytest.mark.parametrize(
    "error",
    [
        alert("TLSV1_ALERT_INTERNAL_ERROR"),
        alert("SSLV3_ALERT_BAD_RECORD_MAC"),
        alert("TLSV1_ALERT_DECODE_ERROR"),
        alert("CERTIFICATE_VERIFY_FAILED"),
        alert("UNEXPECTED_EOF_WHILE_READING"),
        ssl.SSLError("without a reason"),
        ConnectionResetError("reset"),
        TimeoutError("timed out"),
    ],
    ids=repr,
)
def test_other_errors_prove_nothing(error: Exception) -> None:
    assert not is_refusal(error)


# --- on real sockets ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("refused"))


@pytest.fixture
def tls(place: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(place / "ca.pem"))


@pytest.fixture
def start(place: Path) -> Iterator[Callable[..., Encrypted]]:
    nodes: list[Encrypted] = []

    def begin(answer: Answer | None = None) -> Encrypted:
        nodes.append(Encrypted(place, answer))
        return nodes[-1]

    yield begin
    for node in nodes:
        node.close()


def by_word(data: bytes) -> bytes:
    return BEANSTALK[data.split(b" ")[0]]


def asked(kind: Any, addresses: list[str], command: str, *words: Any, **named: Any) -> Any:
    """Return the result of one command of a library's client that is made for it."""
    if kind is blocking:
        with blocking.Client(addresses, spread=False, **named) as client:
            return getattr(client, command)(*words)

    async def ask() -> Any:
        async with aio.Client(addresses, spread=False, **named) as client:
            return await getattr(client, command)(*words)

    with asyncio.Runner(loop_factory=kind) as runner:
        return runner.run(ask())


KINDS = pytest.mark.parametrize(
    "kind",
    [blocking, asyncio.new_event_loop, uvloop.new_event_loop],
    ids=["blocking", "asyncio", "uvloop"],
)


@KINDS
@pytest.mark.parametrize(
    ("command", "words", "result"),
    [("put", ("x",), 7), ("kick", (5,), 2), ("put_many", (["x"],), [7])],
)
def test_a_command_of_the_library_goes_to_the_node_that_does_not_refuse(
    kind: ModuleType,
    command: str,
    words: tuple[Any, ...],
    result: Any,
    start: Callable[..., Encrypted],
    tls: ssl.SSLContext,
) -> None:
    nodes = [start(), start(), start(by_word)]
    addresses = [node.address for node in nodes]
    assert asked(kind, addresses, command, *words, tls=tls) == result
    for node in nodes:
        node.close()
    assert nodes[0].refused and nodes[1].refused and len(nodes[2].asked) == 1


@KINDS
def test_a_delete_that_every_node_but_one_refused_was_not_repeated(
    kind: ModuleType, start: Callable[..., Encrypted], tls: ssl.SSLContext
) -> None:
    addresses = [start().address, start(by_word).address]
    with pytest.raises(faults.NotFoundError):
        asked(kind, addresses, "delete", 99999, tls=tls)


@KINDS
@pytest.mark.parametrize(("command", "word"), [("put", "x"), ("kick", 5), ("delete", 99999)])
def test_nodes_that_all_refuse_are_no_node(
    kind: ModuleType,
    command: str,
    word: Any,
    start: Callable[..., Encrypted],
    tls: ssl.SSLContext,
) -> None:
    addresses = [start().address, start().address]
    with pytest.raises(faults.NoNodeError) as told:
        asked(kind, addresses, command, word, tls=tls, patience_s=0.05)
    assert str(told.value).startswith("no node answers: ")
    assert all(one in str(told.value) for one in (*addresses, ALERT))


@pytest.mark.parametrize(
    ("make", "ask", "answer"),
    [
        (beanstalk.Client, lambda one: one.put(b"x"), b"INSERTED 7\r\n"),
        (workq.Client, lambda one: one.fail(JOB), b"+OK\r\n"),
        (Redis, lambda one: one.ask(b"PING"), b"+PONG\r\n"),
    ],
    ids=["beanstalk", "Workq", "Redis"],
)
def test_a_request_of_the_other_clients_goes_to_the_node_that_does_not_refuse(
    make: Any,
    ask: Callable[[Any], object],
    answer: bytes,
    start: Callable[..., Encrypted],
    tls: ssl.SSLContext,
) -> None:
    refusing = [start(), start()]
    good = start(lambda _: answer)
    with make([*(one.address for one in refusing), good.address], tls=tls) as client:
        ask(client)
    assert len(good.asked) == 1
    addresses = [one.address for one in refusing]
    client = make([*addresses, "127.0.0.1:1"], tls=tls, patience_s=0.0)
    with client, pytest.raises(Unanswered) as told:
        ask(client)
    assert told.value.refused_by == set(addresses)
    assert all(one in str(told.value) for one in (*addresses, ALERT, "127.0.0.1:1: Connection"))
    for one in refusing:
        one.close()
    assert [len(one.refused) for one in refusing] == [3, 2]


def test_a_node_that_was_heard_has_perhaps_done_what_its_alert_follows(
    start: Callable[..., Encrypted], tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start(by_word)
    with beanstalk.Client([node.address], tls=tls) as client:
        assert client.put(b"x") == 7

        def receive(_: object, size: int) -> bytes:
            if size == 1:  # the look at the idle connection, before the request is sent
                raise ssl.SSLWantReadError
            raise alert(ALERT)

        monkeypatch.setattr(ssl.SSLSocket, "recv", receive)
        try:
            with pytest.raises(OutcomeUnknown, match=ALERT):
                client.put(b"x")
        finally:
            monkeypatch.undo()


def test_a_command_that_every_node_refused_asks_none_of_them_for_a_hint(
    start: Callable[..., Encrypted],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A probe would count as another handshake that has failed."""
    defaults = beanstalk.Client.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "patience_s", 0.0)
    monkeypatch.setenv(TLS_CA, str(place / "ca.pem"))
    node = start()
    assert main(["put", "--addr", f"tls:{node.address}", "x"]) == 3
    told, hint = capsys.readouterr().err.splitlines()
    assert told.startswith(f"beanpole: no node answers: {node.address}: [SSL: {ALERT}]")
    missing = f"{TLS_CERTIFICATE}, {TLS_KEY}"
    assert hint.startswith(f"hint: {node.address} speaks TLS, and {missing}, which it may ask for")
    node.close()
    assert node.refused == ["PEER_DID_NOT_RETURN_A_CERTIFICATE"]


# --- without sockets ------------------------------------------------------------------------------

PLAIN = server(
    {
        b"put": b"INSERTED 7\r\n",
        b"delete": b"NOT_FOUND\r\n",
        b"kick": b"KICKED 1\r\n",
        b"use": b"USING t\r\n",
    }
)


def refusing(_: bytes) -> bytes:
    raise alert(ALERT)


def closing(_: bytes) -> bytes:
    return b""


def closing_once() -> Any:
    """Return a node that closes its first connection, and refuses the others."""
    left = [b""]
    return lambda data: left.pop() if left else refusing(data)


def world(*nodes: Any) -> World:
    found = World()
    found.nodes = dict(zip((A, B, C), nodes, strict=False))
    return found


def places(here: World) -> list[Endpoint]:
    return [place for place, _ in here.said]


def test_every_node_is_tried_before_one_is_tried_again() -> None:
    here = world(refusing, refusing, PLAIN)
    here.run(here.client("a:1,b:1,c:1").put("x", 1, 0, 60, None))
    assert places(here) == [A, B, C]


def test_nodes_that_refuse_are_asked_until_the_patience_is_over() -> None:
    here = world(refusing, refusing)
    with pytest.raises(faults.NoNodeError, match=f"^no node answers: a:1: .*{ALERT}.*; b:1: "):
        here.run(here.client("a:1,b:1").kick(1))
    assert 10 < here.now < 13
    assert len(here.said) > TRIES_MAX
    assert set(zip(places(here)[::2], places(here)[1::2], strict=False)) == {(A, B)}


def test_a_node_that_is_down_is_named_beside_those_that_refuse() -> None:
    here = world(refusing)
    with pytest.raises(faults.NoNodeError) as told:
        here.run(here.client("a:1,b:1").kick(1))
    assert ALERT in str(told.value) and "b:1: refused" in str(told.value)


def test_a_node_that_refuses_is_asked_first_again_by_the_next_command() -> None:
    here = world(refusing, PLAIN)
    client = here.client("a:1,b:1")
    here.run(client.kick(1))
    here.run(client.session.drop())
    here.nodes = {A: PLAIN, B: PLAIN}
    here.run(client.kick(1))
    assert places(here) == [A, B, A]


def test_an_attempt_before_the_refusals_may_be_done() -> None:
    here = world(closing_once(), refusing)
    with pytest.raises(faults.MayBeDoneError, match=ALERT):
        here.run(here.client("a:1,b:1").delete(7))
    here = world(closing, refusing, PLAIN)
    with pytest.raises(faults.MayBeDoneError, match="before the connection ended"):
        here.run(here.client("a:1,b:1,c:1").delete(7))


def test_refusals_are_no_attempts() -> None:
    here = world(refusing, closing)
    with pytest.raises(faults.MayBeDoneError, match="b:1"):
        here.run(here.client("a:1,b:1").kick(1))
    assert places(here) == [A, B]


def test_what_is_not_found_after_a_refusal_was_not_there() -> None:
    here = world(refusing, PLAIN)
    with pytest.raises(faults.NotFoundError):
        here.run(here.client("a:1,b:1").delete(7))


@pytest.mark.parametrize("is_restored", [False, True])
def test_the_alert_of_a_connection_that_was_heard_proves_nothing(is_restored: bool) -> None:
    here = world(lambda data: PLAIN(data) if data.startswith(b"use") else refusing(data))
    client = here.client("a:1")
    if is_restored:
        client.set_tubes("t", ["default"])
    else:
        here.run(client.use("t"))
    with pytest.raises(faults.MayBeDoneError, match=ALERT):
        here.run(client.kick(1))


@pytest.mark.parametrize("error", [alert("TLSV1_ALERT_INTERNAL_ERROR"), ConnectionResetError("r")])
def test_another_error_on_a_new_connection_proves_nothing(error: OSError) -> None:
    def failing(_: bytes) -> bytes:
        raise error

    with pytest.raises(faults.MayBeDoneError):
        here = world(failing, PLAIN)
        here.run(here.client("a:1,b:1").kick(1))


def test_a_batch_goes_to_the_node_that_does_not_refuse() -> None:
    here = world(refusing, refusing, PLAIN)
    client = here.client("a:1,b:1,c:1")
    assert here.run(batches.put_many(client, ["x"], 1, 0, 60)) == [7]
    assert places(here) == [A, B, C]
    here = world(refusing, PLAIN)
    assert here.run(batches.delete_many(here.client("a:1,b:1"), [7])) == [False]


def test_a_batch_that_all_nodes_refuse_was_not_sent() -> None:
    here = world(refusing, refusing)
    with pytest.raises(faults.BatchError) as told:
        here.run(batches.put_many(here.client("a:1,b:1"), ["x", "y"], 1, 0, 60))
    first, second = told.value.results
    assert isinstance(first, faults.NoNodeError) and second is None
    here = world(closing_once(), refusing)
    with pytest.raises(faults.BatchError, match=ALERT) as told:
        here.run(batches.delete_many(here.client("a:1,b:1"), [7]))
    assert isinstance(told.value.results[0], faults.MayBeDoneError)


def test_each_window_of_a_batch_has_the_whole_patience() -> None:
    """That of the first one was over when the third one met nodes that refuse."""
    here = World()
    waits_s = [6.0, 6.0]

    def slow(data: bytes) -> Any:
        if not waits_s:
            return refusing(data)
        here.now += waits_s.pop()
        return PLAIN(data)

    here.nodes = {A: slow, B: refusing}
    with pytest.raises(faults.BatchError):
        here.run(batches.delete_many(here.client("a:1,b:1"), list(range(1, 301))))
    assert here.now > 12 + 10
