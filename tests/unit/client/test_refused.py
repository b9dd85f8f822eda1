"""A client whose token is refused on a later connection reports what was done before."""

import pytest

from beanpole.client.sansio import batches, faults
from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.steps import Endpoint
from beanpole.protocol.beanstalk import replies, stats
from tests.unit.client.pretended import World

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
    with pytest.raises(faults.MayBeDoneError) as caught:
        here.run(client.delete(7))
    assert isinstance(caught.value.__cause__, faults.DeniedError | faults.NotAvailableError)


def test_a_put_with_a_key_that_was_sent_may_be_done() -> None:
    here, client = refused_later([USERS, b"DENIED\r\n"], b"")
    client.session._words = frozenset({b"put-unique"})  # this connection's were asked before
    with pytest.raises(faults.MayBeDoneError):
        here.run(client.put("x", 1, 0, 60, "key"))


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_wait_is_refused_as_such(refusal: list[bytes]) -> None:
    """A reserve is not done twice, so the refusal itself says more."""
    here, client = refused_later(refusal, b"")
    with pytest.raises((faults.DeniedError, faults.NotAvailableError)):
        here.run(client.reserve(5))
