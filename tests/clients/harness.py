"""Programs that use a Gearman client library, unmodified: how tests start them and what they say.

The programs themselves are in `programs`; README.md describes their command line.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.integration.support.gearmand import Packets
from tests.integration.support.processes import Process
from tests.integration.support.raw import Address
from tests.integration.support.waiting import wait_until

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
MODULES: Final = ROOT / "build" / "clients" / "node_modules"
CLIENT_TIMEOUT_S: Final = 60.0
START_TIMEOUT_S: Final = 30.0
# Functions that every worker program serves.
FUNCTIONS: Final = frozenset({"reverse", "parts", "wait", "note"})


class Place(NamedTuple):
    """Where clients connect: at gearmand and at a single node to one address.

    Attributes:
        submitter: the address of those that submit, or several with commas between them.
        worker: the address of those that work, or several; tests look at the first.
    """

    submitter: Address
    worker: Address


class Reply(NamedTuple):
    """What a client program saw of its request, in order."""

    events: tuple[tuple[object, ...], ...]

    def all(self, kind: str) -> list[object]:
        """Return what came with each event of a kind."""
        found = [event[1:] for event in self.events if event[0] == kind]
        return [values[0] if len(values) == 1 else values for values in found]

    def one(self, kind: str) -> object:
        """Return what came with the only event of a kind."""
        (found,) = self.all(kind)
        return found

    @property
    def handle(self) -> str:
        """The handle of the job."""
        return str(self.one("created"))

    @property
    def end(self) -> str:
        """How the job ended: complete, failed or exception."""
        (kind,) = {str(event[0]) for event in self.events} & {"complete", "failed", "exception"}
        return kind


class Program:
    """A program that uses one library, as submitter and as worker.

    Args:
        name: of the library.
        command: what starts the program.
        submits: what its submitter can do: background, priority, unique, status, exceptions, data,
            warning, progress.
        works: what its worker can do: fail, throw, data, warning, progress, limited.
        environment: what it needs beside ours.
        parts: what its function "parts" sends as data, and as its result, with the payload as {}.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        submits: str,
        works: str,
        environment: Mapping[str, str] | None = None,
        parts: tuple[str, ...] = ("first", "second", "parts:{}"),
    ) -> None:
        self.name = name
        self.parts = parts
        self.command = list(command)
        self.submits = frozenset(submits.split())
        self.works = frozenset(works.split())
        self.environment = dict(environment or {})

    def __repr__(self) -> str:
        return self.name

    @property
    def functions(self) -> frozenset[str]:
        """The functions that its worker serves."""
        return FUNCTIONS | (self.works & {"fail", "throw", "limited"})

    def ask(self, place: Place, request: Mapping[str, str]) -> Reply:
        """Do one request and return what came of it."""
        text = json.dumps(request)
        lines = self.run([*self.command, "client", place.submitter, text]).splitlines()
        return Reply(tuple(tuple(json.loads(line)) for line in lines))

    def run(self, command: Sequence[str]) -> str:
        """Run a command to its end and return its output."""
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_S,
            check=False,
            cwd=ROOT,
            env={**os.environ, **self.environment},
        )
        assert done.returncode == 0, f"{command}: {done.stderr}\n{done.stdout}"
        return done.stdout

    def submit(
        self,
        place: Place,
        function: str,
        payload: str,
        *,
        background: bool = False,
        priority: str = "normal",
        unique: str = "",
    ) -> Reply:
        """Submit one job; in foreground, wait for its end."""
        request = {"function": function, "payload": payload, "priority": priority}
        kind = "background" if background else "foreground"
        return self.ask(place, {"do": kind, "unique": unique, **request})

    def status(self, place: Place, handle: str) -> Reply:
        """Ask for the status of a job."""
        return self.ask(place, {"do": "status", "handle": handle})

    def worker_commands(self, place: Place, name: str) -> list[list[str]]:
        """Return what has to run for a worker."""
        return [[*self.command, "worker", place.worker, name]]

    @contextmanager
    def working(self, place: Place, name: str, directory: Path) -> Iterator[None]:
        """Run a worker whose functions are called NAME-FUNCTION."""
        processes = [
            Process(command, directory / f"{name}{number}.log", self.environment, ROOT)
            for number, command in enumerate(self.worker_commands(place, name))
        ]
        try:
            wait_until_served(place, {f"{name}-{function}" for function in self.functions})
            yield
        except BaseException:
            for process in processes:
                sys.stdout.write(process.story() + "\n")
            raise
        finally:
            for process in processes:
                process.kill()


def served(place: Place) -> dict[str, int]:
    """Return how many workers each function has at the workers' node."""
    client = Packets(place.worker.split(",")[0])
    try:
        rows = [line.split("\t") for line in client.admin("status")]
    finally:
        client.close()
    return {row[0]: int(row[3]) for row in rows}


def wait_until_served(place: Place, functions: set[str]) -> None:
    """Wait until the server knows a worker of each function."""

    def all_served() -> bool:
        found = served(place)
        return all(found.get(function, 0) for function in functions)

    wait_until(all_served, START_TIMEOUT_S, f"workers of {sorted(functions)}")


# What libraries do not do is said in docs/migrating.md.
ALL_SUBMITS: Final = "background priority unique status exceptions data warning progress"
PYGEARMAN: Final = (sys.executable, "-m", "tests.clients.programs.pygearman")
PATHS: Final = {"PYTHONPATH": str(ROOT)}
PYTHON: Final = (
    # Neither asks for exceptions: what a worker throws, they see fail.
    Program(
        "pygearman",
        PYGEARMAN,
        ALL_SUBMITS.replace("exceptions ", ""),
        "fail throw data warning progress",
        PATHS,
    ),
    Program(
        "python3-gearman",
        PYGEARMAN,
        ALL_SUBMITS.replace("exceptions ", ""),
        "fail throw data warning progress",
        {"PYGEARMAN_MODULE": "python3_gearman", **PATHS},
    ),
    # Its worker cannot fail but by an exception.
    Program(
        "aiogear",
        (sys.executable, "-m", "tests.clients.programs.asynchronous"),
        ALL_SUBMITS,
        "throw data warning progress",
        PATHS,
    ),
)
