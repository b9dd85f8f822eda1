"""Events of real clusters: after any kill the nodes together serve every event exactly once."""

import json
import re
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import greenstalk
import grpc
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from beanpole.addresses import split_address
from beanpole.pb import queue_pb2, queue_pb2_grpc
from beanpoled import cli
from beanpoled.eventlog.source import Source
from pyspark_beanpole.exports import opened
from tests.integration.support.history import DELETED, INSERTED, History
from tests.integration.support.load import Load
from tests.integration.support.nodes import BEANPOLE, Cluster, Node, http_get, status
from tests.integration.support.processes import Process, children
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

# Small limits, so that segments are sealed and snapshots cut the log often.
SMALL = {
    "event_segment_bytes": 16 * 1024,
    "event_segment_age_s": 1,
    "snapshot_bytes_min": 64 * 1024,
}
EQUAL_TIMEOUT_S = 60.0
JOBS = 80


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", settings=SMALL).running() as found:
        yield found


def read(addresses: list[str], start: int, end: int) -> pa.Table:
    with Source(addresses) as source:
        return pa.Table.from_batches(source.read(start, end)).combine_chunks()


def spans(cluster: Cluster, number: int) -> list[tuple[int, int]]:
    with Source([cluster.nodes[number].grpc]) as source:
        (reply,) = source.ranges().values()
    return [(span.first, span.end) for span in reply.spans]


def end_of_all(cluster: Cluster) -> int:
    """Wait until all nodes have applied the same entries, and return the number of events."""

    def ends() -> int:
        with Source([node.grpc for node in cluster.nodes]) as source:
            replies = source.ranges().values()
        found = {(reply.end, reply.applied_index) for reply in replies}
        return found.pop()[0] if len(found) == 1 and len(replies) == len(cluster.nodes) else 0

    return wait_until(ends, EQUAL_TIMEOUT_S, "all nodes have applied the same")


def go_on(load: Load) -> None:
    """Wait until the load's clients have finished more jobs."""
    wanted = load.deleted() + JOBS
    wait_until(lambda: load.deleted() >= wanted, EQUAL_TIMEOUT_S, f"{JOBS} more jobs")


def has_snapshot(node: Node) -> bool:
    return any((node.directory / "data" / "snapshots").glob("*.snapshot"))


def try_every_command(cluster: Cluster) -> None:
    """Use every command of greenstalk that changes a job, at every node."""
    for node in cluster.nodes:
        with greenstalk.Client(split_address(node.beanstalk), use="all", watch="all") as client:
            client.put("delayed", delay=1)
            client.delete(client.peek_delayed())
            for ending in (client.release, client.bury, client.delete):
                client.put("job")
                job = client.reserve(timeout=10)
                client.touch(job)
                ending(job)
            client.kick(10)
            client.put("left reserved")
            client.reserve(timeout=10)
        with greenstalk.Client(split_address(node.beanstalk), watch="all") as client:
            for _ in range(3):
                client.delete(client.reserve(timeout=10))


def check_history(table: pa.Table, history: History) -> None:
    """Check that the events agree with the replies to the clients."""
    happened = Counter(zip(table["event"].to_pylist(), table["job_id"].to_pylist(), strict=True))
    for put in history.puts:
        if put.outcome == INSERTED:
            assert happened["put", put.job] == 1, put
    for delete in history.deletes:
        if delete.outcome == DELETED:
            assert happened["deleted", delete.job] == 1, delete
    assert all(happened["put", job] == 1 for event, job in happened if event == "deleted")
    assert max(Counter(job for event, job in happened.elements() if event == "put").values()) == 1


def check_dense(table: pa.Table, end: int) -> None:
    assert table["offset"].to_pylist() == list(range(end))
    for name in ("log_index", "time_us"):
        steps = pc.pairwise_diff(table[name].combine_chunks())
        assert (pc.min(steps).as_py() or 0) >= 0, name


def check_spans(cluster: Cluster, table: pa.Table) -> None:
    """Check each node's spans: all events, or a part of them if the node needed a snapshot."""
    for number, node in enumerate(cluster.nodes):
        found = spans(cluster, number)
        # A node that fell behind the others' logs got a snapshot in place of some entries.
        if "fetching the snapshot" not in (node.directory / "output.log").read_text():
            assert found == [(0, table.num_rows)], cluster.story()
        for first, end in found:
            assert read([node.grpc], first, end) == table.slice(first, end - first), number


@pytest.mark.long
def test_every_node_has_every_event_after_any_kill(cluster: Cluster) -> None:
    try_every_command(cluster)
    load = Load([node.beanstalk for node in cluster.nodes], 6)
    load.start()
    go_on(load)
    for victim in (cluster.leader(), cluster.followers()[0]):
        cluster.kill(victim)
        go_on(load)
        cluster.start(victim)
        cluster.wait_until_serving(victim)
        go_on(load)
    for number in range(3):
        cluster.kill(number)
    cluster.start_all()
    go_on(load)
    # The batching of the load's commands determines when a log is long enough for a snapshot.
    wait_until(lambda: all(map(has_snapshot, cluster.nodes)), EQUAL_TIMEOUT_S, "snapshots")
    history = load.finish()
    end = end_of_all(cluster)
    table = read([node.grpc for node in cluster.nodes], 0, end)
    check_dense(table, end)
    check_history(table, history)
    check_spans(cluster, table)
    for node in cluster.nodes:
        assert len(list((node.directory / "data" / "events").glob("*.events"))) > 3
    seen = set(table["event"].to_pylist())
    assert seen >= {"put", "reserved", "touched", "released", "returned", "buried", "kicked"}


class Exporting:
    """A process that runs `beanpole events export --follow`."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        addresses = ",".join(node.grpc for node in cluster.nodes)
        self.directory = directory
        self.arguments = ["events", "export", "--addresses", addresses, "--to", str(directory)]

    def follow(self, log: Path) -> Process:
        return Process([*BEANPOLE, *self.arguments, "--follow", "--every", "0.1"], log)

    def exported(self) -> int:
        """Return the end of the spans in the manifest."""
        path = self.directory / "_manifest.json"
        found = json.loads(path.read_text())["spans"] if path.exists() else []
        return found[-1][1] if found else 0

    def table(self) -> pa.Table:
        """Return all events in the manifest's files, after checking each file."""
        return pa.Table.from_batches(opened(str(self.directory)).read()).combine_chunks()


@pytest.mark.long
def test_an_export_that_is_killed_again_and_again_has_every_event_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    load = Load([node.beanstalk for node in cluster.nodes], 4)
    load.start()
    export = Exporting(cluster, tmp_path / "out")
    for life in range(6):
        process = export.follow(tmp_path / "export.log")
        before = export.exported()
        wait_until(lambda: export.exported() > before, EQUAL_TIMEOUT_S, process.story())  # noqa: B023
        if life == 2:
            cluster.kill(victim := cluster.leader())
            before = export.exported()
            wait_until(lambda: export.exported() > before, EQUAL_TIMEOUT_S, process.story())  # noqa: B023
            cluster.start(victim)
        process.kill()
    last = export.follow(tmp_path / "export.log")
    load.finish()
    end = end_of_all(cluster)
    wait_until(lambda: export.exported() == end, EQUAL_TIMEOUT_S, last.story())
    last.signal(signal.SIGINT)
    assert last.wait() == 0
    assert re.search(rf"\d+ events written; .* has 0 to {end}$", last.log.read_text().strip())
    table = read([node.grpc for node in cluster.nodes], 0, end)
    assert export.table() == table
    assert cli.main(["events", "compact", str(export.directory)]) == 0
    assert export.table() == table


def oldest_index(cluster: Cluster, number: int) -> int:
    """Return the first index in a node's log."""
    _, text = http_get(cluster.nodes[number].http, "/metrics")
    found = re.search(r"^beanpole_first_index (\d+)$", text, re.MULTILINE)
    assert found, text
    return int(found[1])


@pytest.mark.long
def test_a_node_that_took_a_snapshot_says_so_and_others_fill_its_gap(tmp_path: Path) -> None:
    settings = SMALL | {"log_retain_bytes": 64 * 1024, "log_memory_bytes": 64 * 1024}
    cluster = Cluster(tmp_path / "cluster", settings=settings)
    try:
        cluster.start_all()
        load = Load([node.beanstalk for node in cluster.nodes], 4)
        load.start()
        go_on(load)
        late = cluster.followers()[0]
        wait_until(
            lambda: any(cluster.nodes[late].directory.rglob("*.events")),
            EQUAL_TIMEOUT_S,
            "the node that will be late has sealed events",
        )
        cluster.kill(late)
        others = [number for number in range(3) if number != late]
        had = max(
            node["last_index"]
            for node in status(cluster.nodes[others[0]])["nodes"]
            if node["reachable"]
        )
        for number in others:
            wait_until(
                lambda: oldest_index(cluster, number) > had,  # noqa: B023
                EQUAL_TIMEOUT_S,
                "the log is cut behind what the killed node has",
            )
        cluster.start(late)
        cluster.wait_until_serving(late)
        go_on(load)
        load.finish()
        end = end_of_all(cluster)
        assert len(spans(cluster, late)) > 1
        addresses = [cluster.nodes[number].grpc for number in (late, *others)]
        table = read(addresses, 0, end)
        check_dense(table, end)
        check_spans(cluster, table)
    finally:
        cluster.close()


def test_arrow_is_ready_beside_each_node_before_anything_is_sealed(shared: Cluster) -> None:
    """Loading Arrow at the first seal would be a pause under load."""
    nodes = [shared.pid(number) for number in range(3)]
    wait_until(
        lambda: all(any("libarrow" in maps(child) for child in children(pid)) for pid in nodes),
        EQUAL_TIMEOUT_S,
        "a child of each node has loaded Arrow",
    )
    assert not any("libarrow" in maps(pid) for pid in nodes)


def maps(pid: int) -> str:
    """Return a process's memory maps, or an empty string if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/maps").read_text()
    return ""


@pytest.fixture
def caller(shared: Cluster) -> Iterator[queue_pb2_grpc.QueueStub]:
    with grpc.insecure_channel(shared.nodes[2].grpc) as channel:
        yield queue_pb2_grpc.QueueStub(channel)


def test_events_name_the_hosts_of_clients(
    shared: Cluster, caller: queue_pb2_grpc.QueueStub
) -> None:
    """Clients on TCP from two addresses, on a UNIX socket and by gRPC, at different nodes."""
    host, port = split_address(shared.nodes[0].beanstalk)
    for address in ("127.0.0.1", "127.0.0.2"):
        with socket.create_connection((host, port), source_address=(address, 0)) as client:
            client.sendall(b"use hosts\r\nput 0 0 60 1\r\na\r\n")
            answer = client.makefile("rb")
            assert (answer.readline(), answer.readline()[:8]) == (b"USING hosts\r\n", b"INSERTED")
    caller.Put(queue_pb2.PutRequest(jobs=[queue_pb2.PutJob(tube="hosts", body=b"b")]))
    with Raw(shared.unix_address(1)) as worker:
        worker.ask(b"watch hosts", b"WATCHING 2")
        worker.ask(b"ignore default", b"WATCHING 1")  # other tests may have left jobs there
        for _ in range(3):
            line, _ = worker.command(b"reserve-with-timeout 9")
            worker.ask(b"delete %b" % line.split()[1], b"DELETED")
    end = end_of_all(shared)
    found = read([node.grpc for node in shared.nodes], 0, end).to_pylist()
    told = sorted(
        (row["event"], row["node"], row["host"]) for row in found if row["tube"] == "hosts"
    )
    assert told == [
        *[("deleted", "n1", "unix")] * 3,
        *[("put", "n0", "127.0.0.1"), ("put", "n0", "127.0.0.2"), ("put", "n2", "127.0.0.1")],
        *[("reserved", "n1", "unix")] * 3,
    ]
