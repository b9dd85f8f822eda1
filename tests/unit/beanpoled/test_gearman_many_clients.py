"""Reports of Gearman's workers on jobs with many clients: their cost in one entry."""

import pytest

from beanpole import commands as c
from beanpole.core.jobs.spaces import RANK_NORMAL, SPACES
from beanpole.events import GEARMAN
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import Reply, request
from beanpoled.origin.batches import BATCH_COST_MAX, COST_IN_FLIGHT_MAX
from beanpoled.origin.heavy import LIGHT_MAX
from tests.unit.beanpoled.gearman_scene import (
    Client,
    Scene,
    created,
    grab,
    handle,
    submit,
    worker,
)

FUNCTION = SPACES[GEARMAN].prefix + b"f"
NO_MAJORITY = b"No majority of the nodes answers; it is not done"


@pytest.fixture
def scene() -> Scene:
    return Scene()


def attached(scene: Scene, clients: int, jobs: int = 1) -> None:
    """Let clients of another node wait for the same jobs, the first of the cluster."""
    sessions = range(1, clients + 1)
    for session in sessions:
        protocol = (c.SET_PROTOCOL, session, GEARMAN)
        submits = [
            (c.SUBMIT, session, FUNCTION, RANK_NORMAL, 0, b"f\0u%d" % job, 0, 1, b"", b"x")
            for job in range(jobs)
        ]
        scene.others((c.OPEN, session), protocol, *submits)


def holder(scene: Scene, jobs: int = 1) -> Client:
    """Connect a worker that holds these jobs."""
    made = worker(scene, b"f")
    assert [grab(made) for _ in range(jobs)] == list(range(1, jobs + 1))
    return made


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (p.WORK_DATA, (b"x",)),
        (p.WORK_WARNING, (b"x",)),
        (p.WORK_STATUS, (b"1", b"2")),
        (p.WORK_COMPLETE, (b"x",)),
        (p.WORK_EXCEPTION, (b"x",)),
        (p.WORK_FAIL, ()),
    ],
)
def test_an_entry_has_one_report_that_many_clients_hear_of(
    scene: Scene, kind: int, arguments: tuple[bytes, ...]
) -> None:
    """Other clients of the node pass those that wait in the line."""
    attached(scene, LIGHT_MAX + 2, jobs=3)
    one, other = holder(scene, 3), scene.connect()
    packets = [request(kind, handle(job), *arguments) for job in (1, 2, 3)]
    one.connection.received(b"".join(packets) + request(p.ECHO_REQ, b"behind"))
    scene.run()
    other.send(p.SUBMIT_JOB_BG, b"f", b"", b"x")
    sent = [c.unpack_commands(batch.payload) for batch in scene.node.origin._numbered.values()]
    reports = [
        command for batch in sent for command in batch if command[1] == one.connection.number
    ]
    assert [command[2] for command in reports] == [1]
    assert any(command[0] == c.SUBMIT for batch in sent for command in batch)
    logged = scene.commit_own()
    assert [command[2] for command in logged if command[0] == reports[0][0]] == [1, 2, 3]
    assert one.replies() == [(p.ECHO_RES, (b"behind",))]
    assert other.replies() == created(4)
    if kind in (p.WORK_COMPLETE, p.WORK_EXCEPTION, p.WORK_FAIL):
        assert list(scene.machine.queue.jobs.values()) == [scene.machine.queue.jobs.get(4)]


def test_a_node_has_a_budget_of_reports_on_their_way(scene: Scene) -> None:
    jobs = 40
    attached(scene, LIGHT_MAX, jobs)
    one = holder(scene, jobs)
    one.connection.received(
        b"".join(
            request(p.WORK_STATUS, handle(job), b"1", b"2")
            + request(p.WORK_COMPLETE, handle(job), b"x")
            for job in range(1, jobs + 1)
        )
    )
    scene.run()
    batches = list(scene.node.origin._numbered.values())
    most = COST_IN_FLIGHT_MAX + BATCH_COST_MAX + LIGHT_MAX
    assert COST_IN_FLIGHT_MAX <= sum(batch.cost for batch in batches) <= most
    assert max(batch.cost for batch in batches) <= BATCH_COST_MAX + LIGHT_MAX
    assert len([command for command in scene.commit_own() if command[0] == c.FINISH]) == jobs
    assert one.replies() == [] and not scene.machine.queue.jobs


def test_a_report_that_one_client_hears_of_costs_nothing_more(scene: Scene) -> None:
    attached(scene, 1)
    one = holder(scene)
    one.send(p.WORK_COMPLETE, handle(1), b"x")
    assert [batch.cost for batch in scene.node.origin._numbered.values()] == [0]


def test_a_report_in_the_line_is_answered_behind_those_before_it(scene: Scene) -> None:
    attached(scene, LIGHT_MAX + 2)
    one, client = holder(scene), scene.connect()
    lost = request(p.WORK_COMPLETE, handle(99), b"")
    ends = request(p.WORK_COMPLETE, handle(1), b"")
    one.connection.received(lost + ends + ends + request(p.ECHO_REQ, b"x"))
    scene.commit_own()
    error: Reply = (p.ERROR, (b"JOB_NOT_FOUND", b"Job given in work result not found"))
    assert one.replies() == [error, error, (p.ECHO_RES, (b"x",))]
    assert submit(client) == created(2), "others go on"


def test_a_worker_that_sends_nothing_more_ends_its_job_first(scene: Scene) -> None:
    attached(scene, LIGHT_MAX + 2)
    one = holder(scene)
    one.connection.received(request(p.WORK_COMPLETE, handle(1), b""))
    one.connection.half_closed()
    assert not one.port.closed
    assert [command[0] for command in scene.commit_own()] == [c.FINISH, c.CLOSE]
    assert one.port.closed and not scene.machine.queue.jobs


def test_without_a_majority_a_report_in_the_line_is_told(scene: Scene) -> None:
    attached(scene, LIGHT_MAX + 2, jobs=2)
    one = holder(scene, 2)
    scene.follow(leader="n1", term=2)
    scene.node.router.link_down("n1")
    one.connection.received(
        b"".join(request(p.WORK_COMPLETE, handle(job), b"") for job in (1, 2))
        + request(p.ECHO_REQ, b"x")
    )
    refused: Reply = (p.ERROR, (b"QUEUE_ERROR", NO_MAJORITY))
    scene.node.origin.expire(scene.node.context.loop_us + 1)
    scene.run()
    assert one.replies() == [refused, refused, (p.ECHO_RES, (b"x",))]
    assert not one.port.closed
