"""Short histories are linearizable (Q11), and the check refuses those that are not.

LINEAR_SEEDS is the number of lives, LINEAR_FIRST the first seed. A failure names its replay.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from beanpole.core.jobs import moving
from beanpole.core.jobs.job import READY, Job
from beanpole.core.operations import administering
from beanpole.protocol.beanstalk import replies
from beanpole.protocol.beanstalk import requests as r
from beanpole.replication.pysyncobj.backend import PySyncObjReplica
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from beanpoled.frontends.beanstalk import connection as beanstalk
from beanpoled.frontends.beanstalk.connection import BeanstalkConnection
from beanpoled.origin.batches import Wait
from beanpoled.origin.outbox import Origin
from tests.shares import one_in
from tests.sim.history import Op
from tests.sim.linear import Few, Life, Tally, replay, translate
from tests.sim.linear_check import GAVE_UP, LINEARIZABLE, REFUSED, Verdict, check
from tests.sim.linear_model import Answer, Call
from tests.sim.replays import outputs
from tests.sim.storm import QUICK
from tests.sim.world import World

FIRST = int(os.environ.get("LINEAR_FIRST", "1"))
COUNT = int(os.environ.get("LINEAR_SEEDS", "80"))
LIVES_AT_ONCE = 20
ANY_JOB = ("reserve-with-timeout", 0)


@pytest.mark.parametrize("first", one_in(4, range(FIRST, FIRST + COUNT, LIVES_AT_ONCE)))
def test_small_histories_are_linearizable(first: int) -> None:
    """No search may give up with these seeds, so that all of them are checked."""
    tally = Tally()
    for seed in range(first, min(first + LIVES_AT_ONCE, FIRST + COUNT)):
        tally.live(seed)
    told = "\n".join(f"{story}\nreplay it: {replay(seed)}" for seed, story in tally.failures)
    assert not tally.failures, told
    assert tally.counts[LINEARIZABLE] == tally.counts.total() > 0, str(tally)


def test_a_seed_is_the_same_life_each_time() -> None:
    found = outputs("tests.sim.linear", 5)
    life = Life(5)
    assert life.run().word == LINEARIZABLE
    assert found[0] == found[1]
    assert life.digest() in found[0]


# --- histories by hand ----------------------------------------------------------------------------


class Hand:
    """A history of answered and unanswered commands, one after the other by default."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.ended: set[int] = set()
        self.now_s = 0.0

    def do(self, session: int, kind: str, *args: int, **items: Any) -> None:
        """Add a command; `word` and `number` are its answer, `at_s` and `done_s` its times."""
        word, number = items.pop("word", b""), items.pop("number", 0)
        facts, body = items.pop("facts", ()), items.pop("body", b"")
        self.now_s += 1
        times = {"at_s": self.now_s, "done_s": self.now_s + 0.5 if word else float("inf")} | items
        put = kind == "put"
        answer = Answer(word, number, b"" if put else body, facts) if word else None
        call = Call(session, kind, args, answer=answer, body=body if put else b"", **times)
        self.calls.append(call)

    def put(self, session: int, number: int, priority: int = 0, **items: Any) -> None:
        """Add a put of a job whose body is its id."""
        items = {"word": b"INSERTED", "number": number} | items
        self.do(session, "put", priority, 0, body=b"%d" % number, **items)

    def get(self, session: int, number: int, **items: Any) -> None:
        """Add a reserve that gets a job; 0: it times out."""
        if number:
            answer = {"word": b"RESERVED", "number": number, "body": b"%d" % number}
        else:
            answer = {"word": b"TIMED_OUT"}
        self.do(session, "reserve", **answer, **items)

    def delete(self, session: int, number: int, word: bytes = b"DELETED", **items: Any) -> None:
        """Add a delete."""
        self.do(session, "delete", number, word=word, **items)

    def verdict(self, limit: int = 10_000) -> Verdict:
        """Return the verdict of the check."""
        return check(self.calls, frozenset(self.ended), limit=limit)


def good() -> Hand:
    """Return a history with much that looks wrong and is not."""
    hand = Hand()
    hand.put(1, 1)
    hand.put(1, 2, priority=1)
    hand.get(2, 1)
    hand.put(1, 3, word=b"")  # no answer, but done later
    hand.ended |= {1, 2}
    hand.get(3, 2)
    hand.get(3, 0)
    hand.get(3, 3)
    hand.get(4, 1)  # session 2 has ended
    hand.do(3, "bury", 3, 0, word=b"BURIED")
    hand.delete(3, 2, at_s=20.0, done_s=25.0)
    hand.delete(5, 2, b"NOT_FOUND", at_s=21.0, done_s=22.0)  # it came before, or after
    hand.now_s = 30.0
    hand.do(5, "kick", 5, word=b"KICKED", number=1)
    hand.do(5, "peek", 3, word=b"FOUND", number=3, body=b"3")
    hand.delete(4, 1)
    hand.do(5, "stats-tube", word=b"OK", facts=(1, 0, 0, 0))
    return hand


def stale_none(hand: Hand) -> None:
    hand.get(6, 0)


def delivered_twice(hand: Hand) -> None:
    hand.get(6, 3)
    hand.get(7, 3)


def lost_put(hand: Hand) -> None:
    hand.put(6, 4, priority=9)
    hand.get(6, 3)
    hand.get(6, 0)


def deleted_twice(hand: Hand) -> None:
    hand.delete(6, 3)
    hand.delete(7, 3)


def stale_peek(hand: Hand) -> None:
    hand.delete(6, 3)
    hand.do(7, "peek", 3, word=b"FOUND", number=3, body=b"3")


def resurrected(hand: Hand) -> None:
    hand.get(6, 3)
    hand.delete(6, 3)
    hand.get(7, 3)


def invented(hand: Hand) -> None:
    hand.get(6, 9)


def another_body(hand: Hand) -> None:
    hand.do(6, "peek", 3, word=b"FOUND", number=3, body=b"4")


def worse_first(hand: Hand) -> None:
    hand.put(6, 4, priority=1)
    hand.get(6, 4)


def not_the_holder(hand: Hand) -> None:
    hand.get(6, 3)
    hand.do(7, "release", 3, 0, 0, word=b"RELEASED")


def taken_from_a_living_session(hand: Hand) -> None:
    hand.get(6, 3)
    hand.do(6, "touch", 3, word=b"NOT_FOUND")


def kicked_too_few(hand: Hand) -> None:
    hand.get(6, 3)
    hand.do(6, "bury", 3, 0, word=b"BURIED")
    hand.do(7, "kick", 1, word=b"KICKED", number=0)


def wrong_count(hand: Hand) -> None:
    hand.do(6, "stats-tube", word=b"OK", facts=(0, 0, 0, 0))


def early_delay(hand: Hand) -> None:
    at_s = hand.now_s + 1
    hand.do(6, "put", 0, 5, word=b"INSERTED", number=4, body=b"4", ready_s=at_s + 5)
    hand.get(6, 3)
    hand.get(6, 4)


def done_after_its_session_ended(hand: Hand) -> None:
    """A node that was declared down applies nothing more, even if it was sent long before."""
    hand.get(6, 3)
    hand.do(6, "put", 0, 0, body=b"4")
    hand.ended.add(6)
    hand.get(7, 3)
    hand.do(7, "peek", 4, word=b"NOT_FOUND")
    hand.do(7, "peek", 4, word=b"FOUND", number=4, body=b"4")


WRONG = [
    *(stale_none, delivered_twice, lost_put, deleted_twice, stale_peek, resurrected, invented),
    *(another_body, worse_first, not_the_holder, taken_from_a_living_session, kicked_too_few),
    *(wrong_count, early_delay, done_after_its_session_ended),
]


def test_what_may_happen_is_accepted() -> None:
    verdict = good().verdict()
    assert verdict.word == LINEARIZABLE, verdict.story


@pytest.mark.parametrize("spoil", WRONG, ids=lambda spoil: spoil.__name__)
def test_what_may_not_happen_is_refused(spoil: Any) -> None:
    hand = good()
    spoil(hand)
    verdict = hand.verdict()
    assert verdict.word == REFUSED
    assert "one of these should come next" in verdict.story


def test_a_search_that_gives_up_says_so() -> None:
    """Forty unanswered puts allow any order, and no order explains the last answer."""
    hand = Hand()
    for session in range(40):
        hand.put(session, session, word=b"")
    hand.do(99, "stats-tube", word=b"OK", facts=(0, 0, 0, 1))
    verdict = hand.verdict(limit=500)
    assert (verdict.word, verdict.situations) == (GAVE_UP, 501)


# --- mutations of the product ---------------------------------------------------------------------


def refused(seeds: range) -> int:
    """Return the number of refused histories."""
    tally = Tally()
    for seed in seeds:
        tally.live(seed)
    return tally.counts[REFUSED]


def test_a_wait_that_its_origin_ends_by_itself_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_wait(origin: Origin, wait: Wait) -> None:
        if origin._waits._of_session.pop(wait.session, None) is wait:
            wait.client.wait_ended(None)

    monkeypatch.setattr(Origin, "end_wait", end_wait)
    assert refused(range(1, 4)) > 0


def clients_at(world: World, history: list[Op]) -> Iterator[Few]:
    """Yield an idle client at each node in turn."""
    idle = [Few(world, number, history, [], 0) for number in range(24)]
    world.clock.run(2.0)
    for name in world.names:
        yield next(one for one in idle if one.connected and one.connected.node == name)


def a_leader_cut_off(*question: Any) -> tuple[Op, Verdict]:
    """Put a job while the old leader, which does not know it, is asked a question."""
    world = World(3, 3, **QUICK)
    world.turn_s = 0.001
    for name in world.names:
        world.start(name)
    history: list[Op] = []
    world.clock.run(2.0)
    clients = dict(zip(world.names, clients_at(world, history), strict=True))
    for client in clients.values():
        client.send(("stats-tube", b"default"))  # a session begins with its first command
    world.clock.run(1.0)
    old = world.leader()
    assert old is not None
    world.network.detect_s = 30.0
    world.network.isolate(old.name)

    def replaced() -> bool:
        new = world.leader()
        return new is not None and new is not old

    assert world.clock.run_until(replaced, 5.0)
    new = world.leader()
    assert new is not None
    clients[new.name].send(("put", 0, 0, 1000, b"unknown to one"))
    assert world.clock.run_until(lambda: history[-1].reply is not None, 5.0)
    world.clock.run(0.01)
    clients[old.name].send(question)
    world.clock.run(0.3)
    world.network.heal()
    world.clock.run(5.0)
    asked = next(op for op in history if op.kind == question[0])
    calls, ended = translate(history)
    return asked, check(calls, ended)


def test_a_leader_that_was_cut_off_never_says_that_there_is_no_job() -> None:
    asked, verdict = a_leader_cut_off(*ANY_JOB)
    assert asked.word in (b"", b"RESERVED")
    assert verdict.word == LINEARIZABLE, verdict.story
    asked, verdict = a_leader_cut_off("peek", 1)
    assert asked.word in (b"", b"FOUND")
    assert verdict.word == LINEARIZABLE, verdict.story


def test_a_leader_that_asks_nobody_whether_it_leads_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without confirmation by a majority the same schedule produces a stale TIMED_OUT."""
    honest = PySyncObjReplica.__init__
    repairs = ALL_REPAIRS.without("confirm_by_majority").without("check_quorum")

    def alone(replica: PySyncObjReplica, config: Any, callbacks: Any, files: Any, *_: Any) -> None:
        honest(replica, config, callbacks, files, repairs)

    monkeypatch.setattr(PySyncObjReplica, "__init__", alone)
    asked, verdict = a_leader_cut_off(*ANY_JOB)
    assert asked.word == b"TIMED_OUT"
    assert verdict.word == REFUSED


def test_a_peek_that_a_node_answers_by_itself_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node may be outdated, and cut off from the others."""
    honest = BeanstalkConnection._about_job

    def hasty(connection: BeanstalkConnection, request: r.Request) -> None:
        if request[0] != r.PEEK or connection._replies.pending:
            honest(connection, request)
            return
        job = connection._clients.machine.queue.jobs.get(request[1])
        connection._replies.reply(
            replies.NOT_FOUND if job is None else replies.found(job.id, job.body)
        )

    monkeypatch.setitem(beanstalk._HANDLERS, r.PEEK, hasty)
    asked, verdict = a_leader_cut_off("peek", 1)
    assert asked.word == b"NOT_FOUND"
    assert verdict.word == REFUSED


# --- administrators -------------------------------------------------------------------------------


@pytest.mark.long
def test_administrators_change_jobs() -> None:
    done = 0
    for seed in range(1, 21):
        life = Life(seed)
        assert life.run().word == LINEARIZABLE, replay(seed)
        done += life.world.counts["changes by an administrator"]
    assert done > 5


def test_a_move_that_makes_no_buried_job_ready_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administering, "state_after", lambda state, value: state)
    assert refused(range(5, 6)) > 0


def test_a_change_that_takes_a_job_from_its_worker_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = dict.fromkeys(administering.FROM_STATES, (1, 2, 3, 4))
    monkeypatch.setattr(administering, "FROM_STATES", every)
    assert refused(range(1, 9)) > 0


def test_a_rank_that_changes_no_order_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def set_rank(queue: Any, job: Job, rank: int, session: Any, reason: int) -> None:
        if job.state != READY:
            job.rank = rank

    monkeypatch.setattr(moving, "set_rank", set_rank)
    assert refused(range(199, 203)) > 0
