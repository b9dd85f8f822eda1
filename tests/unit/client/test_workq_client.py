"""The Workq client against scripted nodes on real sockets."""

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from beanpole.client import stream, workq
from beanpole.client.workq import (
    Client,
    DuplicateJob,
    DuplicateResult,
    Job,
    JobInfo,
    JobNotFound,
    QueueInfo,
    Result,
    ServerInfo,
    State,
)
from beanpole.errors import ClientError, OutcomeUnknown
from tests.unit.client.scripted import Node, Script

JOB = uuid.UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c4")
ID = str(JOB).encode()
ADD = b"add %b q 60000 86400000 2\r\nhi\r\n" % ID
OK, NOT_FOUND, TIMEOUT = b"+OK\r\n", b"-NOT-FOUND\r\n", b"-TIMEOUT\r\n"
DRAINING = b"-SERVER-ERROR Draining\r\n"
MEMORY = b"-SERVER-ERROR Out of memory\r\n"
FULL = b"-SERVER-ERROR Too many clients\r\n"
DUPLICATE_JOB = b"-CLIENT-ERROR Duplicate job\r\n"
DUPLICATE_RESULT = b"-CLIENT-ERROR Duplicate result\r\n"
FAIL = b"fail %b 0\r\n\r\n" % ID
RUN = b"run %b q 500 1000 1\r\nx\r\n" % ID
INFO = b"name q\r\nttr 9\r\nttl 8\r\npayload-size 8\r\npayload a\r\nb 1\r\n\r\nmax-attempts 7\r\n"
INFO += b"attempts 6\r\nmax-fails 5\r\nfails 4\r\npriority -3\r\nstate %d\r\n"
INFO += b"created 2016-12-31T23:59:59Z\r\n"
NEW_YEAR = datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC)


def ended(success: int, result: bytes) -> bytes:
    return b"+OK 1\r\n%b %d %d\r\n%b\r\n" % (ID, success, len(result), result)


@pytest.fixture
def start() -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def begin(*scripts: Script) -> Node:
        nodes.append(Node(*scripts))
        return nodes[-1]

    yield begin
    for node in nodes:
        node.finish()


def test_a_whole_session(start: Callable[..., Node]) -> None:
    flagged = b"add %b q 1 2 0 -priority=-3 -max-attempts=4 -max-fails=5\r\n\r\n" % ID
    scheduled = b"schedule %b q 1 2 2016-12-31T23:59:59Z 0\r\n\r\n" % ID
    node = start(
        [
            (ADD, OK),
            (flagged, DUPLICATE_JOB),
            (scheduled, b"-CLIENT-ERROR Invalid Time\r\n"),
            (b"lease q p 100\r\n", b"+OK 1\r\n%b q 9 2\r\nhi\r\n" % ID),
            (b"lease q 0\r\n", TIMEOUT),
            (b"result %b 5\r\n" % ID, TIMEOUT),
            (b"complete %b 2\r\nok\r\n" % ID, OK),
            (b"complete %b 2\r\nok\r\n" % ID, DUPLICATE_RESULT),
            (FAIL, NOT_FOUND),
            (b"result %b 5\r\n" % ID, ended(1, b"\r\n")),
            (b"result %b 5\r\n" % ID, NOT_FOUND),
            (RUN, ended(0, b"bad")),
            (RUN, TIMEOUT),
            (b"delete %b\r\n" % ID, OK),
            (b"delete %b\r\n" % ID, NOT_FOUND),
        ]
    )
    with Client([node.address]) as client:
        assert client.add(b"q", b"hi", job=JOB) == JOB
        with pytest.raises(DuplicateJob):
            limits = {"priority": -3, "max_attempts": 4, "max_fails": 5}
            client.add(b"q", b"", job=JOB, ttr_ms=1, ttl_ms=2, **limits)
        there = timezone(timedelta(hours=5))
        with pytest.raises(ClientError, match="Invalid Time"):
            client.schedule(b"q", b"", NEW_YEAR.astimezone(there), job=JOB, ttr_ms=1, ttl_ms=2)
        assert client.lease([b"q", b"p"], 100) == Job(JOB, b"q", 9, b"hi")
        assert client.lease([b"q"], 0) is None
        assert client.result(JOB, 5) is None
        client.complete(JOB, b"ok")
        with pytest.raises(DuplicateResult):
            client.complete(JOB, b"ok")
        with pytest.raises(JobNotFound):
            client.fail(JOB)
        assert client.result(JOB, 5) == Result(True, b"\r\n")
        with pytest.raises(JobNotFound):
            client.result(JOB, 5)
        assert client.run(b"q", b"x", wait_ms=1000, job=JOB, ttr_ms=500) == Result(False, b"bad")
        assert client.run(b"q", b"x", wait_ms=1000, job=JOB, ttr_ms=500) is None
        assert client.delete(JOB)
        assert not client.delete(JOB)


def test_everything_can_be_inspected(start: Callable[..., Node]) -> None:
    server = b"active-clients 2\r\nevicted-jobs 3\r\nstarted 2016-12-31T23:59:59Z\r\n"
    queue = b"q 2\r\nready-len 4\r\nscheduled-len 5\r\n"
    job = b"%b 12\r\n" % ID + INFO % 3
    scheduled = b"%b 13\r\n" % ID + INFO % 0 + b"time 2016-12-31T23:59:59Z\r\n"
    node = start(
        [
            (b"inspect server\r\n", b"+OK 1\r\nserver 3\r\n" + server),
            (b"inspect queues 1 2\r\n", b"+OK 2\r\n" + queue * 2),
            (b"inspect queue q\r\n", b"+OK 1\r\n" + queue),
            (b"inspect queue p\r\n", NOT_FOUND),
            (b"inspect job %b\r\n" % ID, b"+OK 1\r\n" + job),
            (b"inspect job %b\r\n" % ID, NOT_FOUND),
            (b"inspect jobs q 0 100\r\n", b"+OK 2\r\n" + job * 2),
            (b"inspect scheduled-jobs q 0 1\r\n", b"+OK 1\r\n" + scheduled),
            (b"inspect scheduled-jobs q 0 0\r\n", b"-CLIENT-ERROR Invalid limit\r\n"),
        ]
    )
    numbers = (9, 8, b"a\r\nb 1\r\n", 7, 6, 5, 4, -3)
    with Client([node.address]) as client:
        assert client.inspect_server() == ServerInfo(2, 3, NEW_YEAR)
        assert client.inspect_queues(1, 2) == [QueueInfo(b"q", 4, 5)] * 2
        assert client.inspect_queue(b"q") == QueueInfo(b"q", 4, 5)
        assert client.inspect_queue(b"p") is None
        info = JobInfo(JOB, b"q", *numbers, State.PENDING, NEW_YEAR, None)
        assert client.inspect_job(JOB) == info
        with pytest.raises(JobNotFound):
            client.inspect_job(JOB)
        assert client.inspect_jobs(b"q") == [info] * 2
        (found,) = client.inspect_scheduled_jobs(b"q", limit=1)
        assert found == JobInfo(JOB, b"q", *numbers, State.NEW, NEW_YEAR, NEW_YEAR)
        with pytest.raises(ClientError, match="CLIENT-ERROR Invalid limit"):
            client.inspect_scheduled_jobs(b"q", limit=0)


def without_result(state: State) -> Script:
    """Return what a client asks when the wait of its run is over, and the answers."""
    info = b"+OK 1\r\n%b 12\r\n" % ID + INFO % state
    return [(b"result %b 0\r\n" % ID, TIMEOUT), (b"inspect job %b\r\n" % ID, info)]


def lost(start: Callable[..., Node], request: bytes, *then: tuple[bytes, bytes | None]) -> Client:
    """Return a client whose node fails at its first request, and another node."""
    dying = start([(request, None)])
    other = start(list(then)) if then else start()
    return Client([dying.address, other.address])


@pytest.mark.parametrize("reply", [OK, DUPLICATE_JOB])
def test_an_add_is_repeated(start: Callable[..., Node], reply: bytes) -> None:
    with lost(start, ADD, (ADD, reply)) as client:
        assert client.add(b"q", b"hi", job=JOB) == JOB


def test_what_only_reads_is_repeated(start: Callable[..., Node]) -> None:
    request = b"result %b 0\r\n" % ID
    with lost(start, request, (request, ended(1, b"r"))) as client:
        assert client.result(JOB, 0) == Result(True, b"r")


def test_a_lease_is_repeated(start: Callable[..., Node]) -> None:
    with lost(start, b"lease q 0\r\n", (b"lease q 0\r\n", TIMEOUT)) as client:
        assert client.lease([b"q"], 0) is None


@pytest.mark.parametrize(
    ("then", "error"),
    [
        ([OK], None),
        ([DUPLICATE_RESULT, ended(1, b"r")], None),
        ([DUPLICATE_RESULT, ended(1, b"other")], DuplicateResult),
        ([DUPLICATE_RESULT, ended(0, b"r")], DuplicateResult),
        ([NOT_FOUND], OutcomeUnknown),
        ([DUPLICATE_RESULT, NOT_FOUND], OutcomeUnknown),
    ],
)
def test_a_complete_is_repeated(
    start: Callable[..., Node], then: list[bytes], error: type[ClientError] | None
) -> None:
    request = b"complete %b 1\r\nr\r\n" % ID
    script = zip((request, b"result %b 0\r\n" % ID), then, strict=False)
    with lost(start, request, *script) as client:
        if error is None:
            client.complete(JOB, b"r")
        else:
            with pytest.raises(error):
                client.complete(JOB, b"r")


def test_a_fail_is_not_repeated(start: Callable[..., Node]) -> None:
    with lost(start, FAIL) as client, pytest.raises(OutcomeUnknown):
        client.fail(JOB)


@pytest.mark.parametrize("reply", [OK, NOT_FOUND])
def test_a_delete_is_repeated(start: Callable[..., Node], reply: bytes) -> None:
    request = b"delete %b\r\n" % ID
    with lost(start, request, (request, reply)) as client:
        assert client.delete(JOB)


def test_of_a_run_the_result_is_asked_for(start: Callable[..., Node]) -> None:
    """The wait ends with the connection, so nothing remains of it."""
    result, deleted = b"result %b 0\r\n" % ID, (b"delete %b\r\n" % ID, OK)
    run = RUN.replace(b" 1000 ", b" 0 ")
    with lost(start, run, (result, ended(1, b"r")), deleted) as client:
        assert client.run(b"q", b"x", wait_ms=0, job=JOB, ttr_ms=500) == Result(True, b"r")


def test_a_run_whose_job_a_worker_has_waits_for_its_ttr(start: Callable[..., Node]) -> None:
    run = RUN.replace(b" 1000 ", b" 0 ")
    script = [
        (b"result %b 0\r\n" % ID, TIMEOUT),
        (b"inspect job %b\r\n" % ID, b"+OK 1\r\n%b 12\r\n" % ID + INFO % 4),
        (b"result %b 500\r\n" % ID, ended(0, b"late")),
        (b"delete %b\r\n" % ID, OK),
    ]
    with lost(start, run, *script) as client:
        assert client.run(b"q", b"x", wait_ms=0, job=JOB, ttr_ms=500) == Result(False, b"late")


def test_a_run_that_no_node_knows_is_not_begun_again(start: Callable[..., Node]) -> None:
    run = RUN.replace(b" 1000 ", b" 0 ")
    with (
        lost(start, run, (b"result %b 0\r\n" % ID, NOT_FOUND)) as client,
        pytest.raises(OutcomeUnknown),
    ):
        client.run(b"q", b"x", wait_ms=0, job=JOB, ttr_ms=500)


def test_a_node_that_drains_is_left(start: Callable[..., Node]) -> None:
    draining = start([(ADD, b"-SERVER-ERROR Draining\r\n")])
    other = start([(ADD, OK)])
    with Client([draining.address, other.address]) as client:
        assert client.add(b"q", b"hi", job=JOB) == JOB


@pytest.mark.parametrize(
    ("request_", "reply", "ask"),
    [
        (ADD, OK, lambda client: client.add(b"q", b"hi", job=JOB)),
        (FAIL, OK, lambda client: client.fail(JOB)),
        (b"lease q 0\r\n", TIMEOUT, lambda client: client.lease([b"q"], 0)),
        (RUN, TIMEOUT, lambda client: client.run(b"q", b"x", wait_ms=1000, job=JOB, ttr_ms=500)),
    ],
    ids=["add", "fail", "lease", "run"],
)
def test_a_node_without_room_for_a_client_is_left(
    start: Callable[..., Node], request_: bytes, reply: bytes, ask: Callable[[Client], object]
) -> None:
    full, other = start([(request_, FULL)]), start([(request_, reply)])
    with Client([full.address, other.address]) as client:
        ask(client)
    alone = start([(request_, FULL)], [(request_, reply)])
    with Client([alone.address]) as client:
        with pytest.raises(ClientError, match="Too many clients"):
            ask(client)
        ask(client)  # on a new connection: a full node closes


def test_an_add_is_repeated_at_a_node_that_does_not_drain(start: Callable[..., Node]) -> None:
    dying, draining = start([(ADD, None)]), start([(ADD, DRAINING)])
    other = start([(ADD, DUPLICATE_JOB)])
    with Client([dying.address, draining.address, other.address]) as client:
        assert client.add(b"q", b"hi", job=JOB) == JOB


def test_an_add_that_may_be_done_is_not_said_to_be_refused(start: Callable[..., Node]) -> None:
    dying = start([(ADD, None)], [(ADD, DRAINING)])
    with (
        Client([dying.address, start([(ADD, DRAINING)]).address]) as client,
        pytest.raises(OutcomeUnknown),
    ):
        client.add(b"q", b"hi", job=JOB)


NO_MAJORITY = b"-SERVER-ERROR No majority of the cluster answers\r\n"


@pytest.mark.parametrize("refusal", [NO_MAJORITY, b"-CLIENT-ERROR Denied\r\n"])
@pytest.mark.parametrize(
    ("request_", "ask"),
    [
        (ADD, lambda client: client.add(b"q", b"hi", job=JOB)),
        (b"complete %b 1\r\nr\r\n" % ID, lambda client: client.complete(JOB, b"r")),
        (b"delete %b\r\n" % ID, lambda client: client.delete(JOB)),
    ],
    ids=["add", "complete", "delete"],
)
def test_a_repetition_that_is_refused_tells_nothing_of_the_first_attempt(
    start: Callable[..., Node],
    request_: bytes,
    ask: Callable[[Client], object],
    refusal: bytes,
) -> None:
    with lost(start, request_, (request_, refusal)) as client, pytest.raises(OutcomeUnknown):
        ask(client)


@pytest.mark.parametrize(
    ("request_", "ask"),
    [
        (ADD, lambda client: client.add(b"q", b"hi", job=JOB)),
        (b"complete %b 1\r\nr\r\n" % ID, lambda client: client.complete(JOB, b"r")),
        (b"delete %b\r\n" % ID, lambda client: client.delete(JOB)),
        (RUN, lambda client: client.run(b"q", b"x", wait_ms=1000, job=JOB, ttr_ms=500)),
    ],
    ids=["add", "complete", "delete", "run"],
)
def test_what_may_be_done_is_not_said_to_be_undone_where_no_node_is_left(
    start: Callable[..., Node], request_: bytes, ask: Callable[[Client], object]
) -> None:
    dying = start([(request_, None)])
    with (
        Client([dying.address], patience_s=0) as client,
        pytest.raises(OutcomeUnknown, match="no node answers"),
    ):
        ask(client)


@pytest.mark.parametrize(
    ("reply", "why"), [(MEMORY, "Out of memory"), (NOT_FOUND, "NOT-FOUND"), (None, "connection")]
)
def test_a_run_whose_end_is_refused_may_still_be_done(
    start: Callable[..., Node], reply: bytes | None, why: str
) -> None:
    run = RUN.replace(b" 1000 ", b" 0 ")
    script = [*without_result(State.NEW), (FAIL, reply)]
    with lost(start, run, *script) as client, pytest.raises(OutcomeUnknown, match=why):
        client.run(b"q", b"x", wait_ms=0, job=JOB, ttr_ms=500)


@pytest.mark.parametrize("deleted", [OK, MEMORY, NOT_FOUND])
def test_a_run_without_a_result_ends_its_job(start: Callable[..., Node], deleted: bytes) -> None:
    """No worker can complete it then, deleted or not."""
    run = RUN.replace(b" 1000 ", b" 0 ")
    script = [*without_result(State.PENDING), (FAIL, OK), (b"delete %b\r\n" % ID, deleted)]
    with lost(start, run, *script) as client:
        assert client.run(b"q", b"x", wait_ms=0, job=JOB, ttr_ms=500) is None


@pytest.mark.parametrize("state", State)
def test_a_result_that_comes_after_the_wait_of_a_run_is_not_deleted_unread(
    start: Callable[..., Node], state: State
) -> None:
    """The run returned None, as if no worker had done the job."""
    run = RUN.replace(b" 1000 ", b" 0 ")
    script = without_result(state)
    if state == State.LEASED:
        script.append((b"result %b 500\r\n" % ID, TIMEOUT))
    script += [
        (FAIL, DUPLICATE_RESULT),
        (b"result %b 0\r\n" % ID, ended(1, b"done")),
        (b"delete %b\r\n" % ID, OK),
    ]
    with lost(start, run, *script) as client:
        assert client.run(b"q", b"x", wait_ms=0, job=JOB, ttr_ms=500) == Result(True, b"done")


def test_a_lease_that_is_refused_says_why(start: Callable[..., Node]) -> None:
    node = start([(b"lease q 5\r\n", b"-CLIENT-ERROR Denied\r\n")])
    with Client([node.address]) as client, pytest.raises(ClientError, match="ERROR Denied"):
        client.lease([b"q"], 5)


def test_the_result_of_a_run_is_returned_though_its_job_is_not_deleted(
    start: Callable[..., Node],
) -> None:
    run = RUN.replace(b" 1000 ", b" 0 ")
    result, deletion = b"result %b 0\r\n" % ID, b"delete %b\r\n" % ID
    with lost(start, run, (result, ended(1, b"r")), (deletion, MEMORY)) as client:
        assert client.run(b"q", b"x", wait_ms=0, job=JOB, ttr_ms=500) == Result(True, b"r")


def test_errors_of_the_cluster_are_the_nodes_words(start: Callable[..., Node]) -> None:
    node = start([(ADD, MEMORY)])
    with Client([node.address]) as client, pytest.raises(ClientError, match="SERVER-ERROR Out of"):
        client.add(b"q", b"hi", job=JOB)


@pytest.mark.parametrize("reply", [b"OK\r\n", b"+OK 2\r\n", b"x" * 2000, b"+OK 1\r\na 1 x\r\n"])
def test_what_is_no_workq_server(start: Callable[..., Node], reply: bytes) -> None:
    node = start([(b"result %b 5\r\n" % ID, reply)])
    with Client([node.address], patience_s=0) as client, pytest.raises(ClientError):
        client.result(JOB, 5)


@pytest.mark.parametrize("name", [b"", b"a b", b"a\r\n", b"-a=b"])
def test_a_name_that_would_be_something_else_is_not_sent(name: bytes) -> None:
    with Client(["127.0.0.1:1"]) as client, pytest.raises(ValueError, match="not a word"):
        client.add(name, b"x")


def test_what_says_nothing_is_not_sent() -> None:
    with Client(["127.0.0.1:1"]) as client:
        with pytest.raises(ValueError, match="needs the name of a queue"):
            client.lease([])
        with pytest.raises(ValueError, match="a time without a zone"):
            client.schedule(b"q", b"x", datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="needs an address"):
        Client([])


def test_what_is_too_large_is_not_sent(start: Callable[..., Node]) -> None:
    """Its second error would be taken for the reply of the next request."""
    node = start([(ADD, OK)])
    with Client([node.address]) as client:
        for ask in (client.complete, client.fail):
            with pytest.raises(ValueError, match="1048577 bytes; 1048576 are allowed"):
                ask(JOB, b"x" * (1024 * 1024 + 1))
        with pytest.raises(ValueError, match="1048577 bytes"):
            client.add(b"q", b"x" * (1024 * 1024 + 1))
        assert client.add(b"q", b"hi", job=JOB) == JOB


def test_a_wait_that_is_repeated_waits_for_its_rest(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start([(b"lease q 60000\r\n", None)], [(b"result %b 500\r\n" % ID, TIMEOUT)])
    second = start([(b"lease q 47500\r\n", TIMEOUT), (b"result %b 2000\r\n" % ID, None)])
    now_s = 0.0
    waits_s = [12.5, 47.5, 1.5, 0.5]
    exchange = Client._exchange

    def waits(*arguments: Any) -> Any:
        nonlocal now_s
        now_s += waits_s.pop(0)
        return exchange(*arguments)

    monkeypatch.setattr(Client, "_exchange", waits)
    clock = SimpleNamespace(monotonic=lambda: now_s, sleep=lambda _: None)
    monkeypatch.setattr(stream, "time", clock)
    with Client([first.address, second.address]) as client:
        assert client.lease([b"q"]) is None
        assert client.result(JOB, 2000) is None


def test_a_lease_that_a_full_node_refuses_waits_for_its_rest(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0

    def takes_a_while(*arguments: Any, **options: Any) -> Any:
        nonlocal now_s
        reply = request(*arguments, **options)
        now_s += 12.5
        return reply

    request = Client._request
    monkeypatch.setattr(Client, "_request", takes_a_while)
    monkeypatch.setattr(workq, "time", SimpleNamespace(monotonic=lambda: now_s))
    full = start([(b"lease q 60000\r\n", FULL)])
    other = start([(b"lease q 47500\r\n", TIMEOUT)])
    with Client([full.address, other.address]) as client:
        assert client.lease([b"q"]) is None
