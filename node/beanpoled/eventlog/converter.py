"""A process beside the node that converts events into columns.

Arrow's work takes neither the node's interpreter nor its memory, and the operating system runs it
when no process that serves clients needs the processor. The process starts when it is first needed
and ends with its node, however the node ends. `python -m beanpoled.eventlog.converter` is the
process. A message is a length, a header in msgpack, and then large blobs as they are, which are
sent without holding the interpreter.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import IO, Any, Final

import msgpack

import beanpoled
from beanpole.events import RECORD
from beanpoled.eventlog import columns
from beanpoled.eventlog.events import NOTE, Bytes, EventBatch, Events

# Lower priority than the node, but enough that segments do not pile up.
NICENESS: Final = 10
# The kernel's maximum: also a node with nearly all of the memory is killed later.
OOM_SCORE: Final = 1000
# A batch takes ten milliseconds if no other process needs the processor. A process that takes this
# long was stopped, and snapshots wait behind it.
EXCHANGE_MAX_S: Final = 60.0
# The signals that a node handles itself: `host.aio` says what they do.
FOR_THE_NODE: Final = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
ENCODE: Final = 0
FIRST_AT_WALL: Final = 1

_LENGTH: Final = Struct("<I")

# (header, large blobs)
Message = tuple[Any, list[bytes]]


class Converter:
    """The node's side. Its methods run in threads, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._hurried = threading.Event()
        self._closed = False

    def encode(self, events: Events, within_s: float = 0.0) -> list[EventBatch]:
        """Convert events into batches.

        Args:
            events: any number of them.
            within_s: the time over which the work is spread, in pieces of one batch. Nodes that
                share processors seal at the same entry of the log: without the spread, their
                conversions held up the clients for a tenth of a second.

        Raises:
            OSError: the events cannot be converted, or the process does not start or died twice.
        """
        begun_s = time.monotonic()
        batches: list[EventBatch] = []
        for part in events.parts(columns.BATCH_ROWS):
            due_s = begun_s + within_s * (part.first - events.first) / events.rows
            self._hurried.wait(max(0.0, due_s - time.monotonic()))
            batches += self._encode(part)
        return batches

    def _encode(self, events: Events) -> list[EventBatch]:
        names = events.names
        known = {number: names[number] for number in events.tubes() if number in names}
        hosts = events.hosts
        if hosts is not None:
            hosts = {number: hosts[number] for number in events.hosts_named() if number in hosts}
        about = (events.first, known, events.members, hosts, events.externals, events.details)
        found, payloads = self._ask((ENCODE, about), events.records, events.notes)
        batches = [
            EventBatch._make((*one, payload)) for one, payload in zip(found, payloads, strict=True)
        ]
        rows = sum(batch.rows for batch in batches)
        if not batches or (batches[0].first, rows) != (events.first, events.rows):
            raise OSError(f"{rows} of {events.rows} events were converted")
        return batches

    def warm_up(self) -> None:
        """Start the process and convert one event: the first conversion costs the most."""
        with suppress(OSError):  # sealing will report the error
            self.encode(Events(0, bytes(RECORD.size), bytes(NOTE.size), {0: b""}, ("",)))

    def first_at_wall(self, payload: bytes, wall_us: int) -> int | None:
        """Return the first offset of a batch at or after a wall time; None if all are older.

        Raises:
            OSError: like `encode`.
        """
        found: int | None = self._ask((FIRST_AT_WALL, wall_us), payload)[0]
        return found

    def hurry(self) -> None:
        """Stop spreading work: the node stops."""
        self._hurried.set()

    def close(self) -> None:
        """End the process for good; later requests fail."""
        self._closed = True
        self.hurry()
        process = self._process
        if process is not None:
            process.kill()  # a thread that waits for it gets an error
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unread bytes may remain
                    pipe.close()

    def _ask(self, head: tuple[int, Any], *blobs: Bytes) -> Message:
        with self._lock:
            try:
                (result, error), payloads = self._exchange(head, blobs)
            except (BrokenPipeError, EOFError):
                # The system killed the process, for example for lack of memory. A second death has
                # another reason.
                try:
                    (result, error), payloads = self._exchange(head, blobs)
                except (BrokenPipeError, EOFError):
                    raise OSError("the process that makes columns died") from None
        if error is not None:
            raise OSError(error)
        return result, payloads

    def _exchange(self, head: tuple[int, Any], blobs: tuple[Bytes, ...]) -> Message:
        if self._closed:
            raise OSError("the node stops")
        process = self._process
        if process is None:
            process = self._process = _start()
            if self._closed:  # meanwhile, and `close` may not have seen this process
                self._end()
                raise OSError("the node stops")
        assert process.stdin is not None and process.stdout is not None
        deadline = threading.Timer(EXCHANGE_MAX_S, process.kill)
        deadline.daemon = True
        deadline.start()
        try:
            _send(process.stdin, head, blobs)
            return _receive(process.stdout)
        except BaseException:
            self._end()  # the next exchange would read the rest of this answer
            raise
        finally:
            deadline.cancel()


def _start() -> subprocess.Popen[bytes]:
    # Use the same packages as the node, wherever the node found them.
    paths = [str(Path(beanpoled.__file__).parent.parent), *filter(None, sys.path)]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "beanpoled.eventlog.converter"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def _send(pipe: IO[bytes], head: object, blobs: Sequence[Bytes]) -> None:
    packed = msgpack.packb((head, [len(blob) for blob in blobs]))
    pipe.write(_LENGTH.pack(len(packed)) + packed)
    for blob in blobs:
        pipe.write(blob)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Message:
    size = _LENGTH.unpack(_read(pipe, _LENGTH.size))[0]
    head, sizes = msgpack.unpackb(_read(pipe, size), strict_map_key=False, use_list=False)
    return head, [_read(pipe, size) for size in sizes]


def _read(pipe: IO[bytes], size: int) -> bytes:
    found = pipe.read(size)
    if len(found) < size:
        raise EOFError
    return found


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests until the node is gone."""
    with suppress(EOFError, BrokenPipeError):
        while True:
            _answer(requests, replies)


def _answer(requests: IO[bytes], replies: IO[bytes]) -> None:
    (kind, about), blobs = _receive(requests)
    result: Any = None
    payloads: list[bytes] = []
    error: str | None = None
    try:
        if kind == ENCODE:
            first, *more = about
            records, notes = blobs
            batches = columns.encode(Events(first, records, notes, *more))
            result = [batch[:-1] for batch in batches]
            payloads = [batch.payload for batch in batches]
        else:
            result = columns.first_at_wall(blobs[0], about)
    except Exception as problem:
        error = repr(problem)  # the node decides how to handle the error
    _send(replies, (result, error), payloads)


def _die_first() -> None:
    """Let the kernel kill this process and not the node when memory runs out.

    It inherits the node's score, which the systemd unit lowers, and the node is the larger one. All
    nodes hold the same jobs: they would run out of memory at about the same time.
    """
    with suppress(OSError):  # there is no /proc
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))


def main() -> None:
    """Serve the node on stdin and stdout."""
    # The process ends with its input, when the node ends. A key pressed on the node's terminal, or
    # a signal to the node's whole group or unit (`systemctl kill`), must not end it earlier.
    for number in FOR_THE_NODE:
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    _die_first()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output that a library prints is no answer
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
