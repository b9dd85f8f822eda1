"""A client while nodes come and go, without sockets."""

from typing import Any

import pytest

from beanpole.client.patience import CONNECT_TIMEOUT_S
from beanpole.client.sansio import batches, faults
from beanpole.client.sansio.nodes import RETURN_MAX_S, endpoints_of
from beanpole.client.sansio.session import TRIES_MAX
from beanpole.client.sansio.steps import Endpoint
from tests.unit.client.pretended import World, server

A, B, C = (Endpoint(name, 1) for name in "abc")
PLAIN = server(
    {
        b"use": b"USING t\r\n",
        b"watch": b"WATCHING 2\r\n",
        b"ignore": b"WATCHING 1\r\n",
        b"put": b"INSERTED 7\r\n",
        b"reserve-with-timeout": b"RESERVED 7 1\r\nx\r\n",
        b"delete": b"DELETED\r\n",
        b"touch": b"TOUCHED\r\n",
        b"list-tube-used": b"USING t\r\n",
    }
)


def closing(word: bytes) -> object:
    """Return a node like PLAIN that closes the connection in place of one reply."""
    return lambda data: b"" if data.startswith(word) else PLAIN(data)


def world(**nodes: object) -> World:
    found = World()
    found.nodes = {Endpoint(name, 1): node for name, node in nodes.items()}  # type: ignore[misc]
    return found


def test_addresses() -> None:
    assert endpoints_of(("h", 1)) == endpoints_of(("h", "1")) == [Endpoint("h", 1)]
    assert endpoints_of(["h:1", "2"]) == [Endpoint("h", 1), Endpoint("2", 0)]
    assert endpoints_of("h:1,g:2") == [Endpoint("h", 1), Endpoint("g", 2)]
    assert endpoints_of(("h:1", "g:2")) == [Endpoint("h", 1), Endpoint("g", 2)]
    assert endpoints_of([("h", 1), "g:2", "h:1"]) == [Endpoint("h", 1), Endpoint("g", 2)]
    assert endpoints_of("/run/socket") == endpoints_of("unix:/run/socket")
    assert endpoints_of(["/run/socket"]) == [Endpoint("/run/socket", 0)]
    with pytest.raises(ValueError, match="needs an address"):
        endpoints_of([])


def test_tubes_are_restored() -> None:
    here = world(a=PLAIN, b=PLAIN)
    client = here.client("a:1,b:1")
    here.run(client.use("t"))
    here.run(client.watch("t"))
    here.run(client.ignore("default"))
    del here.nodes[A]
    here.run(client.put("x", 1, 0, 60, None))
    assert here.said[-2:] == [
        (B, b"use t\r\nwatch t\r\nignore default\r\n"),
        (B, b"put 1 0 60 1\r\nx\r\n"),
    ]


@pytest.mark.parametrize(("use", "watch"), [("a b", ["t"]), ("t", ["u", "-x"]), ("", ["t"])])
def test_a_wrong_name_of_a_tube_is_no_lost_node(use: str, watch: list[str]) -> None:
    client = world(a=PLAIN).client("a:1")
    with pytest.raises(faults.BadFormatError):
        client.set_tubes(use, watch)


@pytest.mark.parametrize("body", [bytearray(b"x"), memoryview(b"x")])
def test_bytes_of_another_type_are_a_body(body: Any) -> None:
    assert world(a=PLAIN).client("a:1").encoded(body) == b"x"


@pytest.mark.parametrize("body", [5, [1, 2], None])
def test_other_values_are_no_body(body: Any) -> None:
    with pytest.raises(TypeError):
        world(a=PLAIN).client("a:1").encoded(body)


def test_a_closed_client_connects_only_when_it_is_asked_to() -> None:
    here = world(a=PLAIN)
    client = here.client("a:1")
    here.run(client.put("x", 1, 0, 60, None))
    here.run(client.session.quit())
    for command in (client.put("x", 1, 0, 60, None), client.reserve(0), client.delete(7)):
        with pytest.raises(faults.ClosedError, match="the client is closed"):
            here.run(command)
    assert len(here.said) == 1
    here.run(client.connect())
    here.run(client.put("x", 1, 0, 60, None))
    assert len(here.said) == 2


def test_a_client_that_is_closed_during_a_command_does_not_repeat_it() -> None:
    here = world()
    client = here.client("a:1,b:1")

    def close(_: bytes) -> bytes:
        client.session.shut()
        return b""

    here.nodes = {A: close, B: PLAIN}
    with pytest.raises(faults.MayBeDoneError, match="the client is closed"):
        here.run(client.delete(7))
    assert here.said == [(A, b"delete 7\r\n")]


def test_a_client_that_is_closed_while_it_connects_leaves_no_connection() -> None:
    here = world()
    client = here.client("a:1,b:1")
    client.set_tubes("t", ["default"])

    def close(data: bytes) -> bytes | None:
        client.session.shut()
        return PLAIN(data)

    here.nodes = {A: close, B: PLAIN}
    with pytest.raises(faults.ClosedError, match="the client is closed"):
        here.run(client.put("x", 1, 0, 60, None))
    assert here.said == [(A, b"use t\r\n")], "the put is not sent"
    assert (here.at, client.session.at) == (None, None)


def test_a_put_whose_reply_is_lost_is_not_repeated() -> None:
    here = world(a=closing(b"put"), b=PLAIN)
    client = here.client("a:1,b:1")
    with pytest.raises(faults.MayBeDoneError, match="may have been done: a:1"):
        here.run(client.put("x", 1, 0, 60, None))
    assert [data for _, data in here.said] == [b"put 1 0 60 1\r\nx\r\n"]
    assert issubclass(faults.MayBeDoneError, ConnectionError)


def test_a_node_that_closed_the_idle_connection_is_left_before_a_put() -> None:
    here = world(a=PLAIN, b=PLAIN)
    client = here.client("a:1,b:1")
    here.run(client.connect())
    del here.nodes[A]
    assert here.run(client.put("x", 1, 0, 60, None)) == 7
    assert here.said == [(B, b"put 1 0 60 1\r\nx\r\n")]


def test_a_reserve_is_repeated_elsewhere() -> None:
    here = world(a=closing(b"reserve"), b=PLAIN)
    client = here.client("a:1,b:1")
    assert here.run(client.reserve(5)).id == 7
    assert client.session.at == B
    assert list(client.session.held) == [7]


@pytest.mark.parametrize("found", [True, False])
def test_a_delete_is_repeated_and_says_when_it_cannot_know(found: bool) -> None:
    here = world(
        a=closing(b"delete"),
        b=server({b"delete": b"DELETED\r\n" if found else b"NOT_FOUND\r\n"}),
    )
    client = here.client("a:1,b:1")
    if found:
        here.run(client.delete(7))
    else:
        with pytest.raises(faults.MayBeDoneError):
            here.run(client.delete(7))
        with pytest.raises(faults.NotFoundError):
            here.run(client.delete(7))
    assert here.said[:2] == [(A, b"delete 7\r\n"), (B, b"delete 7\r\n")]


def test_a_job_that_is_buried_again_before_the_repetition_is_kicked_again() -> None:
    """docs/clients.md says so: for one job that is better than an outcome which is unknown."""
    state = ["buried"]

    def kick(data: bytes) -> bytes:
        return b"KICKED\r\n" if state.pop() == "buried" else b"NOT_FOUND\r\n"

    def kick_in_silence(data: bytes) -> bytes:
        kick(data)
        state.append("buried")  # a worker has reserved it, and buried it
        return b""

    here = world(a=kick_in_silence, b=kick)
    here.run(here.client("a:1,b:1").kick_job(7))
    assert here.said == [(A, b"kick-job 7\r\n"), (B, b"kick-job 7\r\n")]
    assert state == []


def test_a_job_that_a_lost_connection_may_hold_is_not_said_to_be_missing() -> None:
    here = world(a=closing(b"reserve-job"), b=server({b"reserve-job": b"NOT_FOUND\r\n"}))
    client = here.client("a:1,b:1")
    with pytest.raises(faults.MayBeDoneError):
        here.run(client.reserve_job(7))
    with pytest.raises(faults.NotFoundError):
        here.run(client.reserve_job(7))
    assert not client.session.held
    assert here.said == [(A, b"reserve-job 7\r\n"), *[(B, b"reserve-job 7\r\n")] * 2]


def test_lost_reservations_are_told() -> None:
    here = world(a=PLAIN, b=server({b"touch": b"NOT_FOUND\r\n"}))
    client = here.client("a:1,b:1")
    told: list[list[int]] = []
    client.session.lost = lambda jobs: told.append(list(jobs))
    here.run(client.reserve(0))
    del here.nodes[A]
    with pytest.raises(faults.NotFoundError):
        here.run(client.touch(7))
    assert told == [[7]]
    assert not client.session.held


def test_a_deleted_job_is_not_told_as_lost() -> None:
    here = world(a=closing(b"delete"), b=PLAIN)
    client = here.client("a:1,b:1")
    told: list[object] = []
    client.session.lost = told.append
    here.run(client.reserve(0))
    here.run(client.delete(7))
    assert told == []


def test_a_silent_node_is_left_after_the_reply_timeout() -> None:
    here = world(a=server({}), b=PLAIN)
    client = here.client("a:1,b:1")
    assert here.run(client.using()) == "t"
    assert 15 <= here.now < 16
    assert client.session.at == B


def test_a_node_that_refuses_puts_is_left_unless_jobs_would_be_lost() -> None:
    drains = server({b"put": b"DRAINING\r\n", b"reserve-with-timeout": b"RESERVED 7 1\r\nx\r\n"})
    here = world(a=drains, b=PLAIN)
    client = here.client("a:1,b:1")
    assert here.run(client.put("x", 1, 0, 60, None)) == 7
    other = here.client("a:1,b:1")
    here.run(other.reserve(0))
    with pytest.raises(faults.DrainingError):
        here.run(other.put("x", 1, 0, 60, None))
    assert other.session.at == A


DRAINS = server({b"put": b"DRAINING\r\n"})


def test_all_nodes_refuse_puts() -> None:
    here = world(a=DRAINS, b=DRAINS, c=DRAINS)
    client = here.client("a:1,b:1,c:1")
    with pytest.raises(faults.DrainingError):
        here.run(client.put("x", 1, 0, 60, None))
    assert [place for place, _ in here.said] == [A, B, C]
    here.nodes[B] = PLAIN
    assert here.run(client.put("x", 1, 0, 60, None)) == 7


def test_a_put_finds_the_only_node_that_takes_it() -> None:
    here = world(a=DRAINS, c=DRAINS, d=PLAIN)
    nodes = "a:1,b:1,c:1,d:1"  # nothing listens at b
    assert here.run(here.client(nodes).put("x", 1, 0, 60, None)) == 7
    assert here.run(batches.put_many(here.client(nodes), ["x"], 1, 0, 60)) == [7]
    assert [place.host for place, _ in here.said] == ["a", "c", "d"] * 2
    assert here.now == 0, "and without a pause"


def test_a_put_is_refused_where_the_other_nodes_do_not_answer() -> None:
    here = world(a=DRAINS)
    client = here.client("a:1,b:1,c:1")
    with pytest.raises(faults.DrainingError):
        here.run(client.put("x", 1, 0, 60, None))
    assert len(here.said) == 1
    here.nodes[A] = PLAIN
    assert here.run(client.put("x", 1, 0, 60, None)) == 7


def test_no_node_answers() -> None:
    here = world()
    with pytest.raises(faults.NoNodeError, match=r"a:1: refused; b:1: refused"):
        here.run(here.client("a:1,b:1").connect())
    assert 10 <= here.now < 12


def test_going_home() -> None:
    """A client returns to its first node, but not while it holds a job."""
    here = world(b=PLAIN)
    client = here.client("a:1,b:1")
    here.run(client.reserve(0))
    assert client.session.at == B
    here.nodes[A] = PLAIN
    here.now += RETURN_MAX_S
    here.run(client.touch(7))
    assert client.session.at == B
    here.run(client.delete(7))
    here.run(client.using())
    assert client.session.at == A
    del here.nodes[A]
    here.run(client.using())
    assert client.session.at == B
    here.nodes[A] = PLAIN
    here.run(client.using())
    assert client.session.at == B, "not at once: the node may fail again"


@pytest.mark.parametrize("reply", [None, b"", b"OUT_OF_MEMORY\r\n"])
def test_a_node_that_does_not_answer_is_no_home(reply: bytes | None) -> None:
    """The kernel accepts connections for a node that hangs."""
    here = world(b=PLAIN)
    client = here.client("a:1,b:1")
    here.run(client.put("x", 1, 0, 60, None))
    here.nodes[A] = lambda _: reply
    for _ in range(3):
        here.now += RETURN_MAX_S
        before = here.now
        assert here.run(client.put("x", 1, 0, 60, None)) == 7
        assert client.session.at == B
        assert here.now - before <= CONNECT_TIMEOUT_S
    here.nodes[A] = PLAIN
    here.now += RETURN_MAX_S
    here.run(client.using())
    assert client.session.at == A


def test_a_name_with_several_addresses() -> None:
    here = world(b=PLAIN)
    here.names["queue"] = [A, B, C]
    client = here.client(("queue", 1))
    assert here.run(client.using()) == "t"
    here.nodes = {C: PLAIN}
    here.names["queue"] = [C]
    assert here.run(client.using()) == "t"
    assert client.session.at == C


def test_clients_spread_over_the_nodes() -> None:
    here = world(a=PLAIN, b=PLAIN, c=PLAIN)
    homes = set()
    for _ in range(200):
        client = here.client("a:1,b:1,c:1", spread=True)
        here.run(client.connect())
        homes.add(client.session.at)
    assert homes == {A, B, C}


def test_a_long_wait_is_asked_in_slices() -> None:
    waits: list[bytes] = []

    def answer(data: bytes) -> bytes:
        waits.append(data)
        here.now += int(data.split()[1])
        return b"TIMED_OUT\r\n"

    here = world(a=answer)
    with pytest.raises(faults.TimedOutError):
        here.run(here.client("a:1").reserve(70))
    assert [int(one.split()[1]) for one in waits] == [30, 30, 10]


def test_fractions_are_cut_as_in_greenstalk() -> None:
    here = world(
        a=server(
            {
                b"reserve-with-timeout": b"TIMED_OUT\r\n",
                b"put": b"INSERTED 7\r\n",
                b"release": b"RELEASED\r\n",
                b"bury": b"BURIED\r\n",
                b"kick": b"KICKED 1\r\n",
                b"pause-tube": b"PAUSED\r\n",
            }
        )
    )
    client = here.client("a:1")
    half: int = 1.5  # type: ignore[assignment]
    for command in (
        client.put("x", half, half, half, None),
        batches.put_many(client, ["x"], half, half, half),
        client.release(7, half, half),
        client.bury(7, half),
        client.kick(half),
        client.pause_tube("t", half),
    ):
        here.run(command)
    with pytest.raises(faults.TimedOutError):
        here.run(client.reserve(0.9))  # type: ignore[arg-type]
    assert [data for _, data in here.said] == [
        b"put 1 1 1 1\r\nx\r\n",
        b"put 1 1 1 1\r\nx\r\n",
        b"release 7 1 1\r\n",
        b"bury 7 1\r\n",
        b"kick 1\r\n",
        b"pause-tube t 1\r\n",
        b"reserve-with-timeout 0\r\n",
    ], "and one reserve is enough"


def test_a_wait_whose_node_is_lost_ends_when_it_would_have_ended() -> None:
    waits: list[int] = []

    def dies(data: bytes) -> bytes:
        waits.append(int(data.split()[1]))
        here.now += 25
        return b""

    def waits_on(data: bytes) -> bytes:
        waits.append(int(data.split()[1]))
        here.now += waits[-1]
        return b"TIMED_OUT\r\n"

    here = world(a=dies, b=waits_on)
    with pytest.raises(faults.TimedOutError):
        here.run(here.client("a:1,b:1").reserve(30))
    assert waits == [30, 5]


def test_a_wait_without_end_outlives_any_number_of_its_nodes() -> None:
    answers = [b"", b"TIMED_OUT\r\n"] * TRIES_MAX + [b"RESERVED 7 1\r\nx\r\n"]
    here = world(a=lambda _: answers.pop(0))
    assert here.run(here.client("a:1").reserve(None)).id == 7
    here = world(a=closing(b"reserve"))
    with pytest.raises(faults.MayBeDoneError):
        here.run(here.client("a:1").reserve(None))
    assert len(here.said) == TRIES_MAX, "but a node that always closes is not asked for ever"


def test_an_interrupted_command_gives_its_connection_up() -> None:
    here = world(a=PLAIN)
    client = here.client("a:1")
    here.run(client.reserve(0))
    steps = client.reserve(5)
    here.do(next(steps))
    steps.send(False)  # the connection is up: it sends
    steps.close()
    assert client.session.at is None
    assert not client.session.held


def test_a_reply_of_another_command() -> None:
    here = world(a=server({b"delete": b"USING t\r\n"}))
    with pytest.raises(faults.UnknownResponseError) as caught:
        here.run(here.client("a:1").delete(7))
    assert (caught.value.status, caught.value.values) == (b"USING", [b"t"])
