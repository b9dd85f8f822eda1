"""Start programs that use an unmodified Gearman client library, and read their output.

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
START_TIMEOUT_S: Final = 60.0
# Functions that every worker program serves.
FUNCTIONS: Final = frozenset({"reverse", "parts", "wait", "note"})


class Place(NamedTuple):
    """The addresses for clients; gearmand and a single node have only one.

    Attributes:
        submitter: the address for submitters, or several separated by commas.
        worker: the address for workers, or several; tests inspect the first.
    """

    submitter: Address
    worker: Address


class Reply(NamedTuple):
    """The events of a request that a client program saw, in order."""

    events: tuple[tuple[object, ...], ...]

    def all(self, kind: str) -> list[object]:
        """Return the values of each event of a kind."""
        found = [event[1:] for event in self.events if event[0] == kind]
        return [values[0] if len(values) == 1 else values for values in found]

    def one(self, kind: str) -> object:
        """Return the values of the only event of a kind."""
        (found,) = self.all(kind)
        return found

    @property
    def handle(self) -> str:
        """The handle of the job."""
        return str(self.one("created"))

    @property
    def end(self) -> str:
        """The end of the job: complete, failed or exception."""
        (kind,) = {str(event[0]) for event in self.events} & {"complete", "failed", "exception"}
        return kind


class Program:
    """A program that uses one library as a submitter and as a worker.

    Args:
        name: the name of the library.
        command: the command that starts the program.
        submits: the abilities of its submitter: background, priority, unique, status, exceptions,
            data, warning, progress.
        works: the abilities of its worker: fail, throw, data, warning, progress, limited.
        environment: variables that it needs in addition to ours.
        parts: the data of its function "parts" and last its result, with the payload as {}.
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
        """Make one request and return its events."""
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
        """Return the commands that make up a worker."""
        return [[*self.command, "worker", place.worker, name]]

    @contextmanager
    def working(self, place: Place, name: str, directory: Path) -> Iterator[None]:
        """Run a worker with functions named NAME-FUNCTION."""
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
    """Return the number of workers of each function at the workers' node."""
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


# docs/migrating.md lists the missing abilities of libraries.
ALL_SUBMITS: Final = "background priority unique status exceptions data warning progress"
PYGEARMAN: Final = (sys.executable, "-m", "tests.clients.programs.pygearman")
PATHS: Final = {"PYTHONPATH": str(ROOT)}
PYTHON: Final = (
    # Neither asks for exceptions, so they see a worker's exception as a failure.
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
    # Its worker can only fail by an exception.
    Program(
        "aiogear",
        (sys.executable, "-m", "tests.clients.programs.asynchronous"),
        ALL_SUBMITS,
        "throw data warning progress",
        PATHS,
    ),
)
