"""Workq clients and jobs of beanstalk, whose tube has an alias in Workq, by their burials."""

import pytest

from beanpole import commands as c
from beanpole.core.jobs import display_names
from beanpole.core.jobs.job import BURIED, DELAYED, FAILED, READY
from beanpole.core.jobs.policies import Policy
from beanpole.core.operations import administering as a
from beanpole.protocol.workq import replies
from beanpole.protocol.workq.values import format_id
from tests.unit.core.cluster import copy_of
from tests.unit.node.workq_scene import MS, OK, OTHERS, TIMEOUT, Client, Scene

# A session of beanstalk at n1, which makes the job with the number 1.
BEANSTALK = 2
SHOWN = format_id(display_names.derived(1))
ASK = b"result %b 60000\r\n" % SHOWN
BURY = (c.CHANGE_JOB, BEANSTALK, 1, a.BURY, 1 << READY | 1 << DELAYED, b"", b"", 0)
KICK = (c.CHANGE_JOB, BEANSTALK, 1, a.KICK, 1 << BURIED, b"", b"", 0)


def failed(result: bytes = b"") -> bytes:
    """Return the reply of `result` for the failed job of beanstalk."""
    return replies.finished(display_names.derived(1), False, result)


@pytest.fixture
def scene() -> Scene:
    """Make the alias workq:q of the tube `tube`, and a job in it."""
    scene = Scene()
    scene.others(
        (c.OPEN, BEANSTALK),
        (c.SET_ALIAS, OTHERS, b"\x01q", b"tube"),
        (c.WATCH, BEANSTALK, b"tube"),
        (c.PUT, BEANSTALK, b"tube", 0, 0, 60, b"body"),
    )
    return scene


@pytest.fixture
def client(scene: Scene) -> Client:
    return Client(scene)


def test_a_failure_by_a_worker_of_workq_is_the_result(scene: Scene, client: Client) -> None:
    worker = Client(scene)
    assert client.ask(ASK) == b""
    assert worker.ask(b"lease q 0\r\n") == replies.leased(
        display_names.derived(1), b"q", 60_000, b"body"
    )
    assert worker.ask(b"fail %b 3\r\nbad\r\n" % SHOWN) == OK
    assert client.port.take() == failed(b"bad")
    assert scene.listened == []


TAKE = (c.TAKE, BEANSTALK)
MOVE = (c.CHANGE_JOB, BEANSTALK, 1, a.MOVE, 1 << READY, b"", b"dead", BURIED)
ONCE = (c.SET_POLICY, BEANSTALK, b"tube", *Policy(attempts_max=1))


@pytest.mark.parametrize(
    "commands",
    [
        (BURY,),
        (MOVE,),
        (TAKE, (c.BURY, BEANSTALK, 1, 0)),
        (ONCE, TAKE, (c.RELEASE, BEANSTALK, 1, 0, 0)),
    ],
    ids=["administrator", "move", "worker", "policy"],
)
def test_any_burial_is_a_failure(
    scene: Scene, client: Client, commands: tuple[c.Command, ...]
) -> None:
    assert client.ask(ASK) == b""
    scene.others(*commands)
    assert client.port.take() == failed()


def test_a_buried_job_is_failed_until_it_is_kicked(scene: Scene, client: Client) -> None:
    scene.others(BURY)
    assert client.ask(ASK) == failed(), "its state is 2, and a wait for a failed job is over"
    scene.others(KICK)
    assert client.ask(b"result %b 0\r\n" % SHOWN) == TIMEOUT
    assert client.ask(ASK + b"complete %b 0\r\n\r\n" % SHOWN) == b""
    assert Client(scene).ask(b"complete %b 2\r\nok\r\n" % SHOWN) == OK
    done = replies.finished(display_names.derived(1), True, b"ok")
    assert client.port.take() == done + replies.NOT_FOUND


def test_a_burial_in_the_entry_of_the_barrier_is_the_answer(scene: Scene, client: Client) -> None:
    assert client.ask(ASK.replace(b" 60000", b" 1000")) == b""
    scene.pass_us(1100 * MS)
    scene.commit_own((c.FINISH_NAMED, OTHERS, display_names.derived(1), FAILED, b"bad"))
    assert client.port.take() == failed(b"bad")


def test_a_burial_in_a_snapshot_is_a_failure(scene: Scene, client: Client) -> None:
    assert client.ask(ASK) == b""
    machine = copy_of(scene.node.context.machine)
    scene.become("follower", "n1", 2)
    section = (1, 1, scene.number + 1, (BURY,))
    machine.apply(machine.index + 9, 0, machine.queue.now_us, 0, [section])
    scene.load(machine)
    assert client.port.take() == failed()
