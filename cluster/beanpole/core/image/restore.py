"""Load a machine from the chunks of an image, with validation: an invalid image is `Damaged`.

The records of an image are in `core.image.records`, their order in `core.image.image`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

import msgpack

from beanpole import commands as c
from beanpole.constants import DEDUP_KEY_MAX_BYTES, U8_MAX, U32_MAX
from beanpole.core.image import parts
from beanpole.core.image.image import KEYS_PER_CHUNK
from beanpole.core.image.jobs import load_jobs
from beanpole.core.image.records import (
    MACHINE_LIMITS,
    MACHINE_NUMBERS,
    QUEUE_NUMBERS,
    SESSION_FIELDS_SINCE,
    GenerationRecord,
    Head,
    OriginRecord,
    SessionRecord,
    TubeRecord,
    set_queue,
    tube_fields,
)
from beanpole.core.jobs.aliases import ALIASES_SINCE
from beanpole.core.jobs.job import PAUSED, Job, Tube
from beanpole.core.jobs.spaces import Space
from beanpole.core.keys import shard_of
from beanpole.core.machine import Machine
from beanpole.core.sessions import DEAD, DETACHED, Origin, Session
from beanpole.core.users import BIRTH_BYTES, TOKEN_DIGEST_BYTES, may_be_name
from beanpole.errors import Damaged, UnknownVersion

# An image is written in the machine's active version. The program reads images from this version up
# to the newest that it knows. A release that drops support for older versions changes this.
OLDEST_VERSION: Final = c.BASE_VERSION


def load(chunks: Iterable[bytes], knows: int = c.MACHINE_VERSION) -> Machine:
    """Build a machine from the chunks of an image.

    Args:
        chunks: the chunks that `Image.next_chunk` returned.
        knows: the newest machine version that the program knows.

    Raises:
        UnknownVersion: the image is of a version that this program does not read.
        Damaged: the chunks are not those of an image.
    """
    iterator = iter(chunks)
    try:
        kind, version, values = _unpack(next(iterator, b""))
        if kind != "head":
            raise Damaged("the image does not begin with its head")
        if type(version) is not int:
            raise Damaged(f"the image has the version {version!r}")
        if version > knows:
            raise UnknownVersion(upgrade_words(version, knows))
        if version < OLDEST_VERSION:
            raise UnknownVersion(
                f"the data are of machine version {version}, this program reads "
                f"{OLDEST_VERSION} to {knows}: start a release that knows both before this one"
            )
        head = Head(*values)
        loading = _Loading(head, version)
        loading.load_tubes(head, iterator)
        loading.load_sessions(head, iterator)
        _load_keys(loading.machine, head, iterator)
        _load_parts(loading.machine, iterator)
        loading.check_hosts()
        load_jobs(loading.machine, loading.tubes, loading.sessions, _unpacked(iterator))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise Damaged(f"the image cannot be read: {error!r}") from error
    return loading.machine


def upgrade_words(needed: int, knows: int) -> str:
    """Return the message of a node whose program does not know a required machine version."""
    return (
        f"this cluster's data need machine version {needed}, this program knows up to {knows}: "
        "upgrade beanpoled on this node to the release that the other nodes run, and start it again"
    )


def _unpack(chunk: bytes, use_list: bool = True) -> Any:
    return msgpack.unpackb(chunk, use_list=use_list, strict_map_key=False)


def _unpacked(chunks: Iterator[bytes]) -> Iterator[Any]:
    for chunk in chunks:
        yield _unpack(chunk)


class _Loading:
    """A machine that is being loaded, and its objects by their numbers in the image."""

    def __init__(self, head: Head, version: int) -> None:
        self.machine = Machine()
        self.machine.activate(version)
        self.tubes: dict[int, Tube] = {}  # by serial number, like sessions
        self.sessions: dict[int, Session] = {}
        self._tokens: dict[bytes, bytes] = {}  # interned: many sessions share a token
        fields = (*MACHINE_NUMBERS, *MACHINE_LIMITS)
        for field, value in zip(fields, head.numbers + head.limits, strict=True):
            setattr(self.machine, field, value)
        for values in head.origins:
            record = OriginRecord(*values)
            origin = self.machine.origins[record.origin] = Origin(record.origin)
            origin.incarnation = record.incarnation
            origin.next_number = record.next_number
            origin.alive = record.alive

    def load_tubes(self, head: Head, chunks: Iterator[bytes]) -> None:
        """Load all tubes, and the queue's numbers from the head."""
        queue = self.machine.queue
        tubes_total = head.queue_numbers[QUEUE_NUMBERS.index("tubes_total")]
        last = 0
        while len(self.tubes) < head.tubes:
            kind, records = _unpack(next(chunks, b""))
            if kind != "tubes" or not records:
                raise Damaged(f"the image holds {len(self.tubes)} tubes and says {head.tubes}")
            for values in records:
                record = self._tube_record(values)
                if not last < record.serial <= tubes_total:
                    raise Damaged(f"tube {record.serial} comes after tube {last}")
                last = record.serial
                self._load_tube(record)
        if len(queue.tubes) != len(self.tubes):
            raise Damaged(f"the image has {len(self.tubes)} tubes for {len(queue.tubes)} names")
        queue.tubes_named = [(tube.number, tube.name) for tube in self.tubes.values()]
        # After the tubes, because their creation counts.
        set_queue(queue, head.queue_numbers)

    def _load_tube(self, record: TubeRecord) -> None:
        queue, serial = self.machine.queue, record.serial
        space = queue.spaces[record.space]
        tube = self.tubes[serial] = queue.tube(record.name, space)
        if tube.space is not space or space.number != record.space:
            raise Damaged(f"tube {serial} is of space {record.space}")
        tube.serial = serial
        tube.number = serial & U32_MAX
        tube.jobs_total = record.jobs_total
        tube.deletes = record.deletes
        tube.pauses = record.pauses
        tube.pause_s = record.pause_s
        tube.paused_until_us = record.paused_until_us
        high, normal, low = record.limits
        if not 0 <= min(record.limits) <= max(record.limits) <= U32_MAX:
            raise Damaged(f"tube {serial} has the limits {record.limits}")
        tube.limits = (high, normal, low)
        if tube.paused_until_us:
            tube.closed = PAUSED
            queue.pauses.add((tube.paused_until_us, tube.name))

    def _tube_record(self, values: list[Any]) -> TubeRecord:
        record = TubeRecord(*values)
        if len(values) != tube_fields(self.machine.version):
            raise Damaged(f"tube {record.serial} has {len(values)} fields")
        return record

    def load_sessions(self, head: Head, chunks: Iterator[bytes]) -> None:
        """Load all sessions; the jobs of a session that holds very many follow it in own chunks."""
        while len(self.sessions) < head.sessions:
            kind, records = _unpack(next(chunks, b""))
            if kind != "sessions" or not records:
                raise Damaged(
                    f"the image holds {len(self.sessions)} sessions and says {head.sessions}"
                )
            for values in records:
                record = SessionRecord(*values)
                has_all = len(values) == len(record)
                if has_all != (self.machine.version >= SESSION_FIELDS_SINCE):
                    raise Damaged(f"session {record.serial} has {len(values)} fields")
                self._load_session(record)
            if type(record.held) is int:
                session = self.sessions[record.serial]
                while len(session.reserved) < record.held:
                    kind, ids = _unpack(next(chunks, b""))
                    if kind != "held" or not ids:
                        raise Damaged(
                            f"session {session.number} holds less than {record.held} jobs"
                        )
                    session.reserved.update(cast(dict[int, Job], dict.fromkeys(ids)))

    def _load_session(self, record: SessionRecord) -> None:
        machine, serial = self.machine, record.serial
        if serial in self.sessions or not 0 < serial <= machine.sessions_total:
            raise Damaged(f"session {serial} of {machine.sessions_total}")
        space = machine.queue.spaces.get(record.protocol, machine.queue.beanstalk)
        session = Session(serial, record.origin, record.incarnation, record.number, space)
        self.sessions[serial] = session
        session.epoch, session.state = record.epoch, record.state
        if record.used or space.default:
            session.used = self.tubes[record.used]
            session.used.users += 1
        for one in record.watched:
            name, tube = self._watched(one, space)
            if name in session.watched:
                raise Damaged(f"session {session.number} watches {name!r} twice")
            session.watched[name] = tube
            tube.watchers += 1
        used = session.used
        if used is not None and used.space is not space and machine.version < ALIASES_SINCE:
            raise Damaged(f"session {session.number} uses a tube of another space")
        machine.watches += len(record.watched)
        # The jobs themselves are filled in when they are loaded; this fixes their order.
        held: list[int] = [] if type(record.held) is int else record.held
        session.reserved = cast(dict[int, Job], dict.fromkeys(held))
        session.request_granted = record.request_granted
        session.secret = record.secret
        session.grace_us = record.grace_us
        session.detached_until_us = record.detached_until_us
        session.protocol = record.protocol
        session.reason = record.reason
        session.move(record.origin, record.incarnation, record.number, record.host)
        if not (0 <= session.protocol <= U8_MAX and 0 <= session.reason <= U8_MAX):
            raise Damaged(
                f"session {session.number} has the protocol {session.protocol}"
                f" and the reason {session.reason}; a byte is allowed for each"
            )
        self._set_user(session, record)
        if session.state == DEAD:
            machine.ending.append(session)
            return
        machine.sessions += 1
        if session.secret:
            machine.resumable[session.secret] = session
        if session.state == DETACHED:
            machine.detached[serial] = session
            machine.returning.add((session.detached_until_us, serial))
        else:
            self._attach(session)

    def _set_user(self, session: Session, record: SessionRecord) -> None:
        user, token = record.user, record.token
        if (
            not (type(user) is type(token) is bytes)
            or (user and not may_be_name(user))
            or bool(user) != bool(token)
            or (token and len(token) not in (TOKEN_DIGEST_BYTES, BIRTH_BYTES))
        ):
            raise Damaged(f"session {session.number} is of a user that cannot be")
        session.user, session.token = user, self._tokens.setdefault(token, token)

    def _watched(self, record: Any, space: Space) -> tuple[bytes, Tube]:
        """Return the name and the tube of a record of a watched tube.

        Where the tube is of another space, the name is an alias, which the record contains.
        """
        if type(record) is int:
            tube = self.tubes[record]
            name = tube.name
            is_right = tube.space is space
        else:
            serial, name = record
            tube = self.tubes[serial]
            is_right = tube.space is not space and space.may_name(name)
        if not is_right or (type(record) is not int and self.machine.version < ALIASES_SINCE):
            raise Damaged(f"a session watches the tube {tube.name!r} of another space")
        return name, tube

    def check_hosts(self) -> None:
        """Check that the hosts of all sessions are in the image."""
        known = len(self.machine.hosts.names)
        for session in self.sessions.values():
            if not 0 <= session.host <= known:
                raise Damaged(f"session {session.number} is of host {session.host} of {known}")

    def _attach(self, session: Session) -> None:
        """Attach a session to its origin, or add it to the lost ones if its incarnation is dead."""
        machine = self.machine
        origin = machine.origins[session.origin]
        if origin.alive and origin.incarnation == session.incarnation:
            origin.sessions[session.number] = session
            return
        lost = next(iter(machine.lost[-1].values())) if machine.lost else None
        if lost is None or lost.origin != session.origin or lost.incarnation != session.incarnation:
            machine.lost.append({})
        machine.lost[-1][session.number] = session


def _load_keys(machine: Machine, head: Head, chunks: Iterator[bytes]) -> None:
    """Load the shards of both generations, in order; a large shard has several chunks."""
    keys = machine.keys
    generations = (keys.older, keys.younger)
    last, size = (0, -1), 0
    for _ in range(head.key_chunks):
        kind, (age, place, items) = _unpack(next(chunks, b""))
        # Only a full chunk may be followed by another of the same shard.
        after = last <= (age, place) if size == KEYS_PER_CHUNK else last < (age, place)
        if kind != "keys" or not after:
            raise Damaged(f"keys {age}, {place} come after {last}")
        size = len(items)
        if not 0 < size <= KEYS_PER_CHUNK:
            raise Damaged(f"{size} keys {age}, {place} in one chunk")
        last = (age, place)
        for key, job_id in items:
            if not 0 < len(key) <= DEDUP_KEY_MAX_BYTES or shard_of(key) != place or keys.find(key):
                raise Damaged(f"the key {key!r} stands in shard {place}")
            if type(job_id) is not int or not 0 < job_id < machine.queue.next_id:
                raise Damaged(f"the key {key!r} has job {job_id}")
            generations[age].add(key, job_id)
    for generation, values in zip(generations, head.generations, strict=True):
        record = GenerationRecord(*values)
        generation.began_us = record.began_us
        if generation.count != record.keys:
            raise Damaged(f"the image holds {generation.count} keys and says {record.keys}")


def _load_parts(machine: Machine, chunks: Iterator[bytes]) -> None:
    """Load the parts that an image of this version has beyond the base version."""
    for name, part in parts.of_version(machine.version):
        while True:
            kind, value = _unpack(next(chunks, b""), use_list=False)
            if kind != name:
                raise Damaged(f"the image has {kind!r} where {name!r} should go on or end")
            if value is None:
                part.end(machine)
                break
            part.read(machine, value)
