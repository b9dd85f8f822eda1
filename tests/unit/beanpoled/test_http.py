"""The HTTP port over real sockets: replies to probes, and to bad requests."""

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from beanpoled.http import metrics
from beanpoled.http import server as http_server
from beanpoled.http.server import (
    CONNECTIONS_MAX,
    METRICS_REST,
    REQUEST_BYTES_MAX,
    HttpServer,
)
from beanpoled.view import (
    ClientFigures,
    Lately,
    Metrics,
    NodeView,
    QlessCounts,
    QlessFigures,
    QlessQueueFigures,
    Quantiles,
    QueueFigures,
    SpaceFigures,
)
from tests.unit.beanpoled.fakes import FakeView, until


def ask(view: FakeView, *requests: bytes) -> list[tuple[int, str]]:
    """Send requests over one connection; return the status and the rest of each reply."""

    async def run() -> list[tuple[int, str]]:
        server = HttpServer(view)
        port = await server.start("127.0.0.1:0")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(requests))
        answers = []
        for request in requests:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            size = int(head.split("Content-Length: ")[1].split("\r\n")[0])
            body = b"" if request.startswith(b"HEAD") else await reader.readexactly(size)
            answers.append((int(head.split()[1]), head + body.decode()))
        if "Connection: close" in answers[-1][1]:
            assert await reader.read() == b""
        writer.close()
        await server.stop()
        return answers

    return asyncio.run(run())


def get(view: FakeView, target: str) -> tuple[int, str]:
    return ask(view, f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())[0]


def test_all_addresses_are_those_of_both_versions_of_ip() -> None:
    """The event loops restrict a socket that they bind themselves to IPv6."""

    async def run() -> None:
        server = HttpServer(FakeView())
        port = await server.start("[::]:0")
        try:
            for host in ("127.0.0.1", "::1"):
                socket.create_connection((host, port), 60).close()
        finally:
            await server.stop()

    uvloop.run(run())


def test_a_ready_follower() -> None:
    status, text = get(FakeView(), "/readyz")
    assert status == 200
    assert "[+]leader: n1" in text
    assert get(FakeView(), "/livez")[0] == 200
    status, text = get(FakeView(), "/readyz?leader=1")
    assert status == 503
    assert "[-]is-leader: role follower" in text


def test_the_leader() -> None:
    view = FakeView()
    view.role = "leader"
    view.leader = "n0"
    assert get(view, "/readyz?leader=1")[0] == 200
    assert get(view, "/readyz?leader=0")[0] == 200


def no_leader(view: FakeView) -> None:
    view.leader = None


def behind(view: FakeView) -> None:
    view.caught_up = False


def closed(view: FakeView) -> None:
    view.serving = False


def draining(view: FakeView) -> None:
    view.draining = True


def founding(view: FakeView) -> None:
    view.absent = ("n1", "n2")


def rejoining(view: FakeView) -> None:
    view.rejoining = True


def full(view: FakeView) -> None:
    view.disk_full = True


@pytest.mark.parametrize("change", [no_leader, behind, closed, draining, founding, rejoining, full])
def test_not_ready_but_alive(change: Callable[[FakeView], None]) -> None:
    view = FakeView()
    change(view)
    assert get(view, "/readyz")[0] == 503
    assert get(view, "/livez")[0] == 200


def test_a_node_without_a_cluster_names_the_members_it_waits_for() -> None:
    view = FakeView()
    assert "[+]cluster: birth 89abcdef" in get(view, "/readyz")[1]
    view.absent = ("n1", "n2")
    assert "[-]cluster: waiting for n1, n2 to found the cluster" in get(view, "/readyz")[1]
    view.rejoining = True
    assert "[-]cluster: waiting for n1, n2\n" in get(view, "/readyz")[1]


def test_a_node_whose_log_has_no_room_names_the_remedy() -> None:
    view = FakeView()
    assert "[+]room: the log can grow\n" in get(view, "/readyz")[1]
    view.disk_full = True
    assert "[-]room: the disk is full: remove other files" in get(view, "/readyz")[1]


def test_a_failed_or_stuck_node_is_not_alive() -> None:
    view = FakeView()
    view.failure = "fdatasync: Input/output error"
    status, text = get(view, "/livez")
    assert status == 503
    assert "[-]failure: fdatasync: Input/output error" in text
    assert get(view, "/readyz")[0] == 503
    view.failure = None
    view.loop_lag_s = 60.0
    assert get(view, "/livez")[0] == 503


def test_metrics() -> None:
    view = FakeView()
    view.cluster = 'a"b\\c\nd'
    view.numbers.clients = {
        "beanstalk": ClientFigures(4, 9, 1, 2, {"put": 3, "delete": 2}),
        "toy": ClientFigures(connections=1, commands_total={"put": 7}),
    }
    view.numbers.spaces = {
        "beanstalk": SpaceFigures(1, 2, 3, 4, 0, 5, 60, 7, 0),
        "workq": SpaceFigures(kept=8, queues=2, expired_total=3),
    }
    view.numbers.clients["qless"] = ClientFigures(
        slow_total=2, calls_total={"put": 6}, errors_total={"no_job": 1}
    )
    queues = [QlessQueueFigures(b'a"\xff', False, QlessCounts(waiting=3))]
    jobs = QlessCounts(3, 1, 0, 0, 2, 4)
    view.numbers.audit_lost_total = 12
    view.numbers.qless = QlessFigures(jobs, 5, 6, queues, 7, 8, 9, 10, 11, subscribers=1)
    status, text = get(view, "/metrics")
    assert status == 200
    assert "Content-Type: text/plain; version=0.0.4" in text
    lines = text.splitlines()
    for line in (
        'beanpole_role{role="follower"} 1',
        'beanpole_role{role="leader"} 0',
        "beanpole_term 3",
        "beanpole_machine_version 2",
        "beanpole_machine_version_known 3",
        "beanpole_commit_index 9",
        "beanpole_applied_index 8",
        "beanpole_fsync_duration_seconds_sum 0.25",
        "beanpole_fsync_duration_seconds_count 5",
        "beanpole_outbox_bytes 77",
        "beanpole_loop_lag_seconds 0",
        'beanpole_peer_up{peer="n1"} 1',
        'beanpole_peer_up{peer="n2"} 0',
        'beanpole_jobs{state="delayed",scope="cluster"} 3',
        'beanpole_connections{protocol="beanstalk"} 4',
        'beanpole_connections{protocol="toy"} 1',
        'beanpole_connections_total{protocol="beanstalk"} 9',
        'beanpole_connections_refused_total{protocol="beanstalk"} 1',
        'beanpole_waiting{protocol="beanstalk"} 2',
        'beanpole_commands_total{protocol="beanstalk",command="put"} 3',
        'beanpole_commands_total{protocol="toy",command="put"} 7',
        'beanpole_protocol_jobs{protocol="beanstalk",state="buried",scope="cluster"} 4',
        'beanpole_protocol_jobs{protocol="workq",state="kept",scope="cluster"} 8',
        'beanpole_protocol_queues{protocol="workq",scope="cluster"} 2',
        'beanpole_protocol_jobs_total{protocol="beanstalk",scope="cluster"} 60',
        'beanpole_protocol_timeouts_total{protocol="beanstalk",scope="cluster"} 7',
        'beanpole_protocol_expired_total{protocol="workq",scope="cluster"} 3',
        'beanpole_connections_slow_total{protocol="qless"} 2',
        'beanpole_qless_jobs{state="throttled",scope="cluster"} 2',
        'beanpole_qless_jobs{state="recurring",scope="cluster"} 4',
        'beanpole_qless_jobs{state="failed",scope="cluster"} 5',
        'beanpole_qless_jobs{state="complete",scope="cluster"} 6',
        'beanpole_qless_queue_jobs{queue="a\\"\\\\xff",state="waiting",scope="cluster"} 3',
        'beanpole_qless_workers{scope="cluster"} 7',
        'beanpole_qless_throttles{scope="cluster"} 8',
        'beanpole_qless_throttle_locks{scope="cluster"} 9',
        'beanpole_qless_failure_groups{scope="cluster"} 10',
        'beanpole_qless_locks_lost_total{scope="cluster"} 11',
        'beanpole_qless_calls_total{call="put"} 6',
        'beanpole_error_replies_total{protocol="qless",error="no_job"} 1',
        "beanpole_qless_subscribers 1",
        "beanpole_audit_lost_total 12",
    ):
        assert line in lines
    assert r'cluster="a\"b\\c\nd"' in text


def test_a_page_of_metrics_looks_at_the_queues_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Metrics] = []
    view = FakeView()

    def look() -> Metrics:
        looks.append(view.numbers)
        return view.numbers

    monkeypatch.setattr(view, "metrics", look)
    assert get(view, "/metrics")[0] == 200
    assert len(looks) == 1


def test_a_node_that_has_not_caught_up_says_nothing_of_the_cluster() -> None:
    view = FakeView()
    view.caught_up = False
    text = get(view, "/metrics")[1]
    assert "beanpole_applied_index 8" in text and "scope=" not in text


def test_metrics_of_queues_limits_and_syncs() -> None:
    view = FakeView()
    lately = Lately(wait=Quantiles(0.25, 0.5, 2.0, 9))
    view.numbers.queues = [QueueFigures("gearman", "resize", 5, buried=1, lately=lately)]
    view.numbers.limits = {"jobs_max": 100}
    view.numbers.fsync_counts = (0, 0, 0, 0, 0, 1, 0, 3, *(0 for _ in range(15)), 1)
    lines = get(view, "/metrics")[1].splitlines()
    for line in (
        "# TYPE beanpole_fsync_duration_seconds histogram",
        'beanpole_fsync_duration_seconds_bucket{le="6.4e-05"} 1',
        'beanpole_fsync_duration_seconds_bucket{le="0.000128"} 4',
        'beanpole_fsync_duration_seconds_bucket{le="4.194304"} 4',
        'beanpole_fsync_duration_seconds_bucket{le="+Inf"} 5',
        'beanpole_limit{name="jobs_max"} 100',
        'beanpole_queue_wait_p99_seconds{protocol="gearman",queue="resize",scope="cluster"} 2',
        'beanpole_queue_jobs{protocol="gearman",queue="resize",state="ready",scope="cluster"} 5',
        'beanpole_queue_jobs{protocol="gearman",queue="resize",state="buried",scope="cluster"} 1',
    ):
        assert line in lines
    # Without a run there is no value: 0 would look like a run of no duration.
    assert not [line for line in lines if line.startswith("beanpole_queue_run_p50_seconds{")]


def test_jobs_of_all_other_queues_make_the_sums_whole() -> None:
    view = FakeView()
    view.numbers.spaces = {
        "beanstalk": SpaceFigures(ready=4),
        "gearman": SpaceFigures(ready=12, buried=1),
        "qless": SpaceFigures(ready=3),
    }
    view.numbers.queues = [
        QueueFigures("gearman", "resize", 5, buried=1),
        QueueFigures("gearman", "mail", 4),
    ]
    lines = get(view, "/metrics")[1].splitlines()
    for protocol, state, n in (
        ("beanstalk", "ready", 4),
        ("gearman", "ready", 3),
        ("gearman", "buried", 0),
    ):
        labels = f'protocol="{protocol}",state="{state}",scope="cluster"'
        assert f"beanpole_other_queues_jobs{{{labels}}} {n}" in lines
    # Queues of qless have their own metrics.
    assert not [line for line in lines if "other_queues" in line and "qless" in line]


def test_each_family_is_declared_once_before_its_samples() -> None:
    body = get(FakeView(), "/metrics")[1].split("\r\n\r\n", 1)[1]
    names = [line.split()[2] for line in body.splitlines() if line.startswith("# TYPE")]
    assert len(set(names)) == len(names)
    kinds = {line.split()[2]: line.split()[3] for line in body.splitlines() if "# TYPE" in line}
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds.items())


def test_a_connection_is_closed_if_one_of_several_options_says_so() -> None:
    request = b"GET /livez HTTP/1.1\r\nConnection: keep-alive, Close\r\n\r\n"
    ((status, page),) = ask(FakeView(), request)
    assert status == 200 and "Connection: close" in page


def test_several_requests_on_one_connection() -> None:
    request = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"HEAD /metrics HTTP/1.1\r\n\r\n"
    last = b"GET /none HTTP/1.1\r\nConnection: close\r\n\r\n"
    answers = ask(FakeView(), request, head, request, last)
    assert [status for status, _ in answers] == [200, 200, 200, 404]


def test_requests_that_come_together_let_others_work_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count, takes_s, pages = 50, 0.001, []

    def render(view: NodeView) -> str:
        pages.append(view)
        end_s = time.monotonic() + takes_s
        while time.monotonic() < end_s:
            pass
        return "page\n"

    monkeypatch.setattr(metrics, "render", render)

    async def run() -> int:
        turns = 0

        async def work() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        server = HttpServer(FakeView())
        port = await server.start("127.0.0.1:0")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        working = asyncio.create_task(work())
        begun_s = time.monotonic()
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n" * count)
        for _ in range(count):
            await reader.readuntil(b"page\n")
        assert len(pages) <= 1 + (time.monotonic() - begun_s) / (takes_s * (1 + METRICS_REST))
        working.cancel()
        writer.close()
        await server.stop()
        return turns

    assert asyncio.run(run()) >= count


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"GET /livez/ HTTP/1.1\r\n\r\n", 404),
        (b"POST /livez HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"DELETE /metrics HTTP/1.1\r\nConnection: close\r\n\r\n", 405),
        (b"GET /livez HTTP/2.0\r\n\r\n", 505),
        (b"GET /livez\r\n\r\n", 400),
        (b"GET http://[/ HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        (b"\xff\x00\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nnonsense\r\n\r\n", 400),
        (b"GET /livez HTTP/1.0\r\n\r\n", 200),
        (b"GET /" + b"x" * REQUEST_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 431),
    ],
)
def test_an_odd_request_gets_an_answer_and_its_end(request_bytes: bytes, status: int) -> None:
    answer, text = ask(FakeView(), request_bytes)[0]
    assert answer == status
    if status == 405:
        assert "Allow: GET, HEAD" in text


def test_a_client_that_leaves_early_disturbs_nobody() -> None:
    async def run() -> bytes:
        server = HttpServer(FakeView())
        port = await server.start("127.0.0.1:0")
        _, gone = await asyncio.open_connection("127.0.0.1", port)
        gone.write(b"GET /li")
        gone.close()
        await gone.wait_closed()
        _, idle = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        answer = await reader.readline()
        writer.close()
        await server.stop()
        idle.close()
        return answer

    assert asyncio.run(run()) == b"HTTP/1.1 200 OK\r\n"


def test_idle_connections_keep_no_probe_away() -> None:
    async def run() -> None:
        server = HttpServer(FakeView())
        port = await server.start("127.0.0.1:0")
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert await idle[0][0].read() == b""  # the oldest connection is closed
        idle[-1][1].write(b"GET /livez HTTP/1.1\r\n\r\n")
        assert (await idle[-1][0].readline()).startswith(b"HTTP/1.1 200")
        for _, other in [*idle, (reader, writer)]:
            other.close()
        await server.stop()

    asyncio.run(run())


def test_a_client_that_resets_its_connection_while_its_page_is_made() -> None:
    """uvloop, which nodes use, raises an error of its own for a write to such a connection."""
    wrong: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: wrong.append(context))
        server = HttpServer(FakeView())
        port = await server.start("127.0.0.1:0")
        readers = []
        for _ in range(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            readers.append(reader)
            writer.close()
        # It is made after the pages that the others waited for.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        await server.stop()

    uvloop.run(run())
    assert not wrong


def test_a_client_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 0.1)
    pages: list[str] = []

    def render(_view: NodeView) -> str:
        pages.append("x" * 16_000_000)
        return pages[-1]

    monkeypatch.setattr(metrics, "render", render)

    async def run() -> None:
        server = HttpServer(FakeView())
        port = await server.start("127.0.0.1:0")
        assert sockets_at(port) == 1, "it listens"
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            await until(lambda: pages)
            await until(lambda: sockets_at(port) == 1)
        await server.stop()

    uvloop.run(asyncio.wait_for(run(), 60))


def sockets_at(port: int) -> int:
    """Return how many sockets at this port are open; other descriptors come and go."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    inodes = [row[9] for row in rows if int(row[1].partition(":")[2], 16) == port]
    return sum(inode != "0" for inode in inodes)
