"""A client whose token is refused on a later connection reports what was done before."""

from collections.abc import Callable

import pytest

from beanpole.client.sansio import batches, faults
from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.steps import Endpoint, Steps
from beanpole.protocol.beanstalk import replies, stats
from tests.unit.client.pretended import World, server

A, B = Endpoint("a", 1), Endpoint("b", 1)
USERS = replies.ok(stats.format_list([b"auth", b"put-unique"]))
NO_USERS = replies.ok(stats.format_list([b"put-unique"]))
REFUSALS = [[USERS, b"DENIED\r\n"], [NO_USERS]]


def refused_later(refusal: list[bytes], answer: bytes) -> tuple[World, Commands[str]]:
    """Return a client whose nodes take its token once; `answer` ends the first connection."""
    said = [USERS, b"ACCEPTED\r\n", answer, *refusal]
    here = World()
    here.nodes = dict.fromkeys((A, B), lambda _: said.pop(0))
    client = here.client("a:1,b:1", token=b"secret")
    here.run(client.connect())
    return here, client


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_batch_says_what_was_done_before_the_refusal(refusal: list[bytes]) -> None:
    here, client = refused_later(refusal, b"DELETED\r\n")
    with pytest.raises(faults.BatchError) as caught:
        here.run(batches.delete_many(client, [1, 2, 3]))
    first, *others = caught.value.results
    assert first is True
    assert [type(one) for one in others] == [faults.MayBeDoneError] * 2


@pytest.mark.parametrize("refusal", REFUSALS)
def test_the_ids_of_puts_are_told_though_the_next_node_refuses(refusal: list[bytes]) -> None:
    here, client = refused_later(refusal, b"INSERTED 7\r\nDRAINING\r\n")
    with pytest.raises(faults.BatchError) as caught:
        here.run(batches.put_many(client, ["x", "y"], 1, 0, 60))
    first, other = caught.value.results
    assert (first, type(other)) == (7, faults.DrainingError)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_delete_that_was_sent_may_be_done(refusal: list[bytes]) -> None:
    here, client = refused_later(refusal, b"")
    client.session.held[7] = None
    with pytest.raises(faults.MayBeDoneError) as caught:
        here.run(client.delete(7))
    assert not client.session.held, "a later connection must not tell it as lost"
    assert isinstance(caught.value.__cause__, faults.DeniedError | faults.NotAvailableError)


def test_a_put_with_a_key_that_was_sent_may_be_done() -> None:
    here, client = refused_later([USERS, b"DENIED\r\n"], b"")
    client.session._words = frozenset({b"put-unique"})  # this connection's were asked before
    with pytest.raises(faults.MayBeDoneError):
        here.run(client.put("x", 1, 0, 60, "key"))


WORDS = [b"DRAINING\r\n", b"INTERNAL_ERROR\r\n", b"OUT_OF_MEMORY\r\n", b"DENIED\r\n"]
WORDS += [b"JOB_TOO_BIG\r\n"]


@pytest.mark.parametrize("word", WORDS)
def test_a_repetition_that_is_refused_tells_nothing_of_the_first_attempt(word: bytes) -> None:
    asks: list[Callable[[Commands[str]], Steps[object]]] = [
        lambda client: client.delete(7),
        lambda client: client.release(7, 1, 0),
        lambda client: client.bury(7, 1),
        lambda client: client.kick_job(7),
        lambda client: client.put("x", 1, 0, 60, "key"),
    ]
    for ask in asks:
        for first, error in ((b"", faults.MayBeDoneError), (word, faults.BeanstalkdError)):
            here = World()
            refuses = server({b"extensions": NO_USERS, **dict.fromkeys(COMMANDS, word)})
            here.nodes = {A: lambda data, first=first: first, B: refuses}  # type: ignore[misc]
            client = here.client("a:1,b:1")
            here.run(client.connect())
            client.session._words = frozenset({b"put-unique"})
            with pytest.raises(error):
                here.run(ask(client))


COMMANDS = [b"delete", b"release", b"bury", b"kick-job", b"put-unique"]


def test_a_put_that_was_sent_may_be_done_although_no_other_node_is_left() -> None:
    here = World()

    def stops(data: bytes) -> bytes | None:
        here.nodes[A] = lambda _: b""
        return {b"ext": NO_USERS, b"put": b"DRAINING\r\n"}[data[:3]]

    here.nodes = {A: lambda data: NO_USERS if data.startswith(b"ext") else b"", B: stops}
    with pytest.raises(faults.MayBeDoneError):
        here.run(here.client("a:1,b:1").put("x", 1, 0, 60, "key"))


def test_a_job_whose_end_is_refused_the_second_time_is_still_held() -> None:
    keeps = {b"extensions": replies.ok(stats.format_list([b"keep", b"resume"]))}
    begins = {b"keep": b"KEPT\r\n", b"reserve-with-timeout": b"RESERVED 7 1\r\nx\r\n"}
    goes_on = {b"resume": b"RESUMED 1\r\n7\r\n", b"delete": b"INTERNAL_ERROR\r\n"}
    here = World()
    here.nodes = {
        A: server({**keeps, **begins, b"delete": b""}),
        B: server({**keeps, **goes_on}),
    }
    client = here.client("a:1,b:1")
    client.session._keep_s = 60
    here.run(client.reserve(0))
    with pytest.raises(faults.MayBeDoneError):
        here.run(client.delete(7))
    assert list(client.session.held) == [7]


def test_deletes_of_a_batch_that_are_refused_the_second_time_are_open() -> None:
    here = World()
    here.nodes = {
        A: lambda _: b"DELETED\r\nINTERNAL_ERROR\r\n",
        B: server({b"delete": b"INTERNAL_ERROR\r\n"}),
    }
    with pytest.raises(faults.BatchError) as caught:
        here.run(batches.delete_many(here.client("a:1,b:1"), [1, 2, 3]))
    first, second, third = caught.value.results
    assert first is True
    assert type(second) is faults.InternalError, "its only attempt"
    assert isinstance(third, faults.MayBeDoneError)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_wait_is_refused_as_such(refusal: list[bytes]) -> None:
    """A reserve is not done twice, so the refusal itself says more."""
    here, client = refused_later(refusal, b"")
    with pytest.raises((faults.DeniedError, faults.NotAvailableError)):
        here.run(client.reserve(5))
