"""Check that the nodes of a run agree: equal images, all events, and their reported versions.

For runs in which nodes have different programs (`upgrade`); `checks` judges what clients observed.
"""

import subprocess
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import grpc
import pyarrow as pa
import pyarrow.parquet as pq

from beanpole.client.rpc import Nodes
from beanpole.pb import admin_pb2, admin_pb2_grpc
from beanpole.storage.format import FILE_HEADER_BYTES, Identity
from beanpole.storage.readonly import ReadOnlyFiles
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.source import Source
from chaos.record import Op
from tests.integration.support.nodes import BEANPOLE, Node
from tests.integration.support.waiting import wait_until

EQUAL_TIMEOUT_S: Final = 30.0
CALL_TIMEOUT_S: Final = 60.0
CLUSTER: Final = "test"


class Says(NamedTuple):
    """The versions that members report, in the words of `beanpole status`."""

    program: str
    active: int
    known: int


def beanpole(*words: str, program: Sequence[str] = BEANPOLE) -> tuple[int, str]:
    """Run the command line tool; return its exit status and its output."""
    done = subprocess.run(
        [*program, *words], capture_output=True, text=True, timeout=CALL_TIMEOUT_S, check=False
    )
    return done.returncode, done.stdout + done.stderr


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file below a folder, by relative path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


# --- images ---------------------------------------------------------------------------------------


def equal_images(nodes: Sequence[Node]) -> tuple[int, int]:
    """Let all nodes write a snapshot at the same index; return the index and the size.

    No command may be sent meanwhile. AssertionError if two snapshots differ.
    """

    def same() -> list[int]:
        indexes = [take_snapshot(node) for node in nodes]
        return indexes if len(set(indexes)) == 1 else []

    index = wait_until(same, EQUAL_TIMEOUT_S, "all nodes have a snapshot of one index")[0]
    images = {node.id: _image(node, index) for node in nodes}
    assert len(set(images.values())) == 1, (
        f"the images at index {index} differ: "
        f"{ {name: (len(image), zlib.crc32(image)) for name, image in images.items()} }"
    )
    return index, len(images[nodes[0].id])


def take_snapshot(node: Node) -> int:
    """Let a node write a snapshot, and return its index; ConnectionError if that fails."""
    with Nodes([node.grpc]) as nodes:
        stub = admin_pb2_grpc.AdminStub(nodes.channel(node.grpc))
        try:
            request = admin_pb2.TakeSnapshotRequest()
            index: int = stub.TakeSnapshot(request, timeout=CALL_TIMEOUT_S).index
        except grpc.RpcError as error:
            raise ConnectionError(f"{node.id}: {error.details()}") from None
        return index


def _image(node: Node, index: int) -> bytes:
    """Return the bytes of a snapshot without its header, which differs from node to node."""
    (path,) = (node.directory / "data" / "snapshots").glob(f"{index:020d}-*.snapshot")
    return path.read_bytes()[FILE_HEADER_BYTES:]


# --- events ---------------------------------------------------------------------------------------


def event_files(node: Node) -> dict[str, int]:
    """Return the event files that a node has now, with their checksums."""
    files = contents(node.directory / "data" / "events")
    return {name: zlib.crc32(data) for name, data in files.items() if name.endswith(".events")}


def all_events(nodes: Sequence[Node]) -> pa.Table:
    """Return all events; AssertionError if one is missing, or if nodes disagree."""

    def ends() -> int:
        with Source([node.grpc for node in nodes]) as source:
            replies = source.ranges().values()
        found = {(reply.end, reply.applied_index) for reply in replies}
        return found.pop()[0] if len(found) == 1 and len(replies) == len(nodes) else 0

    end = wait_until(ends, EQUAL_TIMEOUT_S, "all nodes have applied the same")
    table = _read([node.grpc for node in nodes], 0, end)
    assert table["offset"].to_pylist() == list(range(end))
    for node in nodes:
        with Source([node.grpc]) as source:
            (reply,) = source.ranges().values()
        spans = [(span.first, span.end) for span in reply.spans]
        # A node that received a snapshot lacks the entries that other nodes had cut from their
        # logs.
        logs = node.directory.glob("output*.log")
        if not any("fetching the snapshot" in log.read_text(errors="replace") for log in logs):
            assert spans == [(0, end)], f"{node.id} has the events {spans} of {end}"
        for first, last in spans:
            found = _read([node.grpc], first, last)
            assert found == table.slice(first, last - first), f"{node.id} has other events"
    return table


def _read(addresses: list[str], start: int, end: int) -> pa.Table:
    with Source(addresses) as source:
        return pa.Table.from_batches(source.read(start, end)).combine_chunks()


def exported(nodes: Sequence[Node], directory: Path) -> pa.Table:
    """Return all events, read from the files that `beanpole events export` writes."""
    addresses = ",".join(node.grpc for node in nodes)
    failed, words = beanpole("events", "export", "--addresses", addresses, "--to", str(directory))
    assert not failed, words
    paths = sorted(directory.glob("date=*/events-*.parquet"), key=lambda path: path.name)
    return pa.concat_tables(pq.ParquetFile(path).read() for path in paths).combine_chunks()


def digests_in_events(nodes: Sequence[Node]) -> int:
    """Return how many entries have a state hash in several event files; they must be equal."""
    hashes: dict[int, set[int]] = {}
    seen: Counter[int] = Counter()
    for node in nodes:
        directory = node.directory / "data" / "events"
        for path in sorted(directory.glob("*.events")):
            about = segments.inspect(ReadOnlyFiles(), str(path), Identity(CLUSTER, node.id)).about
            hashes.setdefault(about.log_index[1], set()).add(about.state_hash)
            seen[about.log_index[1]] += 1
    assert all(len(found) == 1 for found in hashes.values()), "state hashes differ"
    return sum(count > 1 for count in seen.values())


def check_events(table: pa.Table, clients: Sequence[list[Op]]) -> None:
    """Check that each acknowledged put and delete has exactly one event."""
    happened = Counter(zip(table["event"].to_pylist(), table["job_id"].to_pylist(), strict=True))
    for op in (op for ops in clients for op in ops):
        if op.outcome in ("INSERTED", "DELETED"):
            event = "put" if op.outcome == "INSERTED" else "deleted"
            assert happened[event, op.job] == 1, f"{happened[event, op.job]} events of {op}"
    twice = [key for key, count in happened.items() if count > 1 and key[0] in ("put", "deleted")]
    assert not twice, f"happened twice: {twice[:5]}"
