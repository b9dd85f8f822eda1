"""Recover the log from its files: verify all, cut a torn tail, make the rest durable."""

import os

from beanpole.errors import Damaged
from beanpole.storage.files import TEMPORARY, Files
from beanpole.storage.format import (
    FILE_HEADER_BYTES,
    MAGIC_SEGMENT,
    Identity,
    check_identity,
    decode_file_header,
)
from beanpole.storage.segment import (
    CLEAN,
    NO_LOG,
    TORN,
    Replay,
    Scan,
    Segment,
    damaged,
    dump_hint,
    judge_ending,
    scan_segment,
    segment_name,
    segment_names,
)


def recover(
    files: Files, directory: str, identity: Identity, replay: Replay, newest: int
) -> tuple[list[Segment], int]:
    """Return the segments, at least one, and the position after the last record.

    `newest` is the base of a segment that once existed: the last segment must have this base or a
    higher one.

    Raises:
        Damaged: see `Wal.open`.
        WrongIdentity: see `Wal.open`.
        UnknownVersion: see `Wal.open`.
        OSError: the disk refuses.
    """
    if newest != NO_LOG and not segment_names(files, directory):
        raise _lost(directory, "the log is gone", "it")
    files.make_directory(directory)
    for name in files.list(directory):
        if name.endswith(TEMPORARY):
            files.remove(os.path.join(directory, name))
    names = segment_names(files, directory)
    if not names:
        first = Segment(directory, 0, identity)
        first.create(files)
        return [first], 0
    segments: list[Segment] = []
    end = -1
    for position, name in enumerate(names):
        # On an error the process ends, so open files are not closed.
        segment, data = _load(files, directory, name, identity)
        if end >= 0 and segment.base != end:
            missing = os.path.join(directory, segment_name(end))
            raise damaged(missing, 0, f"missing: the next file is {name}, so records are lost")
        scan = scan_segment(data, segment.base, segment.seed, replay)
        ending = judge_ending(data, scan.offset, segment.base, segment.seed)
        last = position + 1 == len(names)
        if ending.verdict != CLEAN and not (last and ending.verdict == TORN):
            raise damaged(segment.path, scan.offset, ending.reason)
        if last:
            _settle(files, segment, data, scan, torn=ending.verdict == TORN)
            files.sync_directory(directory)
        else:
            segment.close()
        end = segment.base + scan.offset - FILE_HEADER_BYTES
        segments.append(segment)
    if segments[-1].base < newest:
        words = f"{segment_name(newest)} and the segments after it are gone"
        raise _lost(directory, words, "them")
    return segments, end


def _lost(directory: str, words: str, them: str) -> Damaged:
    """Build the error for files that once existed: there is nothing to dump."""
    return Damaged(
        f"{directory}: {words}, although the identity of this disk records {them}: mount or "
        f"restore {them}, or start on an empty data directory with --rejoin"
    )


def _load(files: Files, directory: str, name: str, identity: Identity) -> tuple[Segment, bytes]:
    """Read a whole segment, and check its owner and its base."""
    path = os.path.join(directory, name)
    handle = files.open(path)
    data = handle.read(0, handle.size())
    header = decode_file_header(data, MAGIC_SEGMENT, path, dump_hint(directory))
    check_identity(header.identity, identity, path)
    if segment_name(header.first) != name:
        raise damaged(path, 0, f"its header says that it is {segment_name(header.first)}")
    segment = Segment(directory, header.first, identity)
    segment.handle = handle
    segment.filled = len(data)
    return segment, data


def _settle(files: Files, segment: Segment, data: bytes, scan: Scan, torn: bool) -> None:
    """Cut a torn tail and make the records that were read durable, before they are used.

    The records may have been read from the system's cache: the previous process may have died
    between write and sync, or its sync may have failed, after which the system considers the pages
    clean although the disk never got them. So the last batch is written again; the bytes before it
    were synced before it was written.
    """
    handle = segment.opened(files)
    if torn:
        handle.truncate(scan.offset)
        segment.filled = scan.offset
    if scan.offset > scan.front:
        handle.write(scan.front, data[scan.front : scan.offset])
    handle.sync()
