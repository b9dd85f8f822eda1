"""The place of an exercise, and a run of many exercises while the leader is killed.

An exercise does one thing at real nodes and asserts its result. The exercises themselves are in
`exercises_calls`, `exercises_commands` and `exercises_methods`.
"""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import grpc

from beanpole.client.blocking import BatchError, Client, MayBeDoneError
from beanpole.client.rpc import Nodes
from beanpole.pb import admin_pb2, admin_pb2_grpc
from tests.integration.support.nodes import Node
from tests.integration.support.waiting import wait_until

# Longer than an election takes while all exercises compete for the cores.
PATIENCE_S: Final = 30.0
DONE_S: Final = 100.0


class Open(Exception):
    """The outcome is unknown, and the exercise's subject reports that: it may be done or not."""


class Scene:
    """Nodes, asked in this order, and a queue that no other exercise uses."""

    def __init__(self, nodes: Sequence[Node], queue: str, place: Path) -> None:
        self.nodes = nodes
        self.queue = queue
        self.place = place / queue

    @property
    def beanstalk(self) -> list[str]:
        return [node.beanstalk for node in self.nodes]

    @property
    def grpc(self) -> list[str]:
        return [node.grpc for node in self.nodes]

    def helper(self) -> Client[str]:
        """Return a client for the needs of an exercise, at a node that is not killed."""
        return Client(
            self.beanstalk[-1],
            use=self.queue,
            watch=self.queue,
            patience_s=PATIENCE_S,
            reply_timeout_s=PATIENCE_S,
        )

    def bury(self, helper: Client[str], body: str = "x") -> int:
        """Put a job and bury it."""
        job = helper.put(body)
        helper.bury(helper.reserve_job(job))
        return job

    def disconnect(self, job: int) -> None:
        """Close the connection that holds a job, unless its node is killed."""
        wait_until(lambda: self._disconnect(job), DONE_S, f"a connection holds {job}")

    def _disconnect(self, job: int) -> bool:
        with Nodes(self.grpc[-1:]) as nodes:
            stub = admin_pb2_grpc.AdminStub(nodes.channel(self.grpc[-1]))
            killed = False
            for node in self.nodes:
                try:
                    found = connections(stub, node.id)
                    number = next((one.id for one in found if job in one.jobs_held), 0)
                    if number:
                        request = admin_pb2.CloseConnectionRequest(node=node.id, id=number)
                        stub.CloseConnection(request)
                        return True
                except grpc.RpcError:
                    killed = True
        return killed


def connections(stub: admin_pb2_grpc.AdminStub, node: str) -> list[Any]:
    """Return all connections of a node."""
    found: list[Any] = []
    while True:
        after = found[-1].id if found else 0
        request = admin_pb2.ListConnectionsRequest(node=node, after_id=after)
        reply = stub.ListConnections(request, timeout=PATIENCE_S)
        found += reply.connections
        if reply.complete:
            return found


Exercise = Callable[[Scene], None]


class _Runner(threading.Thread):
    """Repeats one exercise until the leader is dead, and once more."""

    def __init__(self, exercise: Exercise, scenes: Callable[[], Scene], killed: threading.Event):
        super().__init__(daemon=True)
        self._exercise = exercise
        self._scenes = scenes
        self._killed = killed
        self.begun = threading.Event()
        self.opened = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._exercise(self._scenes())
            self.begun.set()
            while not self._killed.is_set():
                try:
                    self._exercise(self._scenes())
                except (Open, MayBeDoneError, BatchError) as error:
                    if isinstance(error, BatchError):
                        assert any(isinstance(one, MayBeDoneError) for one in error.results)
                    self.opened += 1
            self._exercise(self._scenes())
        except BaseException as error:
            self.failure = error
        finally:
            self.begun.set()


def run_while_killed(
    exercises: Mapping[str, Exercise],
    nodes: Sequence[Node],
    place: Path,
    kill: Callable[[], None],
) -> dict[str, int]:
    """Run all exercises at once, each at the first node, which is killed when all were done once.

    Args:
        exercises: by their names.
        nodes: the nodes of a cluster.
        place: a folder for files; its name is the prefix of the names of queues.
        kill: kills the first node.

    Returns:
        For each exercise the number of its unknown outcomes.
    """
    numbers = itertools.count()
    killed = threading.Event()

    def scenes() -> Scene:
        return Scene(nodes, f"{place.name}-{next(numbers)}", place)

    runners = {name: _Runner(exercise, scenes, killed) for name, exercise in exercises.items()}
    for runner in runners.values():
        runner.start()
    for runner in runners.values():
        assert runner.begun.wait(DONE_S)
    kill()
    killed.set()
    for name, runner in runners.items():
        runner.join(DONE_S)
        assert not runner.is_alive(), f"{name} does not end"
    failures = {name: one.failure for name, one in runners.items() if one.failure}
    for failure in failures.values():
        raise AssertionError(repr(failures)) from failure
    return {name: one.opened for name, one in runners.items()}
