"""Clients that wait for a queue whose delivery rate is spent, and the hints of puts into it."""

import pytest

from beanpole import commands as c
from beanpole.core.jobs.policies import DROP_OLDEST, Policy
from beanpoled.leading.dispatching import Dispatcher
from beanpoled.leading.waiting import Waiter
from tests.unit.node.stage import Port, Stage

SECOND = 1_000_000
PUT = b"put 0 0 60 1\r\nx\r\n"


@pytest.fixture
def stage() -> Stage:
    """Return a leader at version 4; n1 is up with session 1 and 2 as its next batch number."""
    stage = Stage()
    stage.lead()
    stage.come_up()
    stage.batch("n1", 1, (c.OPEN, 1), first=True)
    stage.commit()
    stage.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 3), (c.RAISE, 4))))
    return stage


def set_policy(stage: Stage, policy: Policy, pattern: bytes = b"default") -> None:
    """Set a policy as the session of the other node."""
    stage.batch("n1", 2, (c.SET_POLICY, 1, pattern, *policy))
    stage.commit()
    assert stage.node.context.machine.queue.policies.rows == {pattern: policy}


def commit(stage: Stage) -> None:
    """Process everything that does not need time to pass."""
    for _ in range(6):
        stage.run()
        stage.commit()
        confirmations, stage.replica.confirmations = stage.replica.confirmations, []
        for done in confirmations:
            done()


def answer(stage: Stage, port: Port) -> bytes:
    commit(stage)
    return port.take()


def test_who_waits_gets_a_job_when_there_is_a_token_again(stage: Stage) -> None:
    set_policy(stage, Policy(rate=1, rate_period_us=10 * SECOND))
    _, producer = stage.client(PUT * 3)
    _, first = stage.client(b"reserve\r\n")
    _, second = stage.client(b"reserve\r\n")
    commit(stage)
    assert producer.take().count(b"INSERTED") == 3
    got = [answer(stage, first), answer(stage, second)]
    assert sorted(got) == [b"", b"RESERVED 1 1\r\nx\r\n"]
    waiting = second if got[0] else first
    assert not [one for one in stage.proposed() if one[0] == c.GRANT]
    stage.pass_us(9 * SECOND)
    assert answer(stage, waiting) == b""
    stage.pass_us(2 * SECOND)
    assert answer(stage, waiting) == b"RESERVED 2 1\r\nx\r\n"


def test_there_is_no_job_where_none_may_be_given_out(stage: Stage) -> None:
    set_policy(stage, Policy(rate=1, rate_period_us=10 * SECOND))
    stage.client(PUT * 3)
    connection, port = stage.client(b"reserve-with-timeout 0\r\n" * 3)
    commit(stage)
    commit(stage)
    assert port.take() == b"RESERVED 1 1\r\nx\r\n" + b"TIMED_OUT\r\n" * 2
    # A wait that ends as the token arrives gets the job.
    connection.received(b"reserve-with-timeout 10\r\n")
    stage.pass_us(9 * SECOND)
    assert answer(stage, port) == b""
    stage.pass_us(2 * SECOND)
    assert answer(stage, port) == b"RESERVED 2 1\r\nx\r\n"


def test_a_put_finds_no_waiter_for_a_closed_queue(stage: Stage) -> None:
    """Otherwise each put would write a GRANT without effect to the log."""
    set_policy(stage, Policy(rate=1, rate_period_us=10 * SECOND))
    stage.client(PUT)
    _, port = stage.client(b"reserve\r\n")
    assert answer(stage, port)
    _, waiting = stage.client(b"reserve\r\n")
    commit(stage)
    stage.client(PUT)
    assert not [one for one in stage.proposed() if one[0] == c.GRANT]
    assert answer(stage, waiting) == b""


@pytest.mark.constants
@pytest.mark.parametrize("puts_first", [True, False])
def test_a_token_is_given_to_one_waiter(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, puts_first: bool
) -> None:
    """Otherwise each token would write a GRANT for each waiter to the log."""
    grants: list[bytes] = []
    grant = Dispatcher._grant

    def noted(self: Dispatcher, waiter: Waiter, tube: bytes, is_ready: bool) -> c.Command:
        grants.append(tube)
        return grant(self, waiter, tube, is_ready)

    monkeypatch.setattr(Dispatcher, "_grant", noted)
    set_policy(stage, Policy(rate=2, rate_period_us=10 * SECOND))
    if puts_first:
        stage.client(PUT * 40)
    ports = [stage.client(b"reserve\r\n")[1] for _ in range(20)]
    if not puts_first:
        commit(stage)
        stage.client(PUT * 40)
    commit(stage)
    assert (len(grants), sum(bool(port.take()) for port in ports)) == (2, 2)
    stage.pass_us(6 * SECOND)
    commit(stage)
    assert (len(grants), sum(bool(port.take()) for port in ports)) == (3, 1)


def test_a_full_queue_is_out_of_memory(stage: Stage) -> None:
    set_policy(stage, Policy(jobs_max=1))
    _, port = stage.client(PUT + PUT + b"use other\r\n" + PUT)
    told = answer(stage, port)
    assert told == b"INSERTED 1\r\nOUT_OF_MEMORY\r\nUSING other\r\nINSERTED 2\r\n"


def test_a_put_into_a_full_queue_that_drops_and_one_that_knows_the_body(stage: Stage) -> None:
    rules = Policy(jobs_max=1, when_full=DROP_OLDEST, unique_window_us=10 * SECOND)
    set_policy(stage, rules)
    other = PUT.replace(b"x", b"y")
    _, port = stage.client(PUT + PUT + other + PUT + b"peek 1\r\n")
    told = answer(stage, port)
    assert told == b"INSERTED 1\r\nINSERTED 1\r\nINSERTED 2\r\nINSERTED 1\r\nNOT_FOUND\r\n"
    _, keyed = stage.client(b"put-unique key 0 0 0 1\r\ny\r\n" * 2)
    assert answer(stage, keyed) == b"EXISTS 2\r\n" * 2


@pytest.mark.parametrize(("ttr_s", "given", "shown"), [(0, 0, 1), (300, 0, 300), (300, 5, 5)])
def test_a_ttr_of_zero_is_that_of_the_queue(
    stage: Stage, ttr_s: int, given: int, shown: int
) -> None:
    set_policy(stage, Policy(ttr_s=ttr_s))
    _, port = stage.client(b"put 0 0 %d 1\r\nx\r\nstats-job 1\r\n" % given)
    assert b"ttr: %d\n" % shown in answer(stage, port)


def test_below_the_version_of_policies_a_ttr_of_zero_is_one_second() -> None:
    stage = Stage()
    stage.lead()
    stage.come_up()
    _, port = stage.client(b"put 0 0 0 1\r\nx\r\nstats-job 1\r\n")
    assert b"ttr: 1\n" in answer(stage, port)
