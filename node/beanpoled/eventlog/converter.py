"""A process beside the node that turns events into columns.

Arrow's work takes neither the node's interpreter nor its memory, and the system runs it when nobody
who serves clients wants the processor. It is started when it is first needed and ends when it is
not needed for a while, or when its node is gone. `python -m beanpoled.eventlog.converter` is its
side. A message is a head of msgpack behind its length, and then large bytes as they are: copying
sixteen megabytes would hold the interpreter for as long as a turn may take.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from struct import Struct
from typing import IO, Any, Final

import msgpack

import beanpoled
from beanpole.events import RECORD
from beanpoled.eventlog.records import NOTE, Batch, Bytes, Events

# To be scheduled behind the node, and early enough that segments do not pile up.
NICENESS: Final = 10
# It holds a hundred megabytes. Starting it anew takes a third of a second of a core, so it stays
# where a few events a minute are sealed.
IDLE_MAX_S: Final = 300.0
ENCODE: Final = 0
FIRST_AT_WALL: Final = 1

_LENGTH: Final = Struct("<I")

# (head, large bytes)
Message = tuple[Any, list[bytes]]


class Converter:
    """The node's side. Its methods run in threads, and take turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def encode(self, events: Events) -> list[Batch]:
        """Turn events into batches.

        Raises:
            OSError: the process cannot be started, or died twice.
        """
        about = (events.first, dict(events.names), events.members)
        found, payloads = self._ask((ENCODE, about), events.records, events.notes)
        return [Batch._make((*one, payload)) for one, payload in zip(found, payloads, strict=True)]

    def warm_up(self) -> None:
        """Start the process and convert one event for nothing: the first one costs the most."""
        with suppress(OSError, ValueError):  # sealing will say what is wrong
            self.encode(Events(0, bytes(RECORD.size), bytes(NOTE.size), {0: b""}, ("",)))

    def first_at_wall(self, payload: bytes, wall_us: int) -> int | None:
        """Return the first offset of a batch at or after a wall time; None if all are older.

        Raises:
            OSError: as `encode`.
        """
        found: int | None = self._ask((FIRST_AT_WALL, wall_us), payload)[0]
        return found

    def close(self) -> None:
        """End the process if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _ask(self, head: tuple[int, Any], *blobs: Bytes) -> Message:
        with self._lock:
            try:
                return self._exchange(head, blobs)
            except (BrokenPipeError, EOFError):
                self.close()  # it had nothing to do for a while, or the system killed it
            try:
                return self._exchange(head, blobs)
            except EOFError:
                self.close()
                raise OSError("the process that makes columns died") from None

    def _exchange(self, head: tuple[int, Any], blobs: tuple[Bytes, ...]) -> Message:
        process = self._process
        if process is None:
            process = self._process = _start()
        assert process.stdin is not None and process.stdout is not None
        _send(process.stdin, head, blobs)
        (result, error), payloads = _receive(process.stdout)
        if error is not None:
            raise ValueError(error)
        return result, payloads


def _start() -> subprocess.Popen[bytes]:
    # The same packages as the node, wherever the node found them.
    paths = [str(Path(beanpoled.__file__).parent.parent), *filter(None, sys.path)]
    return subprocess.Popen(
        [sys.executable, "-m", "beanpoled.eventlog.converter"],
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
    """Answer requests until there are none for a while, or the node is gone."""
    from beanpoled.eventlog import columns

    # Nothing of a request is left in a buffer when it is answered: the next one comes after that.
    while select([requests], [], [], IDLE_MAX_S)[0]:
        (kind, about), blobs = _receive(requests)
        result: Any = None
        payloads: list[bytes] = []
        error: str | None = None
        try:
            if kind == ENCODE:
                first, names, members = about
                records, notes = blobs
                batches = columns.encode(Events(first, records, notes, names, members))
                result = [batch[:-1] for batch in batches]
                payloads = [batch.payload for batch in batches]
            else:
                result = columns.first_at_wall(blobs[0], about)
        except Exception as problem:
            error = repr(problem)  # the node decides what becomes of it
        _send(replies, (result, error), payloads)


def main() -> None:
    """Serve the node on stdin and stdout."""
    # What stops the node stops this, by the end of its input; a key pressed on its terminal, or a
    # signal to all of its group, comes too early.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(NICENESS)
    with suppress(EOFError, BrokenPipeError):
        serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
