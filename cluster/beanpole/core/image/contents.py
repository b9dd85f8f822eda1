"""The conversion of an image for a restored cluster, and the digest of its contents.

This module converts an image of a running cluster to one for a new cluster, chunk by chunk and
without a machine, and computes the digest and the counts of the result. Sessions and origins are
dropped. Reserved jobs become ready at their old place. Jobs that live only as long as a client are
dropped with the clients. Cluster time continues from the image's, so that every delay keeps its
remaining time. Images are written in `core.image.image` and loaded in `core.image.restore`.

The digest covers the state that clients can see: queues, jobs in their order, aliases, keys,
counters. It excludes index, term, time, sessions, names of hosts, limits from the configuration and
events. It is the same for an image and for an image of the cluster that was restored from it,
whatever their machine versions, as long as no client and no timer has changed anything.
"""

import hashlib
from collections import Counter
from typing import Any, Final

import msgpack

from beanpole import qless as q
from beanpole.constants import DEFAULT_TUBE, SECOND_US
from beanpole.core.image import qless as qless_records
from beanpole.core.image.image import pack
from beanpole.core.image.records import (
    EXTENDED_SINCE,
    MACHINE_NUMBERS,
    QUEUE_NUMBERS,
    Head,
    TubeRecord,
)
from beanpole.core.jobs import display_names
from beanpole.core.jobs.job import READY, RESERVED, STATE_NAMES
from beanpole.core.jobs.spaces import SPACES, SPACES_SINCE
from beanpole.core.qless.job import LOCKS, THROTTLED_SINCE, WORK
from beanpole.core.qless.queues import work_score
from beanpole.core.qless.scores import INFINITY
from beanpole.errors import Damaged
from beanpole.events import PROTOCOL_NAMES, QLESS

# A change of the contents of the digest, or of their order, needs another domain.
DOMAIN: Final = b"beanpole contents 1\n"
# Queues in a summary, those with most jobs: one page, and 100 KB of the longest names.
QUEUES_NAMED: Final = 100

# Fields of a job's record (`records.of_job`).
_TUBE: Final = 1
_DELAY: Final = 3
_TTR: Final = 4
_STATE: Final = 6
_DUE: Final = 7
_HOLDER: Final = 9
_RESERVES: Final = 10
_EXTENSION: Final = -2
# Fields of the record of an extension (`records.of_extension`).
_ATTEMPTS_MAX: Final = 3
_PROGRESS: Final = 6
_BACKGROUND: Final = 9
_CLIENTS: Final = 10
_EXTENSION_LATER: Final[tuple[Any, ...]] = (b"", True, [], 0)  # the fields of version 4
# Fields of the record of a job of qless (`image.qless.of_job`).
_Q_STATE: Final = 4
_Q_QUEUE: Final = 5
_Q_WORKER: Final = 6
_Q_PRIORITY: Final = 7
_Q_EXPIRES: Final = 10
_Q_LEASE: Final = 11
_Q_PLACE: Final = 13
_Q_SCORE: Final = 14
_Q_GRACE: Final = 15
_Q_LOCKED: Final = 21
_Q_PENDING: Final = 22
_Q_COMPLETED_IN: Final = 23
# Field of the record of a throttle of qless (`image.qless.of_throttle`).
_T_IS_SET: Final = 1
# The numbers of the head that clients can see, in the statistics and as the id of the next job.
_SHOWN_NUMBERS: Final = ("next_id", "jobs_total", "timeouts")
_ABSENT: Final = ("sessions", "held")
_Queue = tuple[str, str]  # protocol, name


class Contents:
    """A reader of one image: `take` each chunk in order, then use `digest`, `counts` and `busy`.

    Attributes:
        version: the machine version of the image.
        index: the index of the log up to which the image goes.
        term: the leader's term at that index, as the machine knows it.
        wall_us: the wall clock of the last entry's leader.
        jobs: the number of jobs of a restored cluster, those of qless included.
        dropped: the number of jobs that are not restored, because only a client kept them alive.
        busy: the serial numbers of the tubes of a restored cluster.
    """

    def __init__(self) -> None:
        self.version = 0
        self.index = 0
        self.term = 0
        self.wall_us = 0
        self.jobs = 0
        self.dropped = 0
        self.busy: set[int] = set()
        self._counts: Counter[tuple[_Queue, str]] = Counter()
        self._tubes: dict[int, TubeRecord] = {}
        self._hash = hashlib.sha256(DOMAIN)
        self._pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack
        self._begun = False
        self._ended = False

    def take(self, chunk: bytes) -> tuple[str, Any] | None:
        """Read the next chunk; returns its kind and value for a restored cluster.

        Returns:
            None for a chunk that a restored cluster does not have. Tubes that will have no job are
            still included.

        Raises:
            Damaged: the chunk is not that of an image.
        """
        try:
            return self._take(chunk)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise Damaged(f"the image cannot be read: {error!r}") from error

    def digest(self) -> bytes:
        """Return the digest of all chunks; the image has to be complete.

        Raises:
            Damaged: the end of the image is missing.
        """
        if not self._ended:
            raise Damaged("the image ends before its end mark")
        whole = self._hash.copy()
        for serial, tube in self._tubes.items():
            if serial in self.busy:
                whole.update(self._pack([tube.name, *tube[2:]]))
        return whole.digest()

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of jobs in the image by protocol and by state before the conversion."""
        found: dict[str, dict[str, int]] = {}
        for ((protocol, _), state), count in sorted(self._counts.items()):
            states = found.setdefault(protocol, {})
            states[state] = states.get(state, 0) + count
        return found

    def queues(self) -> list[tuple[str, str, dict[str, int]]]:
        """Return (protocol, name, counts by state) of the QUEUES_NAMED queues with most jobs."""
        found: dict[_Queue, dict[str, int]] = {}
        for (queue, state), count in sorted(self._counts.items()):
            found.setdefault(queue, {})[state] = count
        largest = sorted(found.items(), key=lambda item: (-sum(item[1].values()), item[0]))
        return [(*queue, counts) for queue, counts in largest[:QUEUES_NAMED]]

    def queue_count(self) -> int:
        """Return the number of queues that have a job."""
        return len({queue for queue, _ in self._counts})

    # --- chunks ---------------------------------------------------------------------------------

    def _take(self, chunk: bytes) -> tuple[str, Any] | None:
        unpacked = msgpack.unpackb(chunk, strict_map_key=False)
        kind = unpacked[0]
        if self._ended or self._begun == (kind == "head"):
            raise Damaged(f"the image has {kind!r} where it should not")
        if kind == "head":
            return kind, self._take_head(unpacked[1], Head(*unpacked[2]))
        _, value = unpacked
        if kind in _ABSENT:
            return None
        if kind == "tubes":
            self._take_tubes(value)
        elif kind == "jobs":
            value = self._take_jobs(value)
            if not value:
                return None
        elif kind == "end":
            self._ended = True
            value -= self.dropped
        elif kind == "keys":
            self._hash_items(kind, value[2])
        elif kind == "qless" and value is not None:
            value = self._take_qless(value[0], value[1])
        elif kind == "spaces" and value is not None:
            self._hash.update(self._pack([kind, value if len(value) > 3 else [*value, 0]]))
        elif kind != "hosts" and value is not None:
            self._hash.update(self._pack([kind, value]))
        return kind, value

    def _take_head(self, version: int, head: Head) -> list[Any]:
        self._begun = True
        self.version = version
        numbers = dict(zip(MACHINE_NUMBERS, head.numbers, strict=True))
        self.index, self.term, self.wall_us = (
            numbers["index"],
            numbers["term"],
            numbers["wall_us"],
        )
        queue = dict(zip(QUEUE_NUMBERS, head.queue_numbers, strict=True))
        self._hash.update(self._pack([queue[name] for name in _SHOWN_NUMBERS]))
        return [version, head._replace(origins=[], sessions=0)]

    def _take_tubes(self, records: list[list[Any]]) -> None:
        for values in records:
            record = TubeRecord(*values)
            self._tubes[record.serial] = record
            if SPACES[record.space].sticky or record.name == DEFAULT_TUBE:
                self.busy.add(record.serial)

    def _take_jobs(self, records: list[list[Any]]) -> list[list[Any]]:
        """Count the jobs as they are, convert them for the restored cluster and hash the result."""
        kept: list[list[Any]] = []
        packed: list[bytes] = []
        for record in records:
            tube = self._tubes[record[_TUBE]]
            queue = (PROTOCOL_NAMES[tube.space], display_names.queue(tube.name))
            self._counts[queue, STATE_NAMES[record[_STATE]].decode()] += 1
            ext = record[_EXTENSION] if self.version >= SPACES_SINCE else None
            if ext is not None and not self._settle_extension(ext):
                self.dropped += 1
                continue
            if record[_STATE] == RESERVED:
                _settle(record, ext, SPACES[tube.space].to_end)
            self.busy.add(tube.serial)
            kept.append(record)
            packed.append(self._pack(self._hashed(record, ext, tube)))
        self.jobs += len(kept)
        self._hash.update(b"".join(packed))
        return kept

    def _settle_extension(self, ext: list[Any]) -> bool:
        """Remove the clients of a job; returns whether it lives without them."""
        if self.version < EXTENDED_SINCE:
            return True
        ext[_CLIENTS] = []
        return bool(ext[_BACKGROUND])

    def _hashed(self, record: list[Any], ext: list[Any] | None, tube: TubeRecord) -> list[Any]:
        """Return a job's record in the newest layout, with the name of its queue."""
        if self.version < SPACES_SINCE:
            times = [record[_DELAY] * SECOND_US, record[_TTR] * SECOND_US]
            early = [*record[:_DELAY], *times, *record[_TTR + 1 : -1], None, record[-1]]
        else:
            early = list(record)
            if ext is not None and self.version < EXTENDED_SINCE:
                early[_EXTENSION] = [*ext, *_EXTENSION_LATER]
        early[_TUBE] = tube.name
        return early

    # --- qless ----------------------------------------------------------------------------------

    def _take_qless(self, word: str, rows: list[Any]) -> list[Any]:
        """Count and hash the records of a chunk; returns the chunk for a restored cluster."""
        if word == qless_records.THROTTLES:
            # The others exist for their locks and waiting jobs, which a restored cluster lacks.
            rows = [row for row in rows if row[_T_IS_SET]]
        if word == qless_records.JOBS:
            for row in rows:
                name = display_names.text(row[_Q_QUEUE] or row[_Q_COMPLETED_IN])
                queue = (PROTOCOL_NAMES[QLESS], name)
                self._counts[queue, q.STATE_NAMES[row[_Q_STATE]].decode()] += 1
                _settle_qless(row)
                # The digest must not depend on how a large job is split into pieces.
                places = len(qless_records.LONG_FIELDS)
                self._hash.update(self._pack([word, row[:-places]]))
                for name, items in zip(qless_records.LONG_FIELDS, row[-places:], strict=True):
                    self._hash_items(name, items)
            self.jobs += len(rows)
        elif any(rows):  # an image of a version without qless has no zeros
            self._hash_items(word, rows)
        return [word, rows]

    def _hash_items(self, word: str, items: list[Any]) -> None:
        self._hash.update(b"".join([self._pack([word, item]) for item in items]))


def _settle(record: list[Any], ext: list[Any] | None, to_end: bool) -> None:
    """Make a reserved job ready at its old place.

    Where the job itself bounds its attempts (Workq), the present reservation does not count. Under
    the policy of a tube it counts, as when a connection ends. Where a job that comes back begins
    anew, its progress is cleared.
    """
    record[_STATE] = READY
    record[_DUE] = 0
    record[_HOLDER] = 0
    if ext is None:
        return
    if ext[_ATTEMPTS_MAX]:
        record[_RESERVES] = max(0, record[_RESERVES] - 1)
    if to_end:
        ext[_PROGRESS] = b""


def _settle_qless(row: list[Any]) -> None:
    """Make a running job stalled, as after `timeout`: the next of its queue, without locks.

    No attempt is used up. Jobs that wait for a throttle wait in their queues again, because the
    locks that held them back are gone. The next pop applies the throttles again.
    """
    if row[_Q_STATE] == q.RUNNING and row[_Q_PLACE] == LOCKS:
        row[_Q_STATE] = q.STALLED
        row[_Q_PLACE], row[_Q_SCORE] = WORK, INFINITY
        row[_Q_EXPIRES], row[_Q_GRACE] = 0.0, False
        row[_Q_WORKER] = b""
    elif row[_Q_PLACE] == THROTTLED_SINCE:
        row[_Q_SCORE] = work_score(row[_Q_SCORE], row[_Q_PRIORITY])
        row[_Q_PLACE] = WORK
    row[_Q_LEASE] = None
    row[_Q_LOCKED], row[_Q_PENDING] = [], []


class Restoring:
    """The second pass over an image: it writes the image that a restored cluster begins with.

    Attributes:
        contents: the reader of the chunks.
    """

    def __init__(self, busy: set[int], dropped: int) -> None:
        """Take the findings of a first pass (`Contents`) over the same image.

        Args:
            busy: the tubes that stay.
            dropped: the number of dropped jobs; a different number is that of another image.
        """
        self.contents = Contents()
        self._busy = busy
        self._dropped = dropped

    def take(self, chunk: bytes) -> bytes | None:
        """Return a chunk of the new image; None if the new image does not have this chunk.

        Raises:
            Damaged: the chunk is not that of an image, or not of the same image.
        """
        found = self.contents.take(chunk)
        if found is None:
            return None
        kind, value = found
        if kind == "head":
            version, head = value
            return pack([kind, version, head._replace(tubes=len(self._busy))])
        if kind == "tubes":
            value = [record for record in value if record[1] in self._busy]
            if not value:
                return None
        if kind == "end" and self.contents.dropped != self._dropped:
            raise Damaged("the image is not the one that was read before")
        return pack([kind, value])
