"""reqless-py-worker, unmodified, at each of three nodes while the leader is killed.

No acknowledged job is lost, a job has only one worker until its lock has ended, and a worker that
loses a lock is notified.
"""

import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integration.support.nodes import Cluster
from tests.integration.support.processes import Process, answers
from tests.integration.support.qless_scripts import stand_in
from tests.integration.support.raw import Address
from tests.integration.support.resp import Resp, evaluate
from tests.integration.support.waiting import wait_until
from tests.qless.suites import OWN, PORT_TIMEOUT_S, PYTHON, REQLESS, environment

pytestmark = pytest.mark.timeout(280)

JOBS = 1000
BEFORE_THE_KILL = 300
HEARTBEAT_S = 4
GRACE_S = 1
STEP_TIMEOUT_S = 60.0
DONE_TIMEOUT_S = 180.0


class Note(NamedTuple):
    """A note of a worker's program."""

    what: str
    jid: str
    worker: str
    at: float
    expires: float


class Calls:
    """A client that calls reqless' script at one node."""

    def __init__(self, address: Address) -> None:
        self._client = Resp(address)
        (text,) = stand_in("throttles").values()
        self._sha = self._client.text("SCRIPT", "LOAD", text)

    def __call__(self, *words: str | float) -> Any:
        return evaluate(self._client, self._sha, [], words)

    def state(self, jid: str) -> str:
        found = self("get", 0, jid)
        return str(json.loads(found)["state"]) if found else "gone"

    def close(self) -> None:
        self._client.close()


class Listener:
    """A subscriber to all messages at one node, which records them in order."""

    def __init__(self, address: Address) -> None:
        self.lost: list[tuple[str, str]] = []
        self._client = Resp(address, timeout_s=DONE_TIMEOUT_S)
        self._client.ask("PSUBSCRIBE", "ql:w:*")
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        message: Any = self._client.read()
        while message[0] == b"pmessage":
            data = json.loads(message[3])
            if data["event"] == "lock_lost":
                self.lost.append((data["jid"], message[2].decode().removeprefix("ql:w:")))
            message = self._client.read()

    def close(self) -> None:
        """Receive the messages published until now, and close the connection."""
        self._client.send("PUNSUBSCRIBE")
        self._thread.join(STEP_TIMEOUT_S)
        assert not self._thread.is_alive()
        self._client.close()


class Workers:
    """Three workers, one at each node, and the notes of their programs."""

    def __init__(self, directory: Path, addresses: list[Address]) -> None:
        self.notes_path = directory / "notes"
        self.notes_path.touch()
        self._directory = directory
        self._addresses = addresses
        self._processes: list[Process] = []

    def start(self, number: int) -> None:
        """Start the worker at a node; its name is `workerN`."""
        folder = self._directory / f"worker{number}"
        folder.mkdir()
        program = str(REQLESS / "bin" / "reqless-py-worker")
        options = ["--host", f"redis://{self._addresses[number]}", "-n", f"worker{number}"]
        options += ["-w", "2", "-i", "1", "-q", "work", "-d", str(folder)]
        notes = {**environment(REQLESS), "NOTES": str(self.notes_path)}
        log = self._directory / f"worker{number}.log"
        self._processes.append(Process([str(PYTHON), program, *options], log, notes))

    def notes(self) -> list[Note]:
        """Return all notes so far, in the order in which they were written."""
        lines = self.notes_path.read_text().splitlines()
        return [Note(**json.loads(line)) for line in lines]

    def story(self) -> str:
        return "\n".join(process.story() for process in self._processes)

    def close(self) -> None:
        for process in self._processes:
            process.terminate()


@pytest.fixture
def addresses(cluster: Cluster) -> list[Address]:
    """The address at which each node speaks qless."""
    found = [node.speaks("qless") for node in cluster.nodes]
    wait_until(lambda: all(map(answers, found)), PORT_TIMEOUT_S, "the ports of qless")
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster").running() as found:
        yield found


@pytest.fixture
def workers(tmp_path: Path, addresses: list[Address]) -> Iterator[Workers]:
    found = Workers(tmp_path, addresses)
    try:
        yield found
    finally:
        found.close()


def produce(directory: Path, addresses: list[Address]) -> Process:
    urls = [f"redis://{address}" for address in addresses]
    command = [str(PYTHON), str(OWN / "producing.py"), "work", str(JOBS), *urls]
    return Process(command, directory / "producer.log", environment(REQLESS))


def acknowledged(directory: Path) -> list[str]:
    lines = (directory / "producer.log").read_text().splitlines()
    return [line for line in lines if line.startswith("job-") and ":" not in line]


def test_a_thousand_jobs_while_the_leader_is_killed(
    cluster: Cluster, addresses: list[Address], workers: Workers, tmp_path: Path
) -> None:
    leader = cluster.leader()
    first, second = (number for number in range(3) if number != leader)
    listener, calls = Listener(addresses[first]), Calls(addresses[second])
    calls("config.set", 0, "heartbeat", HEARTBEAT_S)
    calls("config.set", 0, "grace-period", GRACE_S)
    # The leader's worker holds this job when the leader is killed.
    gate = tmp_path / "gate"
    calls("put", 0, "test", "work", "held", "noting.Noting", json.dumps({"gate": str(gate)}), 0)
    workers.start(leader)
    wait_until(lambda: [n for n in workers.notes() if n.jid == "held"], STEP_TIMEOUT_S, "held")
    workers.start(first)
    workers.start(second)
    order = [addresses[number] for number in (leader, first, second)]
    producer = produce(tmp_path, order)
    wait_until(lambda: ended(workers) >= BEFORE_THE_KILL, STEP_TIMEOUT_S, workers.story())
    cluster.kill(leader)
    gate.touch()
    assert producer.wait(STEP_TIMEOUT_S) == 0, producer.story()
    taken = [*acknowledged(tmp_path), "held"]
    assert len(taken) == JOBS + 1
    wait_until(lambda: calls("length", 0, "work") == 0, DONE_TIMEOUT_S, "all jobs are done")
    states = {jid: calls.state(jid) for jid in taken}
    listener.close()
    calls.close()
    assert set(states.values()) == {"complete"}, {
        jid: state for jid, state in states.items() if state != "complete"
    }
    see_locks(workers.notes(), listener.lost, f"worker{leader}")


def ended(workers: Workers) -> int:
    return sum(note.what == "end" for note in workers.notes())


def see_locks(notes: list[Note], lost: list[tuple[str, str]], of_leader: str) -> None:
    """Check that each new lock began after the old one had ended, and the old holder was told."""
    begun: dict[str, list[Note]] = {}
    for note in notes:
        if note.what == "begin":
            begun.setdefault(note.jid, []).append(note)
    again = {jid: runs for jid, runs in begun.items() if len(runs) > 1}
    for jid, runs in again.items():
        for before, after in itertools.pairwise(runs):
            assert after.at > before.expires + GRACE_S, (jid, runs)
            assert (jid, before.worker) in lost, (jid, before.worker, lost)
    assert ("held", of_leader) in lost
    assert len(begun["held"]) == 2
    finished = [note.jid for note in notes if note.what == "end"]
    assert len(finished) == len(set(finished)), "a completion is acknowledged once"
