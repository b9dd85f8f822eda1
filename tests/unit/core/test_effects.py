"""Effects: changes of jobs, for nodes whose clients listen to them; other nodes have none."""

import pytest

from beanpole import commands as c
from beanpole.constants import NOTIFY_MAX_BYTES
from beanpole.core.jobs import effects
from beanpole.core.jobs.effects import DELETED, NOTIFIED_MAX, NOTIFIED_MIN
from beanpole.core.jobs.job import BURIED, FAILED
from beanpole.core.jobs.policies import Policy
from beanpole.core.machine import Machine
from beanpole.core.operations import administering as a
from beanpole.events import GEARMAN
from tests.unit.core.cluster import Cluster, copy_of, events_of, image_of

NOTE = NOTIFIED_MIN


@pytest.fixture
def cluster() -> Cluster:
    """Make jobs 1 to 3; a client listens to the first, and session 1 has reserved the first two."""
    cluster = Cluster()
    cluster.open(1)
    cluster.open(2)
    cluster.lead((c.RAISE, 3))
    for _ in range(3):
        cluster.put()
    cluster.batch((c.RESERVE_JOB, 1, 1), (c.RESERVE_JOB, 1, 2))
    cluster.machine.queue.effects.listened[1] = None
    return cluster


def test_the_holder_tells_listeners_something(cluster: Cluster) -> None:
    first = cluster.section((c.NOTIFY, 1, 1, NOTE, b"half"), (c.NOTIFY, 1, 2, NOTE, b"other"))
    second = cluster.section((c.NOTIFY, 1, 1, NOTIFIED_MAX, b""))
    applied = cluster.apply([first, second])
    assert [result for _, _, results in applied.results for result in results] == [c.OK] * 3
    assert applied.effects == [(1, NOTE, b"half"), (1, NOTIFIED_MAX, b"")]
    assert cluster.lead().effects == [], "they are told once"


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ((c.NOTIFY, 2, 1, NOTE, b""), c.NOT_FOUND),
        ((c.NOTIFY, 1, 3, NOTE, b""), c.NOT_FOUND),
        ((c.NOTIFY, 1, 9, NOTE, b""), c.NOT_FOUND),
        ((c.NOTIFY, 1, 1, NOTIFIED_MIN - 1, b""), c.BAD_COMMAND),
        ((c.NOTIFY, 1, 1, NOTIFIED_MAX + 1, b""), c.BAD_COMMAND),
        ((c.NOTIFY, 1, 1, NOTE, bytes(NOTIFY_MAX_BYTES + 1)), c.BAD_COMMAND),
    ],
)
def test_nobody_else_tells_anything(cluster: Cluster, command: c.Command, result: int) -> None:
    applied = cluster.apply([cluster.section(command)])
    assert applied.results[0][2] == [result]
    assert applied.effects == []


def test_it_is_over_with_the_lease(cluster: Cluster) -> None:
    cluster.pass_s(60)
    assert cluster.do(c.NOTIFY, 1, 1, NOTE, b"") == c.NOT_FOUND


def test_it_is_a_bad_command_in_version_2() -> None:
    cluster = Cluster()
    cluster.open(1)
    cluster.put()
    cluster.reserve()
    assert cluster.do(c.NOTIFY, 1, 1, NOTE, b"") == c.BAD_COMMAND


def test_the_end_of_a_job_is_told(cluster: Cluster) -> None:
    cluster.machine.queue.effects.listened[3] = None
    sections = [cluster.section((c.DELETE, 1, job)) for job in (3, 2, 1)]
    assert cluster.apply(sections).effects == [(3, DELETED, b""), (1, DELETED, b"")]


def test_other_transitions_say_nothing(cluster: Cluster) -> None:
    """After the end of a session, a TTR or a release, the job is still to be done."""
    release, reserve = (c.RELEASE, 1, 1, 0, 0), (c.RESERVE_JOB, 1, 1)
    bury, kick = (c.BURY, 1, 1, 0), (c.KICK_JOB, 1, 1)
    touch, close = (c.TOUCH, 1, 1), (c.CLOSE, 1, 1)
    applied = cluster.apply([cluster.section(release, reserve, bury, kick, reserve, touch, close)])
    assert applied.results[0][2] == [c.OK, (1, b"body"), c.OK, c.OK, (1, b"body"), c.OK, c.OK]
    assert applied.effects == []
    assert cluster.pass_s(99).effects == []


ANY_STATE = 0xFF
BURIALS = {
    "by its worker": ((c.BURY, 1, 1, 0),),
    "with a result": ((c.FINISH, 2, 1, FAILED, b"no"),),
    "by an administrator": (
        (c.RELEASE, 1, 1, 0, 0),
        (c.CHANGE_JOB, 1, 1, a.BURY, ANY_STATE, b"", b"", 0),
    ),
    "by a policy": (
        (c.SET_POLICY, 1, b"default", *Policy(attempts_max=1)),
        (c.RELEASE, 1, 1, 0, 0),
    ),
    "by a move": (
        (c.RELEASE, 1, 1, 0, 0),
        (c.CHANGE_JOB, 1, 1, a.MOVE, ANY_STATE, b"", b"other", BURIED),
    ),
}


@pytest.mark.parametrize("way", BURIALS)
def test_every_burial_is_a_failure_where_there_are_aliases(cluster: Cluster, way: str) -> None:
    """Once: clients of Workq wait for a job of beanstalk by an alias."""
    cluster.lead((c.RAISE, 4))
    assert cluster.batch(
        (c.SET_PROTOCOL, 2, GEARMAN), (c.SET_ALIAS, 1, b"\x02default", b"default")
    ) == [c.OK, c.OK]
    if way == "with a result":
        assert cluster.batch((c.RELEASE, 1, 1, 0, 0), (c.WATCH, 2, b"\x02default")) == [c.OK] * 2
        assert cluster.do(c.TAKE, 2)[0] == 1
    applied = cluster.apply([cluster.section(*BURIALS[way])])
    assert set(applied.results[0][2]) == {c.OK}
    assert cluster.state(1) == b"buried"
    assert applied.effects == [(1, effects.FAILED, b"no" if way == "with a result" else b"")]


def test_who_listens_changes_nothing_of_the_state(cluster: Cluster) -> None:
    """Hash, events and image do not depend on listeners; an image has no listener."""
    commands = ((c.NOTIFY, 1, 1, NOTE, b"half"), (c.DELETE, 1, 1))
    assert len(cluster.apply([cluster.section(*commands)]).effects) == 2
    other = Machine()
    for entry in cluster.log:
        assert other.apply(*entry).effects == []
    assert other.state_hash == cluster.machine.state_hash
    assert events_of(other) == events_of(cluster.machine)
    assert image_of(other) == image_of(cluster.machine)
    cluster.machine.queue.effects.listened[2] = None
    assert copy_of(cluster.machine).queue.effects.listened == {}
