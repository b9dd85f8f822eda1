"""Dump a log for an operator: `beanpoled --dump-wal DIR`. Read-only; validates as a start does."""

import os
from collections.abc import Iterator

from beanpole.errors import BeanpoleError
from beanpole.storage.files import Files, InlineFiles
from beanpole.storage.format import FILE_HEADER_BYTES, MAGIC_SEGMENT, decode_file_header
from beanpole.storage.segment import (
    CLEAN,
    TORN,
    Segment,
    judge_ending,
    scan_segment,
    segment_name,
    segment_names,
)


def describe(directory: str, files: Files | None = None) -> Iterator[str]:
    """Yield lines of text: each segment, each record, and the verdict on each segment's end.

    For a log that would stop the node, one line begins with `DAMAGED`. No file is changed, and
    errors of the format are reported as lines, not raised as exceptions.

    Raises:
        OSError: the disk refuses.
    """
    files = files or InlineFiles()
    names = segment_names(files, directory)
    if not names:
        yield f"{directory}: no segments"
    end = -1
    for position, name in enumerate(names):
        path = os.path.join(directory, name)
        handle = files.open(path)
        try:
            data = handle.read(0, handle.size())
        finally:
            handle.close()
        yield f"{path}: {len(data)} bytes"
        try:
            header = decode_file_header(data, MAGIC_SEGMENT, path)
        except BeanpoleError as error:
            yield f"DAMAGED: {error}"
            end = -1
            continue
        segment = Segment(directory, header.first, header.identity)
        yield f"  node {header.identity.node} of cluster {header.identity.cluster}"
        if segment_name(header.first) != name:
            yield f"DAMAGED: its header says that it is {segment_name(header.first)}"
        if end not in (-1, segment.base):
            yield f"DAMAGED: {segment_name(end)} should come here"
        lines, offset = _records(data, segment)
        yield from lines
        ending = judge_ending(data, offset, segment.base, segment.seed)
        last = position + 1 == len(names)
        end = segment.base + offset - FILE_HEADER_BYTES
        if ending.verdict == CLEAN:
            yield f"  offset {offset}: end of the records at position {end}"
        elif ending.verdict == TORN and last:
            yield f"  offset {offset}: torn tail, a start cuts it: {ending.reason}"
        else:
            yield f"DAMAGED: offset {offset}: {ending.reason}"


def _records(data: bytes, segment: Segment) -> tuple[list[str], int]:
    """Return a line per valid record, and the offset after them."""
    lines: list[str] = []

    def show(at: int, kind: int, index: int, term: int, payload: bytes) -> None:
        lines.append(
            f"  offset {segment.offset(at)}: at {at} kind {kind} index {index} term {term} "
            f"payload {len(payload)} bytes"
        )

    scan = scan_segment(data, segment.base, segment.seed, show)
    return lines, scan.offset
