"""An export directory: reading its manifest, and holding it to change what counts.

The manifest is replaced as a whole, after the files that it lists are there and before those that
it does not list any more are removed. A process that is killed at any moment leaves a directory
that reads exactly, and the next one that holds it cleans up.
"""

import contextlib
import fcntl
import os
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Final, TextIO

from beanpole.errors import BeanpoleError, ConfigurationError, StorageError
from beanpole.exporting import files as steps
from beanpole.exports import (
    MANIFEST,
    VERSION,
    BadExport,
    File,
    Manifest,
    Owner,
    compared,
    hidden,
    parsed,
    written,
)
from beanpole.places import Place

LOCK: Final = "_lock"
# Object stores have no locks: there a process says in the manifest that it writes, so often; one
# that was silent so long is taken for dead.
OWNER_PERIOD_S: Final = 60
OWNER_SILENT_MAX_S: Final = 300


def read_manifest(place: Place) -> Manifest | None:
    """Return what counts in a directory; None if there is no manifest.

    Raises:
        ConfigurationError: it is none of ours, or of another version.
        StorageError: it cannot be reached.
    """
    name = f"{place.name}/{MANIFEST}"
    try:
        with place.files.open_input_stream(place.at(MANIFEST)) as stream:
            text = stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreachable(name, error) from None
    return parsed(text, name)


def listed(place: Place) -> dict[str, int]:
    """Return the sizes in bytes of all files below a place, by their names relative to it.

    Raises:
        StorageError: it cannot be reached.
    """
    from pyarrow.fs import FileSelector, FileType

    selector = FileSelector(place.path, allow_not_found=True, recursive=True)
    start = len(place.path) + 1
    try:
        there = place.files.get_file_info(selector)
    except OSError as error:
        raise _unreachable(place.name, error) from None
    return {found.path[start:]: found.size for found in there if found.type == FileType.File}


def _unreachable(name: str, error: OSError) -> StorageError:
    reason = str(error).partition("\n")[0]
    return StorageError(f"{name} cannot be read: {reason}")


class Directory:
    """An export directory that this process alone changes, until `close`."""

    def __init__(self, place: Place, manifest: Manifest, lock: TextIO | None) -> None:
        """Use `held` or `begun`."""
        self.place = place
        self.manifest = manifest
        # What is wrong with the files that count, as of `adopt`, in a line each.
        self.lost: tuple[str, ...] = ()
        self._lock = lock
        self._id = uuid.uuid4().hex

    def __enter__(self) -> "Directory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, files: Iterable[File]) -> None:
        """Let files that are there count; one of the same name that counts is replaced."""
        new = {file.name: file for file in files}
        if new:
            kept = [file for file in self.manifest.files if file.name not in new]
            self.change(self.manifest.with_files([*kept, *new.values()]))

    def change(self, manifest: Manifest) -> None:
        """Replace the manifest; a reader sees the old or the new one.

        Raises:
            BadExport: another process took the directory.
        """
        counted = {file.name for file in manifest.files}
        kept = {name: at_s for name, at_s in manifest.uncounted.items() if name not in counted}
        manifest = manifest._replace(uncounted=kept)
        if not self.place.is_local:
            self._check_owner()
            owner = Owner(self._id, socket.gethostname(), int(time.time()))
            manifest = manifest._replace(owner=owner)
        steps.write_whole(self.place, MANIFEST, written(manifest).encode())
        self.manifest = manifest

    def touch(self) -> None:
        """Say that this process still writes, where that is needed."""
        owner = self.manifest.owner
        if owner is not None and time.time() - owner.at_s >= OWNER_PERIOD_S:
            self.change(self.manifest)

    def clean(self, everything: bool = False) -> None:
        """Remove what a compaction has replaced, as far as its time has come, or all of it."""
        now_s = time.time()
        uncounted = self.manifest.uncounted
        due = [name for name, at_s in uncounted.items() if everything or at_s <= now_s]
        if due:
            for name in due:
                steps.remove(self.place, name)
            kept = {name: at_s for name, at_s in uncounted.items() if name not in due}
            self.change(self.manifest._replace(uncounted=kept))

    def close(self) -> None:
        """Let others have the directory."""
        if self._lock is not None:
            self._lock.close()
        elif self.manifest.owner is not None:
            # It is another's by now, or cannot be reached: then that silence ends it.
            with contextlib.suppress(BeanpoleError, OSError):
                self._check_owner()
                self.manifest = self.manifest._replace(owner=None)
                steps.put(self.place, MANIFEST, written(self.manifest).encode())

    def _check_owner(self) -> None:
        """Raise BadExport if another process took the directory."""
        found = read_manifest(self.place)
        owner = found and found.owner
        if owner is not None and owner.id != self._id and self.manifest.owner is not None:
            raise BadExport(f"{self.place.name} was taken by another export, on {owner.host}")

    def own(self) -> None:
        """Say that this process writes, where there are no locks.

        Raises:
            ConfigurationError: another one says so.
        """
        if self.place.is_local:
            return
        owner = self.manifest.owner
        silent_s = int(time.time()) - owner.at_s if owner is not None else 0
        if owner is not None and silent_s < OWNER_SILENT_MAX_S:
            raise ConfigurationError(
                f"another export runs in {self.place.name}: on {owner.host}, {silent_s} s ago; if "
                f"it was killed, wait for {OWNER_SILENT_MAX_S - silent_s} s"
            )
        self.manifest = self.manifest._replace(owner=None)
        self.change(self.manifest)

    def adopt(self, counts_coming: bool = True) -> None:
        """Count the files that the manifest does not know yet, and remove unfinished ones.

        A manifest of version 1 becomes one of version 2, for which all files are read.

        Args:
            counts_coming: whether files behind the manifest's end count; else they are removed.

        Raises:
            BadExport: a file is not as it should be, or events are there twice.
        """
        sizes = listed(self.place)
        for name in sizes:
            if name.rpartition("/")[2].startswith(steps.HIDDEN):
                steps.remove(self.place, name)
        found = compared(self.manifest, sizes, self.place.name)
        manifest = self.manifest
        if manifest.version != VERSION:
            files = [self._described(file) for file in found.files]
            manifest = manifest._replace(version=VERSION).with_files(files)
        self.lost = tuple(problem.words for problem in found.problems if problem.lost)
        twice = [one.words for one in found.problems if one.is_twice]
        if twice:
            raise BadExport(f"{twice[0]}: it was not written by one export")
        for file in () if counts_coming else found.coming:
            steps.remove(self.place, file.name)
        wanted = found.coming if counts_coming else ()
        coming = [file for file in map(self._coming, wanted) if file is not None]
        manifest = manifest.with_files([*manifest.files, *coming])
        if manifest != self.manifest:
            self.change(manifest)

    def _described(self, file: File) -> File:
        return steps.described(self.place, file, self.manifest.cluster)

    def _coming(self, file: File) -> File | None:
        """Return a file that no manifest lists yet; None if it never was whole."""
        try:
            return self._described(file)
        except BadExport:
            # On a disk it got its name when it was whole. Elsewhere a writing that was cut off may
            # have left a part of it, which never counted.
            if self.place.is_local:
                raise
            steps.remove(self.place, file.name)
            return None


def held(place: Place, cluster: str | None = None, *, adopts: bool = True) -> Directory | None:
    """Take an export directory; None if there is none yet.

    Args:
        place: where it is.
        cluster: the cluster that it must be of; None: of any.
        adopts: whether files count that are there and were not listed yet; else they are removed.

    Raises:
        ConfigurationError: it is another cluster's, another process has it, or it is no export.
        BadExport: it has a file that cannot be counted.
    """
    manifest = read_manifest(place)
    if manifest is None:
        if any(not hidden(name) for name in listed(place)):
            raise ConfigurationError(
                f"{place.name} is not empty and has no {MANIFEST}: give a new directory"
            )
        return None
    if cluster not in (None, manifest.cluster):
        raise ConfigurationError(
            f"{place.name} holds events of cluster {manifest.cluster}, not of {cluster}: give "
            "another directory"
        )
    lock = _locked(place)
    # Again, for another process may have replaced it before it let go.
    directory = Directory(place, read_manifest(place) or manifest, lock)
    try:
        directory.own()
        directory.adopt(adopts)
        directory.clean()
    except BaseException:
        directory.close()
        raise
    return directory


def begun(place: Place, cluster: str, jobs_before: Mapping[str, int]) -> Directory:
    """Make an export directory.

    Args:
        place: where it will be.
        cluster: whose events it will have.
        jobs_before: how many jobs were in each state before the first event to come.
    """
    if place.is_local:
        os.makedirs(place.path, exist_ok=True)
    manifest = Manifest(cluster, dict(jobs_before))
    directory = Directory(place, manifest, _locked(place))
    directory.change(manifest)
    return directory


def _locked(place: Place) -> TextIO | None:
    """Lock a local directory until the file is closed; elsewhere there is an owner instead."""
    if not place.is_local:
        return None
    lock = open(place.at(LOCK), "w")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConfigurationError(f"another export runs in {place.name}") from None
    return lock
