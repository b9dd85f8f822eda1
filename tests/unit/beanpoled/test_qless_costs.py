"""The estimated costs of qless calls, and a node's budget for calls in flight."""

from collections.abc import Iterator
from typing import Any

from beanpole import qless as q
from beanpole.core.qless import config, recurring, throttles
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import Tables
from beanpoled.frontends.qless.heaviness import DEAR, GROUPS_LOOKED_MAX, cost_of
from beanpoled.origin.batches import BATCH_COST_MAX, COST_IN_FLIGHT_MAX
from beanpoled.origin.heavy import LIGHT_MAX
from tests.unit.beanpoled.qless_scene import Scene, array
from tests.unit.core.qless.checking import Qless
from tests.unit.core.qless.making import running_job, scheduled_job, waiting_job

TAGS = tuple(b"t%d" % number for number in range(q.TAGS_MAX))
COMPLETE = (b"a", b"w", b"q", b"{}", None, 0.0, ())


def put(jid: bytes, tags: tuple[bytes, ...] = (), depends: tuple[bytes, ...] = ()) -> Any:
    """Return the arguments of a PUT."""
    return b"q", jid, b"Klass", b"{}", 0.0, b"w", 0.0, tags, 5, depends, (), False


def pop(t: Tables, count: int, now: float = 9.0) -> int:
    return cost_of(t, q.POP, now, (b"q", b"w", count))


def test_a_pop_costs_what_there_is() -> None:
    world = Qless()
    assert pop(world.t, LIGHT_MAX) == 1
    for number in range(10):
        waiting_job(world.t, b"%d" % number)
        scheduled_job(world.t, b"later %d" % number, 5.0)
    assert [pop(world.t, count) for count in (1, 4, LIGHT_MAX)] == [2, 5, 21]
    assert pop(world.t, LIGHT_MAX + 1) > LIGHT_MAX


def test_data_in_a_reply_costs() -> None:
    world = Qless()
    for number in range(4):
        world.put(0, b"%d" % number, data=b'"%b"' % (b"x" * 100_000))
    assert cost_of(world.t, q.GET, 9.0, (b"missing",)) == 1
    one = cost_of(world.t, q.GET, 9.0, (b"0",))
    assert 90 < one < 110
    assert cost_of(world.t, q.MULTIGET, 9.0, ((b"0", b"1"),)) == 2 * one + 1
    assert cost_of(world.t, q.MULTIGET, 9.0, ((b"0", b"1", b"2"),)) > LIGHT_MAX
    assert pop(world.t, 1) < LIGHT_MAX < pop(world.t, 3)
    assert cost_of(world.t, q.PEEK, 9.0, (b"q", 0, 3)) > LIGHT_MAX
    world.pop(0, 4)
    assert pop(world.t, 3, now=5.0) < 10, "the locks hold"
    assert pop(world.t, 3, now=1e6) > LIGHT_MAX, "they have ended"


def test_jobs_that_a_pop_may_pass_over_cost_as_well() -> None:
    world = Qless()
    world.give(config.config_set, 0, b"max-pop-retry", b"1000000")
    for number in range(LIGHT_MAX + 1):
        waiting_job(world.t, b"%d" % number)
    assert pop(world.t, 1) > LIGHT_MAX


def test_what_jobs_release_that_a_pop_finds_exhausted_costs() -> None:
    world = Qless()
    world.give(throttles.throttle_set, 0, b"t", 1, 0)
    world.put(0, b"first", throttles=(b"t",), retries=0, priority=1.0)
    for number in range(100):
        world.put(0, b"%03d" % number, throttles=(b"t",))
    assert world.pop(0, 1) == [b"first"]
    world.pop(0, 100)
    assert len(world.t.throttles[b"t"].pending) == 100
    assert pop(world.t, 1, now=5.0) == 2, "the lock holds"
    assert 100 < pop(world.t, 1, now=1e6) < 110, "it has ended"


def test_tags_of_templates_that_are_due_cost() -> None:
    world = Qless()
    world.give(recurring.recur, 0, b"q", b"r", b"K", b"{}", 1.0, 5.0, 0.0, TAGS, 5, 0.0, None)
    assert pop(world.t, 1, now=4.0) == 1
    assert pop(world.t, 1, now=5.0) > LIGHT_MAX


def test_what_the_end_of_a_job_lets_go_costs() -> None:
    world = Qless()
    world.put(0, b"a")
    assert cost_of(world.t, q.COMPLETE, 1.0, COMPLETE) == 2
    for number in range(LIGHT_MAX):
        world.put(0, b"b%d" % number, depends=(b"a",))
    assert cost_of(world.t, q.COMPLETE, 1.0, COMPLETE) > LIGHT_MAX
    assert cost_of(world.t, q.CANCEL, 1.0, ((b"a",),)) > LIGHT_MAX
    # The job moves to another queue, and its dependents still wait.
    assert cost_of(world.t, q.COMPLETE, 1.0, (*COMPLETE[:4], b"next", 0.0, ())) == 2


def test_complete_jobs_that_are_too_many_cost() -> None:
    world = Qless()
    for number in range(100):
        world.put(0, b"%d" % number)
        world.pop(0)
        world.done(0, b"%d" % number)
    assert cost_of(world.t, q.COMPLETE, 1.0, COMPLETE) == 1, "there is no such job"
    world.put(0, b"a")
    assert cost_of(world.t, q.COMPLETE, 1.0, COMPLETE) == 2
    world.give(config.config_set, 0, b"jobs-history-count", b"0")
    assert cost_of(world.t, q.COMPLETE, 1.0, COMPLETE) > LIGHT_MAX


def test_the_tags_of_complete_jobs_that_are_too_many_cost() -> None:
    world = Qless()
    world.give(config.config_set, 0, b"jobs-history-count", b"3")
    for number in range(3):
        world.put(0, b"%d" % number, tags=TAGS)
        world.pop(0)
        if number < 2:
            world.done(0, b"%d" % number)
    complete = (b"2", *COMPLETE[1:])
    assert cost_of(world.t, q.COMPLETE, 1.0, complete) == 2, "the third one is kept"
    world.done(0, b"2")
    world.put(0, b"a")
    assert cost_of(world.t, q.COMPLETE, 1.0, COMPLETE) > LIGHT_MAX
    assert cost_of(world.t, q.COMPLETE, 1.0, (*COMPLETE[:4], b"next", 0.0, ())) == 2


def test_jobs_that_wait_for_a_throttle_cost_when_it_is_released() -> None:
    world = Qless()
    world.give(throttles.throttle_set, 0, b"t", 1, 0)
    for number in range(100):
        world.put(0, b"%03d" % number, throttles=(b"t",))
        world.pop(0)
    assert len(world.t.throttles[b"t"].pending) == 99
    for code, arguments in (
        (q.FAIL, (b"000", b"w", b"g", b"m", None)),
        (q.CANCEL, ((b"000",),)),
        (q.TIMEOUT, ((b"000",),)),
        (q.THROTTLE_RELEASE, (b"t", (b"000",))),
    ):
        assert 99 < cost_of(world.t, code, 1.0, arguments) < LIGHT_MAX, code


def test_lists_of_a_call_cost() -> None:
    world = Qless()
    assert cost_of(world.t, q.PUT, 1.0, put(b"a")) == 1
    assert cost_of(world.t, q.PUT, 1.0, put(b"a", tags=TAGS)) > LIGHT_MAX
    assert cost_of(world.t, q.PUT, 1.0, put(b"a", depends=TAGS[:200])) == 1 + 100
    assert cost_of(world.t, q.TAG_ADD, 1.0, (b"a", TAGS)) > LIGHT_MAX
    assert cost_of(world.t, q.MULTIGET, 1.0, (TAGS,)) > LIGHT_MAX


def test_both_jobs_of_a_dependency_cost() -> None:
    """A call that adds or removes 1,000 dependencies takes each node 5 ms: it waits in the line."""
    world = Qless()
    for jid in TAGS:
        waiting_job(world.t, jid)
    world.put(0, b"a", depends=TAGS)
    depends_on_all = (*COMPLETE[:4], b"next", 0.0, TAGS)
    imported = (b"q", b"new", b"K", b"{}", q.DEPENDS, 0.0, 5, 5, 0.0, 0.0, None, (), (), None)
    for code, arguments in (
        (q.PUT, put(b"new", depends=TAGS)),
        (q.PUT, put(b"a")),  # loses all of them
        (q.COMPLETE, (b"new", *depends_on_all[1:])),
        (q.CANCEL, ((b"a",),)),
        (q.DEPENDS_OFF, (b"a", None)),
        (q.IMPORT_JOB, (*imported, TAGS, (), b"")),
    ):
        assert cost_of(world.t, code, 1.0, arguments) > LIGHT_MAX, code
    assert cost_of(world.t, q.DEPENDS_ON, 1.0, (b"a", TAGS[:100])) == 1 + 50


def test_workers_that_were_not_seen_for_long_cost() -> None:
    world = Qless()
    world.pop(0)
    assert cost_of(world.t, q.WORKER_COUNTS, 1.0, ()) == 1
    assert cost_of(world.t, q.WORKER_COUNTS, 1e6, ()) > LIGHT_MAX


def test_a_list_of_the_jobs_of_a_worker_costs_by_their_number() -> None:
    world = Qless()
    for number in range(1000):
        running_job(world.t, b"%d" % number, b"w", 100.0)
    assert cost_of(world.t, q.WORKER_JOBS, 1.0, (b"v",)) == 1
    assert 10 < cost_of(world.t, q.WORKER_JOBS, 1.0, (b"w",)) < 20
    for number in range(1000, 30_000):
        running_job(world.t, b"%d" % number, b"w", 100.0)
    assert cost_of(world.t, q.WORKER_JOBS, 1.0, (b"w",)) > LIGHT_MAX


def test_a_node_has_a_budget_of_calls_on_their_way() -> None:
    """Each call is cheap, but one entry with all of them would take every node seconds."""
    scene = Scene()
    tags = b'["' + b'","'.join(TAGS[:600]) + b'"]'
    clients = [scene.connect() for _ in range(100)]
    for number, client in enumerate(clients):
        words = (b"1", b"w", b"q", b"j%d" % number, b"K", b"{}", b"0", b"tags", tags)
        assert client.send(array(b"EVALSHA", scene.sha, b"0", b"put", *words)) == b""
    batches = list(scene.node.origin._numbered.values())
    most = COST_IN_FLIGHT_MAX + BATCH_COST_MAX + LIGHT_MAX
    assert COST_IN_FLIGHT_MAX <= sum(batch.cost for batch in batches) <= most
    assert max(batch.cost for batch in batches) <= BATCH_COST_MAX + LIGHT_MAX
    scene.commit_own()
    for number, client in enumerate(clients):
        jid = b"j%d" % number
        assert client.port.take() == b"$%d\r\n%b\r\n" % (len(jid), jid)
    assert len(scene.machine.qless.jobs) == 100


def test_what_names_everything_costs_by_how_much_there_is() -> None:
    world = Qless()
    assert cost_of(world.t, q.CONFIG_ALL, 9.0, ()) == 1
    for number in range(500):
        world.t.set_option(b"%d" % number, b"x" * 1024)
    assert 500 < cost_of(world.t, q.CONFIG_ALL, 9.0, ()) < 510
    for number in range(400):
        world.t.queue(b"%d" % number)
        world.t.set_pattern(1, b"%d" % number, b"p")
    for code in (q.QUEUE_NAMES, q.PATTERNS, q.EDIT_PATTERNS):
        assert 11 <= cost_of(world.t, code, 9.0, (1,)) <= 13
    for number in range(q.TRACKED_MAX):
        world.t.tracked.add(b"%d" % number, 1.0)
    assert cost_of(world.t, q.TRACK, 9.0, (b"7",)) == 1
    assert cost_of(world.t, q.TRACK, 9.0, (b"new",)) == 1 + q.TRACKED_MAX // 40


def test_the_bytes_of_names_in_a_reply_cost() -> None:
    """A name has up to 4 KiB, and a pattern up to a mebibyte."""
    world = Qless()
    t = world.t
    asked = (
        (q.PATTERNS, (0,)),
        (q.QUEUE_NAMES, ()),
        (q.QUEUE_COUNTS, (None,)),
        (q.FAILED_GROUPS, ()),
        (q.WORKER_COUNTS, ()),
        (q.THROTTLE_LOCKS, (b"t",)),
        (q.THROTTLE_PENDING, (b"t",)),
    )
    for code, arguments in asked:
        assert cost_of(t, code, 9.0, arguments) == 1
    t.set_pattern(0, b"x", bytes(q.DATA_MAX_BYTES // 2))
    throttle = t.throttle(b"t")
    for number in range(100):
        name = b"%d" % number + bytes(q.NAME_MAX_BYTES - 2)
        t.queue(name)
        t.groups[name] = Scores()
        for scores in (t.workers, throttle.locks):
            scores.add(name, 1.0)
    for code, arguments in asked:
        assert cost_of(t, code, 9.0, arguments) > LIGHT_MAX
    assert cost_of(t, q.EDIT_PATTERNS, 9.0, (0, True, ())) == 1
    assert cost_of(t, q.PATTERNS, 9.0, (1,)) == 1


def test_more_groups_than_a_list_may_have_are_not_looked_at_for_the_estimate() -> None:
    """Only jobs bound their number; 300,000 took 24 ms, for a call that is refused."""

    class Unread(dict[bytes, Scores]):
        def __iter__(self) -> Iterator[bytes]:
            raise AssertionError("the names are looked at")

    world = Qless()
    world.t.groups = Unread({b"%d" % number: Scores() for number in range(GROUPS_LOOKED_MAX + 1)})
    assert cost_of(world.t, q.FAILED_GROUPS, 9.0, ()) == DEAR


def test_few_lines_ask_for_few_large_lists_at_a_time() -> None:
    """The node cannot know yet how large the patterns are when it is asked for them."""
    scene = Scene(client_output_bytes_max=8 * q.DATA_MAX_BYTES)
    client = scene.connect()
    edit = array(b"HSET", b"qmore:dynamic", b"x", bytes(100_000))
    assert client.send(edit + array(b"HGETALL", b"qmore:dynamic") * 50) == b""
    assert client.connection._replies.pending == 1 + 8
    scene.commit_own()
    assert client.port.take().count(b"*2\r\n$1\r\nx\r\n$100000\r\n") == 50
