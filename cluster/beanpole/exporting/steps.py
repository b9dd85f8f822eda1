"""The atomic and durable steps by which files and objects are published.

Belongs here: folders, renames and replacements, which survive a power cut and which no reader sees
half done, in a local directory or an object store. The contents do not belong here: see `files`.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from beanpole.errors import StorageError
from beanpole.places import Place


def make_folder(place: Place, folder: str = "") -> None:
    """Make a folder of a local directory, and the directory itself, durably."""
    path = os.path.normpath(place.at(folder))
    made = []
    while not os.path.isdir(path):
        made.append(path)
        path = os.path.dirname(path)
    if made:
        os.makedirs(made[0], exist_ok=True)
    for path in made:
        sync_folder(os.path.dirname(path))


def rename(place: Place, before: str, after: str) -> None:
    """Rename a file of a local directory, durably."""
    os.rename(place.at(before), place.at(after))
    sync_folder(os.path.dirname(place.at(after)))


def put(place: Place, name: str, content: Any) -> None:
    """Write a whole object, which becomes visible when it is complete."""
    with place.files.open_output_stream(place.at(name)) as stream:
        stream.write(content)


def write_whole(place: Place, name: str, content: Any) -> None:
    """Replace a file atomically: a reader finds the old content or the whole new one."""
    if not place.is_local:
        put(place, name, content)
        return
    folder, _, last = name.rpartition("/")
    make_folder(place, folder)
    replace_file(place.at(f"{folder}/.{last}" if folder else f".{last}"), place.at(name), content)


def replace_file(hidden: str, path: str, content: Any) -> None:
    """Replace a local file atomically and durably, or make it.

    Args:
        hidden: the path of the unfinished file, in the same folder.
        path: of the file.
        content: bytes, or anything with a buffer.
    """
    with naming(path), open(hidden, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(hidden, path)
    sync_folder(os.path.dirname(path))


def written_at_s(place: Place, name: str) -> float:
    """Return when a file was written, in seconds since 1970 by the clock of its store.

    Raises:
        StorageError: it is not there, or its store does not tell.
    """
    written_ns = place.files.get_file_info(place.at(name)).mtime_ns
    if written_ns is None:
        raise StorageError(f"the time of {place.name}/{name} is not known: it is not there")
    return float(written_ns) / 1e9


def remove(place: Place, name: str) -> None:
    """Remove a file, if it exists."""
    try:
        if place.is_local:
            os.unlink(place.at(name))
        else:
            place.files.delete_file(place.at(name))
    except FileNotFoundError:
        pass


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Name a file in errors of the system that name none: those of writes and syncs."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = path
        raise
