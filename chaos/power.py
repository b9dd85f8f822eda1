"""Forgetful disks: a file system for each node, which loses unsynced data at a power cut.

The file system is the program of `forgetful/`, compiled with the machine's C compiler and mounted
through /dev/fuse; this module starts it, talks to it, and reports what a machine lacks for it.
`plan` schedules the power cuts and `faults` applies them.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

SOURCES: Final = Path(__file__).with_name("forgetful")
END_TIMEOUT_S: Final = 20.0
MNT_DETACH: Final = 2


class Moment(NamedTuple):
    """The time of a power cut.

    `kind`: "now", "bytes" (soon after a write or sync) or "names" (soon after a rename, or a sync
    of a directory); `nth`: after this many of them.
    """

    kind: str
    nth: int = 0

    def __str__(self) -> str:
        return f"after {self.nth} {self.kind}" if self.nth else self.kind


NOW: Final = Moment("now")


class Unavailable(Exception):
    """This machine cannot mount such a file system; the message is one line with the reason."""


def build(directory: Path, *flags: str) -> Path:
    """Compile the file system into a directory and return the program.

    Args:
        directory: the folder of the program.
        flags: additional compiler flags.

    Raises:
        Unavailable: there is no C compiler, or it lacks the kernel's headers.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Unavailable(
            "a forgetting file system needs a C compiler (Debian: apt-get install gcc)"
        )
    program = directory / "forgetful"
    command = [compiler, "-O2", "-fno-strict-aliasing", *flags]
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    done = subprocess.run(
        [*command, "-o", str(program), *sources], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"a forgetting file system was not compiled: {done.stderr.strip()}")
    return program


class ForgetfulDisk:
    """A mounted file system, until this object is closed or its process ends.

    Args:
        program: the result of `build`.
        place: an empty directory to mount it on.
        seed: determines what survives a power cut.
        lies: writes with RWF_DSYNC are not synced, as if the node had not asked for that, and
            none of them survives by chance.
    """

    def __init__(self, program: Path, place: Path, seed: int, lies: bool = False) -> None:
        self.place = place
        # The fate of unsynced data, summed over all power cuts.
        self.fates: Counter[str] = Counter()
        place.mkdir(parents=True, exist_ok=True)
        command = [str(program), str(place), str(seed), str(place.parent)]
        self._process = subprocess.Popen(
            [*command, *(["lying"] if lies else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C must reach only the soak, which then unmounts.
            start_new_session=True,
        )
        if self._read() != "ready":
            assert self._process.stderr
            said = self._process.stderr.read().strip()
            self.close()
            raise Unavailable(
                f"a forgetting file system cannot be mounted here: {said} "
                "(it needs root, /dev/fuse and the right to mount)"
            )

    def cut(self, moment: Moment = NOW) -> None:
        """Cut the power at the given moment: unsynced data is lost.

        Writes get no answer from then on, until `refuse`.
        """
        self.fates.update(_numbers(self._ask(f"cut {moment.kind} {moment.nth}")))

    def refuse(self) -> None:
        """Answer all writes with EIO, so that the killed processes can end."""
        self._ask("off")

    def restore(self) -> None:
        """Restore the power. No process from before the cut may be running."""
        self._ask("on")

    def format(self) -> None:
        """Replace the disk by an empty one."""
        self._ask("format")

    def counts(self) -> Counter[str]:
        """Return the numbers of writes and syncs, by kind."""
        return Counter(_numbers(self._ask("count")))

    def close(self) -> None:
        """Unmount the disk; its contents are lost."""
        if self._process.poll() is None:
            assert self._process.stdin
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream
            stream.close()
        if os.path.ismount(self.place):
            _unmount(self.place)

    def keep(self) -> None:
        """Close the disk, and leave its files in the directory where it was mounted."""
        with tempfile.TemporaryDirectory(dir=self.place.parent) as folder:
            kept = Path(folder) / "kept"
            shutil.copytree(self.place, kept)
            self.close()
            shutil.copytree(kept, self.place, dirs_exist_ok=True)

    def _ask(self, command: str) -> str:
        assert self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        reply = self._read()
        assert reply, f"the file system at {self.place} has ended"
        return reply

    def _read(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()


@contextlib.contextmanager
def mounted(program: Path, place: Path) -> Iterator[ForgetfulDisk]:
    """Mount a disk, and unmount it at the end."""
    disk = ForgetfulDisk(program, place, 0)
    try:
        yield disk
    finally:
        disk.close()


def check(directory: Path) -> None:
    """Check that this machine can mount such a disk.

    Raises:
        Unavailable: it cannot.
    """
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        ForgetfulDisk(build(Path(folder)), Path(folder) / "disk", 0).close()


def figures(cuts: int, cuts_of_all: int, disks: Iterable[ForgetfulDisk]) -> list[str]:
    """Return the effects of power cuts, and how the nodes wrote, a line each."""
    disks = list(disks)
    fates = sum((disk.fates for disk in disks), Counter[str]())
    asked = sum((disk.counts() for disk in disks), Counter[str]())
    return [
        f"power cuts: single nodes {cuts}, all {cuts_of_all}; of what was not synced "
        f"{fates['sectors_lost']} sectors were lost and {fates['sectors_kept']} kept, "
        f"{fates['names_lost']} changes of names lost and {fates['names_kept']} kept, "
        f"{fates['syncs_broken']} syncs were under way",
        f"the nodes wrote and synced in one call {asked['direct']} times with O_DIRECT and "
        f"{asked['synced']} times without, wrote {asked['lazy']} times without a sync, synced "
        f"{asked['syncs']} files and {asked['name_syncs']} directories",
    ]


def _numbers(line: str) -> dict[str, int]:
    """Parse "one 1 two 2"."""
    words = line.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def _unmount(place: Path) -> None:
    """Unmount a file system whose process ended abnormally."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.umount2(os.fsencode(place), MNT_DETACH):
        raise OSError(ctypes.get_errno(), f"cannot unmount {place}")
