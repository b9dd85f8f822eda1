"""Disks that forget: a file system for each node, which loses what was not synced at a power cut.

The file system is the program of `forgetful/`, made with the machine's C compiler and mounted
through /dev/fuse; this starts it, talks to it, and says what a machine lacks for it. When the power
of a node fails is decided in `plan` and done in `faults`.
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
    """When the power fails.

    `kind`: "now", "bytes" (soon after a write or sync) or "names" (soon after a change of names or
    a sync of a directory); `nth`: after how many of them.
    """

    kind: str
    nth: int = 0

    def __str__(self) -> str:
        return f"after {self.nth} {self.kind}" if self.nth else self.kind


NOW: Final = Moment("now")


class Unavailable(Exception):
    """This machine cannot mount such a file system; the message is one line that says why."""


def build(directory: Path, *flags: str) -> Path:
    """Compile the file system into a directory and return the program.

    Args:
        directory: where to put it.
        flags: more flags of the compiler.

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
    """One mounted file system, as long as this object is not closed and its process lives.

    Args:
        program: what `build` returned.
        place: an empty directory to mount it on.
        seed: decides what survives a power cut.
        lies: what is written with RWF_DSYNC is not synced, as if the node had not asked for that,
            and chance keeps nothing of it.
    """

    def __init__(self, program: Path, place: Path, seed: int, lies: bool = False) -> None:
        self.place = place
        # What became of what was not synced, at all power cuts together.
        self.fates: Counter[str] = Counter()
        place.mkdir(parents=True, exist_ok=True)
        command = [str(program), str(place), str(seed), str(place.parent)]
        self._process = subprocess.Popen(
            [*command, *(["lying"] if lies else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the soak, which then unmounts.
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
        """Let the power fail at some moment: what was not synced is gone.

        Writes are not answered any more, until `refuse`.
        """
        self.fates.update(_numbers(self._ask(f"cut {moment.kind} {moment.nth}")))

    def refuse(self) -> None:
        """Answer all writes with EIO: their processes have been killed, and can end now."""
        self._ask("off")

    def restore(self) -> None:
        """Give the power back. No process of before may run any more."""
        self._ask("on")

    def format(self) -> None:
        """Put an empty disk in its place."""
        self._ask("format")

    def counts(self) -> Counter[str]:
        """Return how often what was asked: writes by kind and syncs by kind."""
        return Counter(_numbers(self._ask("count")))

    def close(self) -> None:
        """Unmount it; what was stored is gone."""
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
        """Close it and leave its files in the directory where it was mounted."""
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
def mounted(program: Path, place: Path, seed: int = 0) -> Iterator[ForgetfulDisk]:
    """Mount one, and unmount it at the end."""
    disk = ForgetfulDisk(program, place, seed)
    try:
        yield disk
    finally:
        disk.close()


def check(directory: Path) -> None:
    """Mount one for a moment.

    Raises:
        Unavailable: it cannot be done on this machine.
    """
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        ForgetfulDisk(build(Path(folder)), Path(folder) / "disk", 0).close()


def figures(cuts: int, cuts_of_all: int, disks: Iterable[ForgetfulDisk]) -> list[str]:
    """Return what power cuts did, and how the nodes wrote, a line each."""
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
    """Read "one 1 two 2"."""
    words = line.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def _unmount(place: Path) -> None:
    """Unmount what a process left behind that did not end as it should."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.umount2(os.fsencode(place), MNT_DETACH):
        raise OSError(ctypes.get_errno(), f"cannot unmount {place}")
