"""One file of events: batches in the form for readers, and their description.

A file is written once, and is complete or absent. The layout is in docs/storage.md. The bytes of a
batch are opaque here; the encoder defines them.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from beanpole.errors import Damaged, UnknownVersion
from beanpole.storage.files import Files, Handle
from beanpole.storage.format import (
    FILE_HEADER_BYTES,
    MAGIC_EVENTS,
    Identity,
    check_identity,
    decode_file_header,
    encode_file_header,
)
from beanpoled.eventlog.events import EventBatch, Events
from beanpoled.view import JobCounts

SUFFIX: Final = ".events"
TEMPORARY: Final = ".tmp"
# Versions of the columns inside: with hosts, and without. Records exist only in memory, and have no
# version.
COLUMNS_VERSION: Final = 2
WITHOUT_HOSTS: Final = 1

# length of the index before it, CRC32C of the index
_FOOTER: Final = Struct("<II")
# Far above the index of the largest segment; below the length that a flipped bit could produce.
_INDEX_BYTES_MAX: Final = 64 * 1024 * 1024


class Place(NamedTuple):
    """The place of a batch in a segment's file."""

    at: int
    size: int
    check: int
    first: int
    rows: int
    wall_us_max: int


class About(NamedTuple):
    """The description of a segment's events.

    Attributes:
        log_index: of the first and the last event.
        wall_us: of the first and the last event.
        state_hash: the machine's state hash after the last event's entry.
        jobs: the counts before the first event.
        columns: the version of the columns.
    """

    log_index: tuple[int, int]
    wall_us: tuple[int, int]
    state_hash: int
    jobs: JobCounts
    columns: int = COLUMNS_VERSION


class EventSegment(NamedTuple):
    """A file of the events first <= offset < end."""

    first: int
    end: int
    path: str
    size: int
    about: About
    places: tuple[Place, ...]


def name_of(first: int, end: int) -> str:
    """Return the file's name."""
    return f"{first:020d}-{end:020d}{SUFFIX}"


def find(files: Files, directory: str, warn: Callable[[str], object]) -> list[str]:
    """Make the directory, remove unfinished files, and return the paths of segments, sorted.

    Args:
        files: the disk.
        directory: of the segments.
        warn: gets a line about an unfinished file that stays; it does no harm.

    Raises:
        OSError: the directory cannot be made or listed.
    """
    files.make_directory(directory)
    found: list[str] = []
    for name in files.list(directory):
        path = os.path.join(directory, name)
        if name.endswith(SUFFIX):
            found.append(path)
        elif name.endswith(TEMPORARY):
            try:
                files.remove(path)
            except OSError as error:
                warn(f"an unfinished file of events stays: {error}; remove it")
    return found


def about(events: Events, jobs: JobCounts) -> About:
    """Describe events that are about to become a segment."""
    first, last = events.note(0), events.note(-1)
    return About(
        (first.log_index, last.log_index),
        (first.wall_us, last.wall_us),
        last.state_hash,
        jobs,
        WITHOUT_HOSTS if events.hosts is None else COLUMNS_VERSION,
    )


def write(
    files: Files,
    directory: str,
    identity: Identity,
    first: int,
    end: int,
    about: About,
    batches: list[EventBatch],
) -> EventSegment:
    """Write a segment durably; after an OSError there is none."""
    path = os.path.join(directory, name_of(first, end))
    temporary = path + TEMPORARY
    places: list[Place] = []
    handle = _made(files, temporary)
    try:
        handle.write(0, encode_file_header(MAGIC_EVENTS, identity, first, end))
        at = FILE_HEADER_BYTES
        for batch in batches:
            handle.write(at, batch.payload)
            check = crc32c(batch.payload)
            size = len(batch.payload)
            places.append(Place(at, size, check, batch.first, batch.rows, batch.wall_us_max))
            at += size
        index = json.dumps([about.columns, about[:-1], places]).encode()
        handle.write(at, index + _FOOTER.pack(len(index), crc32c(index)))
        at += len(index) + _FOOTER.size
        handle.sync()
        files.rename(temporary, path)
        files.sync_directory(directory)
    except OSError:
        for name in (temporary, path):
            with suppress(OSError):
                files.remove(name)  # usually the disk is full: release the space
        raise
    finally:
        handle.close()
    return EventSegment(first, end, path, at, about, tuple(places))


def _made(files: Files, path: str) -> Handle:
    """Make a file; also its directory, which an operator may have removed to get room.

    But not the data directory above it, which may have been moved away and must find its place.
    """
    try:
        return files.open(path, create=True)
    except FileNotFoundError:
        directory = os.path.dirname(path)
        if not files.exists(os.path.dirname(directory)):
            raise
        files.make_directory(directory)
        return files.open(path, create=True)


def inspect(files: Files, path: str, identity: Identity) -> EventSegment:
    """Read the description of a segment; its batches are verified when they are read.

    Raises:
        Damaged: it is no complete segment.
        WrongIdentity: it belongs to another cluster or node.
        UnknownVersion: it was written by another version.
        OSError: the disk refuses.
    """
    handle = files.open(path)
    try:
        header = decode_file_header(handle.read(0, FILE_HEADER_BYTES), MAGIC_EVENTS, path)
        check_identity(header.identity, identity, path)
        size = handle.size()
        index = _index(handle, size, path)
    finally:
        handle.close()
    try:
        version, said, places = json.loads(index)
        if version not in (WITHOUT_HOSTS, COLUMNS_VERSION):
            known = f"{WITHOUT_HOSTS} and {COLUMNS_VERSION}"
            raise UnknownVersion(
                f"{path}: columns of version {version}, this program knows {known}"
            )
        found = About(tuple(said[0]), tuple(said[1]), said[2], JobCounts(*said[3]), version)
        kept = tuple(Place(*place) for place in places)
    except (ValueError, TypeError, IndexError) as error:
        raise Damaged(f"{path}: its index cannot be read: {error!r}") from error
    return EventSegment(header.first, header.second, path, size, found, kept)


def _index(handle: Handle, size: int, path: str) -> bytes:
    at = size - _FOOTER.size
    if at >= FILE_HEADER_BYTES:
        length, check = _FOOTER.unpack(handle.read(at, _FOOTER.size))
        # No index is empty, and the checksum of nothing is that of a footer of zeros.
        if 0 < length <= min(at - FILE_HEADER_BYTES, _INDEX_BYTES_MAX):
            index = handle.read(at - length, length)
            if crc32c(index) == check:
                return index
    raise Damaged(f"{path}: offset {at}: it has no end with a right checksum")


def read(handle: Handle, segment: EventSegment, place: Place) -> bytes:
    """Return a batch as it was written.

    Raises:
        Damaged: its checksum is wrong.
        OSError: the disk refuses.
    """
    payload = handle.read(place.at, place.size)
    if crc32c(payload) != place.check:
        raise Damaged(f"{segment.path}: offset {place.at}: the checksum of a batch is wrong")
    return payload
