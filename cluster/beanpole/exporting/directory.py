"""An export directory: read its manifest, and hold the directory to change the files that count.

The manifest is replaced as a whole, after the files that it lists are complete and before the files
that it no longer lists are removed. A process that is killed at any moment leaves a directory with
correct contents, and the next process that holds the directory cleans up.
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
from beanpole.exporting import steps
from beanpole.exporting.files import HIDDEN, described
from beanpole.exporting.last_event import EventAt, check_last_event
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
# Object stores have no locks. There a process renews its ownership in the manifest with this
# period; an owner that was silent for the maximum is considered dead.
OWNER_PERIOD_S: Final = 60
OWNER_SILENT_MAX_S: Final = 300


class OwnedByAnother(ConfigurationError):
    """Another process owns a directory without locks, or was killed while it did."""

    def __init__(self, words: str, left_s: int) -> None:
        """Keep the time after which the owner counts as dead, unless it renews its ownership."""
        super().__init__(words)
        self.left_s = left_s


def read_manifest(place: Place) -> Manifest | None:
    """Return the manifest of a directory; None if there is none.

    Raises:
        ConfigurationError: it is not a manifest of an export, or has another version.
        StorageError: it cannot be read.
    """
    name = f"{place.name}/{MANIFEST}"
    try:
        _check_regular(place, name)
        with place.files.open_input_stream(place.at(MANIFEST)) as stream:
            text = stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreachable(name, error) from error
    return parsed(text, name)


def _check_regular(place: Place, name: str) -> None:
    """Refuse a manifest that is a pipe or a device: to read it could last for ever.

    Raises:
        StorageError: it is one.
    """
    from pyarrow.fs import FileType

    if place.is_local and place.files.get_file_info(place.at(MANIFEST)).type == FileType.Unknown:
        raise StorageError(f"{name} cannot be read: it is no regular file")


def listed(place: Place) -> dict[str, int]:
    """Return the sizes in bytes of all files below a place, by their names relative to it.

    Raises:
        StorageError: the place cannot be read.
    """
    from pyarrow.fs import FileSelector, FileType

    selector = FileSelector(place.path, allow_not_found=True, recursive=True)
    start = len(place.path) + 1
    try:
        there = place.files.get_file_info(selector)
    except OSError as error:
        raise _unreachable(place.name, error) from error
    return {found.path[start:]: found.size for found in there if found.type == FileType.File}


def _unreachable(name: str, error: OSError) -> StorageError:
    reason = str(error).partition("\n")[0]
    return StorageError(f"{name} cannot be read: {reason}")


class Directory:
    """An export directory that only this process changes, until `close`."""

    def __init__(self, place: Place, manifest: Manifest, lock: TextIO | None) -> None:
        """Use `held` or `begun`."""
        self.place = place
        self.manifest = manifest
        # The problems of the files that count, as of `adopt`, one line each.
        self.lost: tuple[str, ...] = ()
        # The number of events in those files, which `manifest.spans` still has. Version 1 turns
        # their ranges into holes instead.
        self.lost_rows = 0
        self._lock = lock
        # Whether the cluster has the last event, as far as nodes without a birth id can tell.
        self._is_compared = False
        self._id = uuid.uuid4().hex

    def __enter__(self) -> "Directory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, files: Iterable[File]) -> None:
        """Add existing files to the manifest, replacing entries of the same names.

        Raises:
            BadExport: another process has taken the directory; the files are removed.
        """
        new = {file.name: file for file in files}
        if new:
            kept = [file for file in self.manifest.files if file.name not in new]
            self.change_with(self.manifest.with_files([*kept, *new.values()]), new)

    def change_with(self, manifest: Manifest, names: Iterable[str]) -> None:
        """Replace the manifest by one with new files, which are removed if that is refused.

        Raises:
            BadExport: another process has taken the directory.
        """
        try:
            self.change(manifest)
        except BadExport:
            self.disown(names)
            raise

    def disown(self, names: Iterable[str]) -> None:
        """Remove new files after another process has taken the directory behind `check_owner`.

        Readers would refuse them where they overlap with those of the new owner. A file of the same
        name may be one that the owner counts.
        """
        with contextlib.suppress(BeanpoleError, OSError):
            for name in set(names) - self._counted():
                steps.remove(self.place, name)

    def _counted(self) -> set[str]:
        """Return the names of the files that count by the manifest as it is written now."""
        found = read_manifest(self.place)
        return set() if found is None else {file.name for file in found.files}

    def change(self, manifest: Manifest) -> None:
        """Replace the manifest; a reader sees the old or the new one.

        Raises:
            BadExport: another process has taken the directory.
        """
        counted = {file.name for file in manifest.files}
        kept = {name: at_s for name, at_s in manifest.uncounted.items() if name not in counted}
        manifest = manifest._replace(uncounted=kept)
        if not self.place.is_local:
            self.check_owner()
            owner = Owner(self._id, socket.gethostname(), int(time.time()))
            manifest = manifest._replace(owner=owner)
        steps.write_whole(self.place, MANIFEST, written(manifest).encode())
        self.manifest = manifest

    def claim(self, birth: str, event_at: EventAt) -> None:
        """Write down of which cluster of its name the events are, if that is not known yet.

        Where one side does not tell its birth id, the last event must be the same.

        Args:
            birth: the birth id of the cluster; empty if the nodes have not told it.
            event_at: how to get an event of the cluster.

        Raises:
            ConfigurationError: the events are of another cluster; or they may be, and the directory
                would get the birth id.
        """
        _check_birth(self.place, self.manifest, birth)
        is_new = self.is_new(birth)
        if is_new or not (birth or self._is_compared):
            check_last_event(self.place, self.manifest, event_at, birth)
            self._is_compared = True
        if is_new:
            self.change(self.manifest._replace(birth=birth))

    def is_new(self, birth: str) -> bool:
        """Whether `claim` would write this birth id down."""
        return bool(birth) and not self.manifest.birth

    def touch(self) -> None:
        """Renew the ownership of this process, if the directory has no lock and renewal is due."""
        owner = self.manifest.owner
        # A clock that was set back has not passed the last renewal for a while.
        if owner is not None and not 0 <= time.time() - owner.at_s < OWNER_PERIOD_S:
            self.change(self.manifest)

    def clean(self, everything: bool = False) -> None:
        """Remove files replaced by a compaction: those whose grace time is over, or all of them."""
        now_s = time.time()
        uncounted = self.manifest.uncounted
        due = [name for name, at_s in uncounted.items() if everything or at_s <= now_s]
        if due:
            # A new owner may count a file of such a name,
            self.check_owner()
            # and so may this directory, if the write of its manifest failed at the last moment.
            counted = self._counted()
            due = [name for name in due if name not in counted]
            for name in due:
                steps.remove(self.place, name)
            if self.place.is_local:
                # A file that came back after a power cut would have events of another file again.
                for folder in {os.path.dirname(self.place.at(name)) for name in due}:
                    with contextlib.suppress(FileNotFoundError):
                        steps.sync_folder(folder)
            kept = {name: at_s for name, at_s in uncounted.items() if name not in due}
            self.change(self.manifest._replace(uncounted=kept))

    def take_up(self) -> None:
        """After an error of the place: see what it has of the last change, as a restart does.

        Raises:
            BadExport: another process has taken the directory, or it has a file that cannot be
                added.
        """
        self.check_owner()
        self.manifest = read_manifest(self.place) or self.manifest
        self.adopt(counts_coming=True)

    def close(self) -> None:
        """Release the directory for other processes."""
        if self._lock is not None:
            self._lock.close()
        elif self.manifest.owner is not None:
            # On an error another process owns the directory, or it cannot be reached: then the
            # ownership ends by silence.
            with contextlib.suppress(BeanpoleError, OSError):
                self.check_owner()
                self.manifest = self.manifest._replace(owner=None)
                steps.put(self.place, MANIFEST, written(self.manifest).encode())

    def check_owner(self) -> None:
        """Check that this process owns the directory still, before a file gets its final name.

        A local directory needs no check: nobody takes it while it is locked.

        Raises:
            BadExport: another process has taken the directory.
        """
        if self.place.is_local:
            return
        found = read_manifest(self.place)
        if found is None or self.manifest.owner is None:
            return
        owner = found.owner
        if owner is None or owner.id != self._id:
            whose = "which has ended" if owner is None else f"on {owner.host}"
            raise BadExport(f"{self.place.name} was taken by another export, {whose}")

    def own(self) -> None:
        """Claim the ownership of a directory without locks.

        Raises:
            OwnedByAnother: another process owns it.
        """
        if self.place.is_local:
            return
        owner = self.manifest.owner
        silent_s = self._silent_s() if owner is not None else 0
        if owner is not None and silent_s < OWNER_SILENT_MAX_S:
            left_s = OWNER_SILENT_MAX_S - silent_s
            raise OwnedByAnother(
                f"another export runs in {self.place.name}: on {owner.host}, {silent_s} s ago; if "
                f"it was killed, wait for {left_s} s",
                left_s,
            )
        self.manifest = self.manifest._replace(owner=None)
        self.change(self.manifest)

    def _silent_s(self) -> int:
        """Return how long ago the manifest was written.

        The clock of the store tells it: those of two machines may be hours apart.
        """
        probe = f"{HIDDEN}{self._id}"
        steps.put(self.place, probe, b"")
        try:
            return max(
                0,
                int(
                    steps.written_at_s(self.place, probe) - steps.written_at_s(self.place, MANIFEST)
                ),
            )
        finally:
            steps.remove(self.place, probe)

    def adopt(self, counts_coming: bool) -> None:
        """Add the files that the manifest does not list yet, and remove unfinished ones.

        A manifest of version 1 is upgraded to version 2, which requires reading all files.

        Args:
            counts_coming: whether to add files after the manifest's end; else they are removed.

        Raises:
            BadExport: a file is corrupt, or two files have the same events.
        """
        sizes = listed(self.place)
        for name in sizes:
            if name.rpartition("/")[2].startswith(HIDDEN):
                steps.remove(self.place, name)
        found = compared(self.manifest, sizes, self.place.name)
        manifest = self.manifest
        lost = [problem.lost for problem in found.problems if problem.lost]
        if manifest.version == VERSION:
            self.lost_rows = sum(end - first for first, end in lost)
        else:
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
        return described(self.place, file, self.manifest.cluster)

    def _coming(self, file: File) -> File | None:
        """Return a file that no manifest lists yet; None if it was never complete."""
        try:
            return self._described(file)
        except BadExport:
            # On a local disk a file gets its name when it is complete. Elsewhere an interrupted
            # write may have left a part of the file, which never counted.
            if self.place.is_local:
                raise
            steps.remove(self.place, file.name)
            return None


def held(
    place: Place, cluster: str | None = None, birth: str = "", *, adopts: bool = True
) -> Directory | None:
    """Hold an export directory; return None if it does not exist yet.

    Args:
        place: its place.
        cluster: the expected cluster; None for any.
        birth: its birth id; empty for any. Only `claim` writes it down, after a comparison of
            events.
        adopts: whether to add existing files that are not listed yet; else they are removed.

    Raises:
        ConfigurationError: it belongs to another cluster, also one of the same name; another
            process holds it; or it is not an export.
        BadExport: it has a file that cannot be added.
    """
    manifest = read_manifest(place)
    if manifest is None:
        if any(not hidden(name) for name in listed(place)):
            raise ConfigurationError(
                f"{place.name} is not empty and has no {MANIFEST}, so it is no export: give a new "
                "directory, or that of an export"
            )
        return None
    if cluster not in (None, manifest.cluster):
        raise ConfigurationError(
            f"{place.name} holds events of cluster {manifest.cluster}, not of {cluster}: give "
            "another directory"
        )
    _check_birth(place, manifest, birth)
    lock = _locked(place)
    # Read it again, because another process may have replaced it before it released the lock.
    directory = Directory(place, read_manifest(place) or manifest, lock)
    try:
        _check_birth(place, directory.manifest, birth)
        directory.own()
        directory.adopt(adopts)
        directory.clean()
    except BaseException:
        directory.close()
        raise
    return directory


def begun(
    place: Place,
    cluster: str,
    jobs_before: Mapping[str, int],
    begin: int | None = None,
    birth: str = "",
) -> Directory:
    """Create an export directory.

    Args:
        place: its place.
        cluster: the cluster of its events.
        jobs_before: the number of jobs in each state before the first event to be exported.
        begin: the offset of that event, for a process that goes on before there is a file.
        birth: the birth id of the cluster; empty if the nodes have not told it.

    Raises:
        ConfigurationError: another process holds it, or has begun it since `held` looked.
    """
    if place.is_local:
        steps.make_folder(place)
    manifest = Manifest(cluster, dict(jobs_before), begin=begin, birth=birth)
    directory = Directory(place, manifest, _locked(place))
    try:
        there = read_manifest(place)
        if there is not None and (there.spans or there.owner is not None):
            raise ConfigurationError(f"another export has begun in {place.name}: start again")
        directory.change(manifest)
    except BaseException:
        directory.close()
        raise
    return directory


def _check_birth(place: Place, manifest: Manifest, birth: str) -> None:
    """Refuse another cluster of the same name: its events have the same offsets and are others.

    Raises:
        ConfigurationError: both birth ids are known and differ.
    """
    if birth and manifest.birth and birth != manifest.birth:
        raise ConfigurationError(
            f"{place.name} holds events of the cluster {manifest.cluster} with the birth id "
            f"{manifest.birth}, and the nodes are of the one with the birth id {birth}, which was "
            "restored, recovered or begun anew under the same name: give a new directory"
        )


def _locked(place: Place) -> TextIO | None:
    """Lock a local directory until the file is closed; other places use an owner instead."""
    if not place.is_local:
        return None
    lock = open(place.at(LOCK), "w")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConfigurationError(f"another export runs in {place.name}") from None
    return lock
