"""The lists of Gearman's text commands, in pieces: a long list must not stop the node.

Names are those of one moment; numbers are read when their piece is made. `admin` assigns the lists
to commands. A compiled generator expression is a list, made at once: there are only functions here.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from beanpole.core.jobs.job import ID_BITS, RESERVED, Job, Tube
from beanpole.core.jobs.spaces import RANK_NORMAL
from beanpole.core.machine import Machine
from beanpole.events import GEARMAN
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.admin import END
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.gearman.shared import PREFIX, Shared, knows
from beanpoled.frontends.gearman.worker import WorkerSide, unique_of

# A function by its name.
Function = tuple[bytes, Tube]
# Whether a client has a right in a queue. A client that gets a list has one in all functions, so
# this is called only for queues of other protocols: an alias gives no right.
Sees = Callable[[Tube], bool]
_Item = TypeVar("_Item")

# Functions or connections in one piece: a millisecond.
PIECE_ROWS: Final = 1000
# A piece of connections ends at this size, too: a row has up to 1,024 functions. With the shortest
# names these are 20,000: two milliseconds. One row alone may be larger, 512 KiB at most.
PIECE_BYTES: Final = 64 * 1024
# Job ids that one piece visits; most of them may belong to other protocols.
PIECE_JOBS: Final = 5000
# A list up to this size is written at once, with its end: gearadmin takes 5 ms without a byte for
# the end, and a busy node may need longer between two pieces. Beyond this size, each piece is
# written when it is made. Enough for the rows of 10,000 functions.
WRITE_BYTES: Final = 256 * 1024
# Names may contain the separators of rows and columns, and the NUL with which a packet begins: a
# name must neither end the list nor put packets into it.
_in_row: Final = bytes.maketrans(b"\0\t\n\r", b"????")


def _rows(pieces: Iterator[list[_Item]], row: Callable[[_Item], bytes]) -> Iterator[bytes]:
    """Yield the rows of each piece."""
    for piece in pieces:
        yield b"".join([row(item) for item in piece])


def _listed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join the rows of a list and add its end; yield the bytes to write for each piece, if any."""
    rows: list[bytes] = []
    size = 0  # of all pieces so far
    for piece in pieces:
        rows.append(piece)
        size += len(piece)
        if size < WRITE_BYTES:
            yield b""
        else:
            yield b"".join(rows)
            rows.clear()
    yield b"".join(rows) + END


def functions(machine: Machine, sees: Sees) -> Iterator[list[Function]]:
    """Yield the queues of this protocol by name, in the order of their creation, in pieces."""
    queue = machine.queue
    space = queue.spaces[GEARMAN]
    # Of all protocols: copying 100,000 names takes a millisecond, visiting each takes longer.
    names = list(dict.fromkeys([*queue.tubes, *queue.aliases.queues]))
    for first in range(0, len(names), PIECE_ROWS):
        found = []
        for name in names[first : first + PIECE_ROWS]:
            tube = queue.find(name) if name.startswith(PREFIX) else None
            if tube is not None and (tube.space is space or sees(tube)):
                found.append((name[len(PREFIX) :], tube))
        yield found


def status(machine: Machine, sees: Sees) -> Iterator[bytes]:
    """List FUNCTION, jobs, running jobs, workers."""
    return _listed(_rows(functions(machine, sees), _status_row))


def _status_row(function: Function) -> bytes:
    name, tube = function
    jobs = tube.ready_count + tube.delayed_count + tube.reserved_count
    row = (name.translate(_in_row), jobs, tube.reserved_count, tube.watchers)
    return b"%b\t%d\t%d\t%d\n" % row


def priority_status(machine: Machine, sees: Sees) -> Iterator[bytes]:
    """List FUNCTION, queued jobs of high, normal and low priority, workers."""
    return _listed(_rows(functions(machine, sees), _priority_row))


def _priority_row(function: Function) -> bytes:
    name, tube = function
    high = tube.ready.count_below(RANK_NORMAL << ID_BITS)
    low = tube.ready_count - tube.ready.count_below((RANK_NORMAL + 1) << ID_BITS)
    # Jobs with a start time have no priority of their own.
    normal = tube.ready_count - high - low + tube.delayed_count
    row = (name.translate(_in_row), high, normal, low, tube.watchers)
    return b"%b\t%d\t%d\t%d\t%d\n" % row


def workers(connections: Iterable[Connection]) -> Iterator[bytes]:
    """List the connections of this node: number, host, client id, functions."""
    return _listed(_worker_rows(connections))


def _worker_rows(all_connections: Iterable[Connection]) -> Iterator[bytes]:
    """Yield the rows of connections in pieces; which they are is seen with the first piece."""
    connections = [item for item in all_connections if isinstance(item, WorkerSide)]
    rows: list[bytes] = []
    size = 0
    for connection in connections:
        rows.append(_worker_row(connection))
        size += len(rows[-1])
        if len(rows) >= PIECE_ROWS or size >= PIECE_BYTES:
            yield b"".join(rows)
            rows.clear()
            size = 0
    yield b"".join(rows)


def _worker_row(connection: WorkerSide) -> bytes:
    names = [connection.client_id, b":", *connection.functions]
    words = b" ".join(names).translate(_in_row)
    return b"%d %b %b\n" % (connection.place, connection.client_host, words)


def _jobs(machine: Machine, sees: Sees) -> Iterator[list[Job]]:
    """Yield all jobs of this protocol, in pieces."""
    jobs = machine.queue.jobs
    space = machine.queue.spaces[GEARMAN]
    ids = jobs.ids_and_gaps()
    while piece := list(islice(ids, PIECE_JOBS)):
        found = []
        seen: dict[bytes, bool] = {}  # the queues of other protocols; they may have many jobs
        for job_id in piece:
            job = jobs.get(job_id)
            if job is None or not knows(machine.queue, job):
                continue
            tube = job.tube
            if tube.space is not space:
                if tube.name not in seen:
                    seen[tube.name] = sees(tube)
                if not seen[tube.name]:
                    continue
            found.append(job)
        yield found


def show_jobs(machine: Machine, sees: Sees, shared: Shared) -> Iterator[bytes]:
    """List the handle, number of retries, abandoned flag and background flag of each job."""
    return _listed(_rows(_jobs(machine, sees), partial(_job_row, shared)))


def _job_row(shared: Shared, job: Job) -> bytes:
    retries = job.reserves - 1 if job.state == RESERVED else job.reserves
    ext = job.ext
    abandoned = ext is not None and ext.is_abandoned
    background = ext is None or ext.background
    return b"%b\t%d\t%d\t%d\n" % (shared.handle(job.id), retries, abandoned, background)


def show_unique_jobs(machine: Machine, sees: Sees) -> Iterator[bytes]:
    """List the unique id of each job; an empty line for a job without one."""
    return _listed(_rows(_jobs(machine, sees), _unique_row))


def _unique_row(job: Job) -> bytes:
    return unique_of(job).translate(_in_row) + b"\n"


def status_of_unique(machine: Machine, sees: Sees, unique: bytes) -> Iterator[bytes]:
    """Yield a STATUS_RES_UNIQUE for the job of the oldest function that has this unique id."""
    space = machine.queue.spaces[GEARMAN]
    for piece in functions(machine, sees):
        for name, _ in piece:
            job_id = space.external_ids.get(name + b"\0" + unique, 0)
            job = machine.queue.jobs.get(job_id)
            if job is None or job.ext is None:
                continue
            if job.tube.space is space or sees(job.tube):
                ext, runs = job.ext, job.state == RESERVED
                yield replies.status_unique(unique, True, runs, ext.progress, len(ext.clients))
                return
        yield b""
    yield replies.status_unique(unique, False, False, b"", 0)
