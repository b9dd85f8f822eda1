"""Policies of queues: the fate of a job that returns too often, and the policy that applies."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import SECOND_US, U32_MAX
from beanpole.core import accounts
from beanpole.core.image.image import Image
from beanpole.core.jobs import policies
from beanpole.core.jobs.job import BURIED, READY, RESERVED
from beanpole.core.jobs.policies import POLICIES_MAX, Note, Policies, Policy
from beanpole.core.jobs.prefixes import ANY
from beanpole.core.operations import administering as a
from tests.unit.core.cluster import Cluster, chunks_of, events_of, image_of
from tests.unit.core.guests import PING, TURN, TWIST, Guests

WORK, DEAD = b"work", b"dead"


@pytest.fixture
def cluster(guests: Guests) -> Guests:
    return guests


def set_policy(cluster: Cluster, pattern: bytes, attempts: int, dead: bytes = b"") -> Any:
    return cluster.do(c.SET_POLICY, 1, pattern, *Policy(attempts, dead))


def attempt(cluster: Cluster, job: int, delay_s: int = 0) -> None:
    """Reserve and release the job once."""
    assert cluster.do(c.RESERVE_JOB, 1, job)[0] == job
    assert cluster.do(c.RELEASE, 1, job, 0, delay_s) == c.OK


def where(cluster: Cluster, job: int) -> tuple[bytes, int]:
    found = cluster.machine.queue.jobs[job]
    return found.tube.name, found.state


# --- which policy counts --------------------------------------------------------------------------


def test_its_own_counts_before_the_longest_beginning() -> None:
    found = Policies()
    rows = {b"mail": 1, b"mail*": 2, b"ma*": 3, b"*": 4}
    for pattern, attempts in rows.items():
        found.put(pattern, Policy(attempts, b""))
    wanted = {b"mail": 1, b"mail-de": 2, b"map": 3, b"m": 4}
    for _ in range(2):  # also from the cache
        for name, attempts in wanted.items():
            policy = found.of(name)
            assert policy is not None and policy.attempts_max == attempts, name
    found.drop(b"*")
    found.drop(b"mail")
    assert found.of(b"m") is None
    policy = found.of(b"mail")
    assert policy is not None and policy.attempts_max == 2


NAMES = st.text("ab", max_size=4).map(str.encode)


@given(st.sets(NAMES), st.sets(NAMES), st.sampled_from([b"a", TURN[:1]]), NAMES)
def test_the_longest_of_all_that_match_counts(
    exact: set[bytes], prefixes: set[bytes], first: bytes, rest: bytes
) -> None:
    found = Policies()
    for pattern in sorted(exact - {b""}) + [name + ANY for name in sorted(prefixes)]:
        found.put(pattern, Policy(dead=pattern))
    name = first + rest
    matching = [one for one in prefixes if name.startswith(one) and (one or first == b"a")]
    wanted = max(matching, key=len) + ANY if matching else None
    policy = found.of(name)
    assert (policy and policy.dead) == (name if name in exact else wanted)


@given(st.lists(st.tuples(st.text("ab\x02\xff", max_size=3), st.booleans()), max_size=12))
def test_each_of_many_queues_has_the_longest_that_matches_after_each_change(
    changes: list[tuple[str, bool]],
) -> None:
    """Look up more queues than those that are looked up by the lengths of the patterns."""
    names = [bytes(name) for size in (1, 2, 3) for name in product(b"ab\x02\xff", repeat=size)]
    found = Policies()
    for text, is_exact in changes:
        name = text.encode("latin-1")
        pattern = name if is_exact and name else name + ANY
        if pattern in found.rows:
            found.drop(pattern)
        else:
            found.put(pattern, Policy(dead=pattern))
        for queue in names:
            stems = [queue[:size] for size in range(4) if size or queue[0] != 2]
            matching = [stem + ANY for stem in stems if stem + ANY in found.rows]
            wanted = queue if queue in found.rows else max(matching, key=len, default=None)
            policy = found.of(queue)
            assert (policy and policy.dead) == wanted, queue


class Asked(dict[bytes, Policy]):
    """The rows of policies, and how often they were asked for one."""

    count = 0

    def get(self, key: bytes, default: Any = None) -> Any:
        self.count += 1
        return super().get(key, default)


@pytest.mark.constants
def test_a_lookup_takes_a_step_for_each_length_of_a_pattern() -> None:
    found = Policies()
    rows = found.rows = Asked()
    for number in range(250):
        found.put(b"tenant-%03d*" % number, Policy(1))
    for number in range(100):
        found.of(b"tenant-%03d-mail" % number)
    assert rows.count == 200


@pytest.mark.constants
def test_a_change_looks_at_buckets_in_steps_that_no_length_multiplies() -> None:
    """With 189 lengths, a change of a policy used to take 190 steps for each bucket: 0.9 s."""
    cluster, slow = Guests(), Policy(rate=1, rate_period_us=3600 * SECOND_US)
    queue = cluster.machine.queue
    rows = queue.policies.rows = Asked()
    for length in range(1, 190):
        assert cluster.do(c.SET_POLICY, 1, b"b" * length + ANY, *slow) == c.OK
    for pattern in (b"a*", b"*"):
        assert cluster.do(c.SET_POLICY, 1, pattern, *slow) == c.OK
    for number in range(500):
        queue.spend(queue.tube(b"a" * 190 + b"%d" % number), 1, 3600 * SECOND_US)
    rows.count = 0
    assert cluster.do(c.SET_POLICY, 1, b"a*", *slow._replace(jobs_max=1)) == c.OK
    assert cluster.do(c.DROP_POLICY, 1, b"a*") == c.OK  # the rate of `*` is the same
    assert len(queue.rates.buckets) == 500
    assert rows.count < 10_000
    assert cluster.do(c.DROP_POLICY, 1, b"*") == c.OK
    assert not queue.rates.buckets


@pytest.mark.constants
def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_KNOWN_MAX", 10)
    monkeypatch.setattr(policies, "NOTES_MAX", 3)
    found = Policies()
    for number in range(100):
        assert found.of(b"%d" % number) is None
        assert len(found._known) <= 10
    for job in (1, 2, 3, 1, 4):
        found.note(job, Note(0, b"q", 7))
    assert list(found.notes) == [3, 1, 4]
    assert (found.spent(4, 9), found.spent(2, 9), found.spent(4, 1)) == (2, 9, 0)


@pytest.mark.parametrize(
    ("pattern", "attempts", "dead"),
    [
        *((b"", 1, b""), (b"**", 1, b""), (b"a*b", 1, b""), (bytes(3), 1, b""), (PING, 1, b"")),
        *((b"x" * 201, 1, b""), (WORK, 0, DEAD), (WORK, -1, b""), (WORK, U32_MAX + 1, b"")),
        *((WORK, 1, b"dead*"), (WORK, 1, TURN), (WORK, 1, b"x" * 201)),
    ],
)
def test_what_cannot_be_is_refused(
    cluster: Guests, pattern: bytes, attempts: int, dead: bytes
) -> None:
    before = image_of(cluster.machine)
    assert set_policy(cluster, pattern, attempts, dead) == c.BAD_COMMAND
    assert cluster.do(c.DROP_POLICY, 1, pattern) == c.NOT_FOUND
    assert not cluster.machine.queue.policies.rows
    assert len(image_of(cluster.machine)) == len(before)


def test_there_are_not_more_than_the_limit(cluster: Guests) -> None:
    for number in range(POLICIES_MAX):
        assert set_policy(cluster, b"q%d" % number, 1) == c.OK
    assert set_policy(cluster, b"one-more", 1) == c.OUT_OF_MEMORY
    assert set_policy(cluster, b"q7", 2, DEAD) == c.OK  # a replacement
    assert cluster.do(c.DROP_POLICY, 1, b"q8") == c.OK
    assert set_policy(cluster, b"one-more", 1) == c.OK


def test_an_older_machine_has_none() -> None:
    cluster = Guests(version=3)
    assert set_policy(cluster, WORK, 1) == c.BAD_COMMAND
    job = cluster.put(tube=WORK)
    attempt(cluster, job)
    assert where(cluster, job) == (WORK, READY)


# --- effects --------------------------------------------------------------------------------------


def test_after_its_attempts_a_job_moves_with_its_reason(cluster: Guests) -> None:
    assert set_policy(cluster, WORK, 3, DEAD) == c.OK
    job = cluster.put(tube=WORK, priority=7)
    for _ in range(2):
        attempt(cluster, job)
        assert where(cluster, job) == (WORK, READY)
    events_of(cluster.machine)
    attempt(cluster, job, delay_s=60)
    assert where(cluster, job) == (DEAD, READY)
    reserved, left, came = events_of(cluster.machine)
    assert (left.kind, left.before, left.state) == (e.MOVED, RESERVED, e.MOVING)
    assert (came.kind, came.before, came.state) == (e.MOVED, e.MOVING, READY)
    assert left.reason == came.reason == e.ATTEMPTS
    assert left.tube == reserved.tube != came.tube
    assert cluster.machine.queue.policies.notes[job] == Note(e.NO_REASON, WORK, 3)
    # Its queue vanished with its last job, and the worker has no job left.
    assert WORK not in cluster.machine.queue.tubes
    assert cluster.do(c.DELETE, 1, job) == c.OK
    assert not cluster.machine.queue.policies.notes


@pytest.mark.parametrize("dead", [b"", DEAD])
@pytest.mark.parametrize(
    ("how", "ended", "reason", "counters"),
    [
        ("release", e.NO_REASON, "attempts", (0, 1)),
        ("ttr", e.TTR, "attempts_ttr", (1, 0)),
        ("close", e.CONNECTION_LOST, "attempts_connection_lost", (0, 0)),
        ("node", e.NODE_DOWN, "attempts_node_down", (0, 0)),
        ("return", e.NOBODY_WAITING, "attempts_nobody_waiting", (0, 0)),
    ],
)
def test_the_event_says_how_the_last_attempt_ended(
    cluster: Guests, how: str, ended: int, reason: str, counters: tuple[int, int], dead: bytes
) -> None:
    """No other event tells of that end."""
    set_policy(cluster, WORK, 1, dead)
    job = cluster.put(tube=WORK, ttr_s=3)
    cluster.open(9, origin=1)
    assert cluster.do(c.RESERVE_JOB, 9, job, origin=1)[0] == job
    events_of(cluster.machine)
    cluster.end_reservation(job, how)
    assert cluster.machine.queue.policies.notes[job].reason == ended
    left, *came = events_of(cluster.machine)
    assert (left.kind, left.before) == (e.MOVED if dead else e.BURIED, RESERVED)
    assert [one.kind for one in came] == [e.MOVED] * bool(dead)
    assert {e.REASON_NAMES[one.reason] for one in (left, *came)} == {reason}
    assert (left.timeouts, left.releases, left.buries) == (*counters, 0)
    assert (left.origin, left.session) == (1, 9)


def test_time_outs_and_lost_workers_count(cluster: Guests) -> None:
    set_policy(cluster, b"*", 1, DEAD)
    late, lost = cluster.put(tube=WORK, ttr_s=1), cluster.put(tube=WORK, ttr_s=60)
    cluster.open(9)
    for job in (late, lost):
        assert cluster.do(c.RESERVE_JOB, 9, job)[0] == job
    cluster.time_us += 5 * SECOND_US
    cluster.do()
    assert where(cluster, late) == (DEAD, READY)
    assert cluster.do(c.CLOSE, 9, 1) == c.OK
    cluster.do()
    assert where(cluster, lost) == (DEAD, READY)
    notes = cluster.machine.queue.policies.notes
    assert [notes[job].reason for job in (late, lost)] == [e.TTR, e.CONNECTION_LOST]
    assert cluster.machine.queue.jobs[late].timeouts == 1


def test_without_a_dead_queue_it_is_buried_and_a_kick_gives_new_attempts(cluster: Guests) -> None:
    set_policy(cluster, WORK, 2)
    job = cluster.put(tube=WORK)
    attempt(cluster, job)
    attempt(cluster, job)
    assert where(cluster, job) == (WORK, BURIED)
    assert cluster.machine.queue.jobs[job].buries == 0
    assert cluster.do(c.KICK_JOB, 1, job) == c.OK
    attempt(cluster, job)
    assert where(cluster, job) == (WORK, READY)
    attempt(cluster, job)
    assert where(cluster, job) == (WORK, BURIED)


def test_a_job_that_is_brought_back_has_new_attempts(cluster: Guests) -> None:
    set_policy(cluster, WORK, 1, DEAD)
    job = cluster.put(tube=WORK)
    attempt(cluster, job)
    for _ in range(2):
        assert where(cluster, job) == (DEAD, READY)
        command = (c.CHANGE_JOB, 1, job, a.MOVE, -1, DEAD, WORK, a.READY_IF_BURIED)
        assert cluster.do(*command) == c.OK
        assert where(cluster, job) == (WORK, READY)
        attempt(cluster, job)
    assert cluster.machine.queue.policies.notes[job] == Note(e.NO_REASON, WORK, 3)


def test_attempts_in_the_dead_queue_do_not_count_for_its_own(cluster: Guests) -> None:
    set_policy(cluster, WORK, 2, DEAD)
    job = cluster.put(tube=WORK)
    for _ in range(5):
        attempt(cluster, job)  # from the third on in the dead queue
    assert where(cluster, job) == (DEAD, READY)
    assert cluster.do(c.CHANGE_JOB, 1, job, a.MOVE, -1, DEAD, WORK, a.READY_IF_BURIED) == c.OK
    assert cluster.machine.queue.policies.notes[job] == Note(e.NO_REASON, WORK, 5)
    attempt(cluster, job)
    assert where(cluster, job) == (WORK, READY)
    attempt(cluster, job)
    assert where(cluster, job) == (DEAD, READY)


def test_the_dead_queue_has_no_dead_queue_of_its_own(cluster: Guests) -> None:
    set_policy(cluster, b"*", 1, DEAD)
    job = cluster.put(tube=WORK)
    attempt(cluster, job)
    assert where(cluster, job) == (DEAD, READY)
    attempt(cluster, job)
    assert where(cluster, job) == (DEAD, BURIED)


def test_a_worker_that_buries_or_deletes_is_not_asked(cluster: Guests) -> None:
    set_policy(cluster, WORK, 1, DEAD)
    job = cluster.put(tube=WORK)
    assert cluster.do(c.RESERVE_JOB, 1, job)[0] == job
    assert cluster.do(c.BURY, 1, job, 0) == c.OK
    assert where(cluster, job) == (WORK, BURIED)
    assert not cluster.machine.queue.policies.notes


def test_jobs_of_other_protocols_have_bounds_of_their_own(cluster: Guests) -> None:
    set_policy(cluster, b"*", 1, DEAD)
    job = cluster.submitted(foreground=0)
    assert cluster.take() == job
    assert cluster.do(c.RELEASE, 4, job, 0, 0) == c.OK
    assert where(cluster, job) == (TURN, READY)


def test_an_alias_brings_no_job_under_the_attempts_of_a_tube(cluster: Guests) -> None:
    """Its client waits for an end that a buried job does not have."""
    queue = TWIST
    assert cluster.do(c.SET_ALIAS, 1, queue, WORK) == c.OK
    assert set_policy(cluster, WORK, 1, DEAD) == c.OK
    theirs = cluster.submitted(queue=queue)
    ours = cluster.put(tube=WORK)
    keyed, _ = cluster.do(c.PUT_KEYED, 1, WORK, 0, 0, 60, b"x", b"key")
    for job in (theirs, ours, keyed):
        attempt(cluster, job)
    assert where(cluster, theirs) == (WORK, READY)
    assert where(cluster, ours) == where(cluster, keyed) == (DEAD, READY)


def test_an_image_in_progress_has_the_policies_of_its_beginning(cluster: Guests) -> None:
    set_policy(cluster, WORK, 1, DEAD)
    first, second = cluster.put(tube=WORK), cluster.put(tube=WORK)
    attempt(cluster, first)
    before = image_of(cluster.machine)
    image = Image(cluster.machine)
    attempt(cluster, second)
    cluster.do(c.DROP_POLICY, 1, WORK)
    assert cluster.do(c.DELETE, 1, first) == c.OK
    assert chunks_of(image) == before
    assert image_of(cluster.machine) != before


def test_they_count_against_the_memory_of_the_cluster(cluster: Guests) -> None:
    job = cluster.put(tube=WORK)
    before = accounts.memory_bytes(cluster.machine), accounts.image_bytes(cluster.machine)
    set_policy(cluster, WORK, 1)
    attempt(cluster, job)
    more = accounts.POLICY_BYTES + accounts.NOTE_BYTES
    assert accounts.memory_bytes(cluster.machine) - before[0] == more
    assert accounts.image_bytes(cluster.machine) > before[1]


def test_a_dead_letter_queue_that_became_an_alias_gets_no_jobs(cluster: Guests) -> None:
    assert set_policy(cluster, WORK, 1, DEAD) == c.OK
    assert cluster.do(c.SET_ALIAS, 1, DEAD, TURN) == c.OK
    job = cluster.put(tube=WORK)
    attempt(cluster, job)
    # A tube with the name of an alias would make images that no node can read.
    assert DEAD not in cluster.machine.queue.tubes
    assert where(cluster, job) == (WORK, BURIED)
    assert cluster.do(c.SET_ALIAS, 1, DEAD, b"") == c.OK
    other = cluster.put(tube=WORK)
    attempt(cluster, other)
    assert where(cluster, other) == (DEAD, READY)
