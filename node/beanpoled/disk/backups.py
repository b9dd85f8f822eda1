"""Backups without a cluster: verify a whole backup, and make data directories from it.

This is behind `beanpole backup` and `beanpole restore`. The file format is in `storage.backups`,
the conversion of an image into that of a new cluster in `core.image.contents`, texts for people in
`cli`.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from beanpole.core.image import restore
from beanpole.core.image.contents import Contents, Restoring
from beanpole.core.machine import Machine
from beanpole.errors import Damaged
from beanpole.replication.pysyncobj.offline import begin_replica
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader
from beanpole.storage.backups import Reader, Source
from beanpole.storage.files import InlineFiles
from beanpole.storage.locks import LOCK
from beanpoled.disk import identity as identities

# Entries that a file system creates in an empty volume, and the file that a process locks before it
# writes anything; any other entry means the directory is in use.
IGNORED: Final = frozenset({"lost+found", LOCK})
# Numbers beyond it have no place in headers of snapshots or in the calendar.
_NUMBER_MAX: Final = 2**53
_COUNTS: Final = {str: int}
# The fields of the header and of the footer: each is of a type, or a list, tuple or dict of such.
_HEADER: Final[dict[str, Any]] = {
    **dict.fromkeys(("cluster", "node", "birth", "program"), str),
    **dict.fromkeys(("index", "term", "created_s"), int),
    "members": [str],
}
_FOOTER: Final[dict[str, Any]] = {
    "digest": bytes,
    **dict.fromkeys(("jobs", "dropped", "queue_count", "machine_version", "wall_us"), int),
    "counts": {str: _COUNTS},
    "queues": [(str, str, _COUNTS)],
}


class Backup(NamedTuple):
    """The metadata of a backup, and the contents that were found in it.

    Attributes:
        about: the header.
        end: the footer.
        contents: of its chunks.
    """

    about: dict[str, Any]
    end: dict[str, Any]
    contents: Contents


def summary(contents: Contents) -> dict[str, Any]:
    """Return the summary of a complete image that the footer of a backup holds."""
    return {
        "digest": contents.digest(),
        "jobs": contents.jobs,
        "dropped": contents.dropped,
        "counts": contents.counts(),
        "queues": contents.queues(),
        "queue_count": contents.queue_count(),
        "machine_version": contents.version,
        "wall_us": contents.wall_us,
    }


def descriptions(reader: Reader, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the footer of a backup whose chunks were all read.

    Raises:
        Damaged: a field is missing, or of another type: no program of ours has written it.
    """
    assert reader.end is not None, "all chunks were read"
    for part, shapes, found in (
        ("header", _HEADER, reader.about),
        ("footer", _FOOTER, reader.end),
    ):
        for field, shape in shapes.items():
            if not _fits(found.get(field), shape):
                raise Damaged(f"{name}: its {part} does not have a valid {field}")
    return reader.about, reader.end


def _fits(value: Any, shape: Any) -> bool:
    if shape is int:
        return type(value) is int and 0 <= value <= _NUMBER_MAX
    if isinstance(shape, type):
        return type(value) is shape
    if isinstance(shape, dict):
        (kinds,) = shape.items()
        return type(value) is dict and all(_fits(list(item), kinds) for item in value.items())
    if type(value) is not list:
        return False
    if isinstance(shape, list):
        return all(_fits(item, shape[0]) for item in value)
    return len(value) == len(shape) and all(map(_fits, value, shape))


def read_whole(stream: Source, name: str, moved: Callable[[int], None]) -> Backup:
    """Read a backup from its first to its last byte, and verify the digest of its contents.

    Args:
        stream: the source; it may be a pipe.
        name: of the file, for messages.
        moved: called with the number of bytes read so far.

    Raises:
        Damaged: the file is corrupt.
        UnknownVersion: another program wrote it.
        OSError: it cannot be read.
    """
    reader = Reader(stream, name)
    contents = Contents()
    for chunk in reader.chunks():
        contents.take(chunk)
        moved(reader.offset)
    about, end = descriptions(reader, name)
    if contents.digest() != end["digest"]:
        raise Damaged(f"{name}: the contents do not have the digest of the footer")
    if contents.index != about["index"]:
        raise Damaged(f"{name}: the image is at another index than the header says")
    return Backup(about, end, contents)


def restored(stream: Source, name: str, backup: Backup) -> Iterator[bytes]:
    """Yield the image with which a new cluster begins.

    Args:
        stream: the same file again, from its beginning.
        name: of the file, for messages.
        backup: the result of `read_whole`.

    Raises:
        Damaged: the file is another one, or corrupt.
    """
    restoring = Restoring(backup.contents.busy, backup.contents.dropped)
    for chunk in Reader(stream, name).chunks():
        made = restoring.take(chunk)
        if made is not None:
            yield made
    if restoring.contents.digest() != backup.end["digest"]:
        raise Damaged(f"{name} was changed while it was read")


def load(stream: Source, name: str, backup: Backup) -> Machine:
    """Return the machine with which a node of the new cluster begins, built as its start would.

    Raises:
        Damaged: no machine can be built from the backup.
        UnknownVersion: it needs a newer program.
    """
    return restore.load(restored(stream, name, backup))


def is_free(directory: str) -> bool:
    """Whether a data directory may be made here: the path is missing, or an empty folder.

    Raises:
        OSError: the path cannot be examined.
    """
    if not os.path.lexists(directory):
        return True
    return os.path.isdir(directory) and not set(os.listdir(directory)) - IGNORED


def header_of(backup: Backup, birth: bytes) -> SnapshotHeader:
    """Return the header of the first snapshot of a new cluster.

    Raises:
        Damaged: the backup's index or term is impossible.
    """
    index, term = backup.about["index"], backup.about["term"]
    if type(index) is not int or type(term) is not int or index < 2 or term < 0:
        raise Damaged(f"the backup is of index {index} and term {term}, which cannot be")
    return SnapshotHeader(index, term + 1, term, birth)


def make_directory(
    directory: str,
    identity: identities.DiskIdentity,
    header: SnapshotHeader,
    image: Iterator[bytes],
) -> None:
    """Make the data directory of one member, a voter of the cluster of `header`.

    Raises:
        Damaged: from `image`.
        OSError: a write failed; the directory is unusable.
    """
    files = InlineFiles()
    files.make_directory(directory)
    base = begin_replica(files, directory, identity.owner, header, image)
    # The identity is written last, because a directory counts only with it.
    identities.write(files, directory, identity._replace(log_base=base))
