"""One entry does a bounded amount of work, whatever clients send; later entries do the rest."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from beanpole import commands as c
from beanpole.constants import (
    KICK_MAX,
    KICKS_PER_ENTRY_MAX,
    LOOKS_PER_ENTRY_MAX,
    TRANSITIONS_PER_ENTRY_MAX,
    U32_MAX,
    WATCHED_TUBES_MAX,
)
from beanpole.core import machine as machine_module
from beanpole.core.applied import GRANTED, LATER
from beanpole.core.image import image as image_module
from beanpole.core.image.image import Image
from beanpole.core.image.restore import load
from beanpole.core.jobs.job import BURIED, DELAYED
from beanpole.core.users import USERS_SINCE, WORK, User
from tests.unit.core.cluster import DEFAULT, Cluster, copy_of, image_of
from tests.unit.core.having_users import LEES, add_lee, lock

SECRET = b"s" * 16


def delayed(cluster: Cluster, count: int) -> None:
    """Put jobs with a long delay."""
    for start in range(0, count, 4000):
        put = (c.PUT, 1, DEFAULT, 0, 9000, 60, b"")
        cluster.batch(*[put] * min(4000, count - start))


# --- looks at watched tubes -----------------------------------------------------------------------


@pytest.mark.constants
def test_a_grant_asks_for_rights_only_where_a_job_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 64 patterns of rights, the looks of one entry at empty tubes used to take 0.37 s."""
    asked: list[bytes] = []
    usual = User.on

    def on(user: User, queue: bytes) -> int:
        asked.append(queue)
        return usual(user, queue)

    cluster = Cluster()
    cluster.lead((c.RAISE, USERS_SINCE))
    cluster.open(1)
    cluster.open(2)
    cluster.batch(*((c.WATCH, 2, b"w%d" % place) for place in range(200)))
    lock(cluster)
    add_lee(cluster, (b"w*", WORK))
    assert cluster.do(c.AS_USER, 2, b"", LEES) == c.OK
    job = cluster.put(tube=b"w7")
    monkeypatch.setattr(User, "on", on)
    assert cluster.grant(2) == (GRANTED, job)
    assert asked == [b"w7"]


# --- kicks ----------------------------------------------------------------------------------------


def test_the_kicks_of_one_entry_are_bounded_together(cluster: Cluster) -> None:
    """300 clients with `kick 1000` used to make entries of seconds; now they make more entries."""
    delayed(cluster, 6 * KICK_MAX)
    kicks = [(c.KICK, 1, DEFAULT, 1000, 0)] * 300
    results = cluster.batch(*kicks)
    assert sum(result[0] for result in results) == cluster.machine.queue.ready
    assert 0.99 * KICKS_PER_ENTRY_MAX <= cluster.machine.queue.ready <= KICKS_PER_ENTRY_MAX
    assert results[0] == (KICK_MAX, DELAYED, 0)
    assert results[1] == (KICK_MAX // 2, DELAYED, 1)
    assert results[-1] == (0, 0, 1)


def test_kicks_are_repeated_until_all_have_what_they_asked_for(cluster: Cluster) -> None:
    delayed(cluster, 9000)
    left = dict.fromkeys(range(12), 1000)
    states = dict.fromkeys(range(12), 0)
    entries = 0
    while left:
        entries += 1
        asking = list(left)
        results = cluster.batch(*((c.KICK, 1, DEFAULT, left[who], states[who]) for who in asking))
        for who, (kicked, state, is_more) in zip(asking, results, strict=True):
            left[who] -= kicked
            states[who] = state
            if not is_more:
                del left[who]
    assert entries < 12
    assert cluster.machine.queue.ready == 9000  # so that the last kicks found nothing


def test_a_kick_that_moves_nothing_yet_has_not_chosen_what_it_means(cluster: Cluster) -> None:
    delayed(cluster, KICKS_PER_ENTRY_MAX + 5)
    cluster.put()
    cluster.reserve()
    kicks = [(c.KICK, 1, DEFAULT, 1000, 0)] * 40
    bury = (c.BURY, 1, KICKS_PER_ENTRY_MAX + 6, 0)
    assert cluster.batch(*kicks, bury)[-2:] == [(0, 0, 1), c.OK]
    assert cluster.do(c.KICK, 1, DEFAULT, 1000, 0) == (1, BURIED, 0)


def test_a_kick_of_nothing_is_done_also_when_nothing_is_left(cluster: Cluster) -> None:
    delayed(cluster, KICKS_PER_ENTRY_MAX + 5)
    kicks = [(c.KICK, 1, DEFAULT, 1000, 0)] * 40
    zero, unknown = (c.KICK, 1, DEFAULT, 0, 0), (c.KICK, 1, b"nobody", 9, 0)
    assert cluster.batch(*kicks, zero, unknown)[-2:] == [(0, DELAYED, 0), (0, 0, 0)]


# --- sessions -------------------------------------------------------------------------------------


def many(cluster: Cluster, count: int, first: int = 2) -> None:
    """Open sessions."""
    for start in range(first, first + count, 2000):
        numbers = range(start, min(start + 2000, first + count))
        cluster.batch(*((c.OPEN, number) for number in numbers))


def entries_until_done(cluster: Cluster) -> Iterator[int]:
    """Yield the number of sessions after each entry that continues the work."""
    while cluster.machine.has_work():
        cluster.pass_s(0)
        yield cluster.machine.sessions


def test_the_end_of_a_node_with_thousands_of_sessions_is_many_entries(cluster: Cluster) -> None:
    many(cluster, 10_000)
    cluster.lead((c.NODE_DOWN, 0, 1))
    left = [cluster.machine.sessions, *entries_until_done(cluster)]
    assert left[0] >= 10_001 - TRANSITIONS_PER_ENTRY_MAX
    ended = [before - after for before, after in pairwise(left)]
    assert max(ended) <= TRANSITIONS_PER_ENTRY_MAX
    assert left[-1] == 0
    assert cluster.machine.queue.default.users == 0
    assert not cluster.machine.ending


@pytest.mark.constants
def test_a_lost_session_is_found_by_no_command_and_by_its_secret(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = cluster.put()
    cluster.reserve()
    cluster.do(c.KEEP, 1, SECRET, 9_000_000)
    cluster.open(2)
    monkeypatch.setattr(machine_module, "TRANSITIONS_PER_ENTRY_MAX", 0)
    cluster.incarnations[0] = 2
    cluster.open(1)  # the same number, in the next incarnation
    assert len(cluster.machine.lost) == 1
    cluster.machine = copy_of(cluster.machine)
    assert len(cluster.machine.lost) == 1
    assert cluster.do(c.TOUCH, 1, job) == c.NOT_FOUND
    assert cluster.do(c.RESUME, 1, SECRET) == c.OK
    assert cluster.do(c.TOUCH, 1, job) == c.OK
    assert list(cluster.machine.lost[0]) == [2]
    monkeypatch.setattr(machine_module, "TRANSITIONS_PER_ENTRY_MAX", 9)
    cluster.pass_s(0)
    assert not cluster.machine.has_work()
    assert cluster.machine.sessions == 1
    assert cluster.do(c.TOUCH, 1, job) == c.OK


def test_many_kept_sessions_come_and_go_in_order(cluster: Cluster) -> None:
    for number in range(2, 12):
        cluster.open(number)
        cluster.do(c.KEEP, number, b"%016d" % number, (20 - number) * 1_000_000)
    cluster.lead((c.NODE_DOWN, 0, 1))
    assert [first for first, _ in cluster.machine.returning] == [
        cluster.time_us + (20 - number) * 1_000_000 for number in range(11, 1, -1)
    ]
    cluster.machine = copy_of(cluster.machine)
    cluster.pass_s(13)
    assert [item.secret for item in cluster.machine.detached.values()] == [
        b"%016d" % number for number in range(6, 1, -1)
    ]
    assert list(cluster.machine.resumable) == [b"%016d" % number for number in range(6, 1, -1)]


# --- grants ---------------------------------------------------------------------------------------


def test_grants_look_at_a_bounded_number_of_tubes(cluster: Cluster) -> None:
    names = [b"t%d" % number for number in range(WATCHED_TUBES_MAX - 1)]
    fit = LOOKS_PER_ENTRY_MAX // WATCHED_TUBES_MAX
    waiting = range(2, 2 + fit + 10)
    for number in waiting:
        cluster.open(number)
        cluster.batch(*((c.WATCH, number, name) for name in names))
        cluster.put()
    grants = [(c.GRANT, 0, 1, number, 1, 0) for number in waiting]
    outcomes = [grant[4] for grant in cluster.lead(*grants).grants]
    assert outcomes == [GRANTED] * fit + [LATER] * 10
    outcomes = [grant[4] for grant in cluster.lead(*grants[fit:]).grants]
    assert outcomes == [GRANTED] * 10


# --- images ---------------------------------------------------------------------------------------

CHANGES = {
    "put": (c.PUT, 1, b"b", 0, 0, 1, b""),
    "pause": (c.PAUSE_TUBE, 1, b"b", 7),
    "end of a pause": (c.PAUSE_TUBE, 1, b"a", 0),
    "delete": (c.DELETE, 1, 3),
    "use": (c.USE, 1, b"a"),
    "watch": (c.WATCH, 1, b"b"),
    "ignore": (c.IGNORE, 1, b"c"),
    "set_protocol": (c.SET_PROTOCOL, 1, 1),
    "keep": (c.KEEP, 1, b"k" * 16, 5_000_000),
    "resume": (c.RESUME, 3, SECRET),
    "close": (c.CLOSE, 1, 1),
    "open": (c.OPEN, 9),
    "reserve-job": (c.RESERVE_JOB, 1, 2),
    "release": (c.RELEASE, 1, 1, 0, 0),
}


@pytest.mark.parametrize("what", sorted(CHANGES))
@pytest.mark.parametrize("taken", [1, 2, 3, 4, 5, 6])
@pytest.mark.constants
def test_every_command_keeps_tubes_and_sessions_for_an_image_in_progress(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, what: str, taken: int
) -> None:
    for name in ("CHUNK_TUBES", "CHUNK_SESSIONS", "CHUNK_IDS"):
        monkeypatch.setattr(image_module, name, 1)
    cluster.open(2)
    cluster.open(3)
    cluster.batch((c.USE, 1, b"b"), (c.WATCH, 1, b"c"), (c.WATCH, 2, b"a"), (c.USE, 2, b"a"))
    cluster.batch((c.PAUSE_TUBE, 1, b"a", 9), (c.KEEP, 2, SECRET, 9_000_000), (c.CLOSE, 2, 1))
    for _ in range(3):
        cluster.put()
    cluster.reserve()
    expected = image_of(cluster.machine)
    image = Image(cluster.machine)
    chunks = [image.next_chunk() for _ in range(taken)]
    before = image_of(cluster.machine)
    assert c.BAD_COMMAND not in cluster.batch(CHANGES[what])
    cluster.pass_s(20)
    chunks += list(iter(image.next_chunk, None))
    image.close()
    assert chunks == expected == before
    assert image_of(load(image_of(cluster.machine))) == image_of(cluster.machine)


def test_a_grant_keeps_the_session_for_an_image_in_progress(cluster: Cluster) -> None:
    cluster.put()
    expected = image_of(cluster.machine)
    image = Image(cluster.machine)
    cluster.reserve()
    assert list(iter(image.next_chunk, None)) == expected
    image.close()


@pytest.mark.slow
def test_a_session_that_holds_very_many_jobs_stands_in_chunks_of_its_own(
    cluster: Cluster,
) -> None:
    count = image_module.CHUNK_IDS + 5
    for start in range(0, count, 4000):
        cluster.batch(*[(c.PUT, 1, DEFAULT, 0, 0, U32_MAX, b"")] * min(4000, count - start))
    for start in range(1, count + 1, 4000):
        jobs = range(start, min(start + 4000, count + 1))
        cluster.batch(*((c.RESERVE_JOB, 1, job) for job in jobs))
    cluster.open(2)
    chunks = image_of(cluster.machine)
    copy = load(chunks)
    assert image_of(copy) == chunks
    assert list(copy.origins[0].sessions[1].reserved) == list(range(1, count + 1))
    assert list(copy.origins[0].sessions) == [1, 2]
