"""Clients with a user's token: sent on each connection, but never to a plain server."""

from contextlib import suppress

import pytest

from beanpole.client.patience import Waits
from beanpole.client.sansio import faults
from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.steps import Endpoint
from beanpole.protocol.beanstalk import replies, stats
from tests.unit.client.pretended import World, server

A, B = Endpoint("a", 1), Endpoint("b", 1)
TOKEN = b"the-token"
WORDS = replies.ok(stats.format_list([b"put-unique", b"keep", b"resume", b"auth"]))
USERS: dict[bytes, bytes | None] = {
    b"extensions": WORDS,
    b"auth": replies.ACCEPTED,
    b"use": b"USING t\r\n",
}


def client(world: World, use: str = "default", token: bytes = TOKEN) -> Commands[str]:
    commands = world.client("a:1,b:1", token=token)
    commands.set_tubes(use, ["default"])
    return commands


def said(world: World) -> list[bytes]:
    return [line for _, data in world.said for line in data.split(b"\r\n") if line]


def test_it_is_said_first_on_each_connection() -> None:
    world = World()
    world.nodes = {A: server(USERS), B: server(USERS)}
    commands = client(world, "t")
    world.run(commands.connect())
    del world.nodes[A]
    world.run(commands.connect())
    once = [b"extensions", b"auth " + TOKEN, b"use t"]
    assert said(world) == once * 2


def test_a_token_that_nobody_has_is_told_at_once() -> None:
    world = World()
    world.nodes = {A: server({**USERS, b"auth": replies.DENIED}), B: server(USERS)}
    with pytest.raises(faults.DeniedError, match="no user has this token"):
        world.run(client(world).connect())
    assert world.now < 1.0


def test_a_tube_that_is_denied_is_told_at_once() -> None:
    world = World()
    world.nodes = {A: server({**USERS, b"use": replies.DENIED})}
    with pytest.raises(faults.DeniedError):
        world.run(client(world, "t").connect())


def test_a_node_that_stands_still_is_given_up_at_its_first_silence() -> None:
    """The kernel accepts connections for it: no command may be sent there, and then be unknown."""
    world = World()
    world.nodes = {A: server({}), B: server(USERS)}
    world.run(client(world, "t").connect())
    assert world.at == B
    assert 2.0 <= world.now < 3.0  # the time-out of a connection, not that of a reply


def test_a_client_that_holds_jobs_does_not_leave_its_node_so_soon() -> None:
    """The jobs would be reserved again for another client."""
    world = World()
    slow: dict[bytes, bytes | None] = {b"reserve-job": b"RESERVED 7 1\r\nx\r\n"}
    world.nodes = {A: server(slow), B: server({**USERS, b"put-unique": b"INSERTED 9\r\n"})}
    commands = client(world, token=b"")
    assert world.run(commands.reserve_job(7)).id == 7
    assert world.run(commands.put("x", 0, 0, 60, "k")) == 9
    assert 15.0 <= world.now < 16.0


def test_the_only_node_has_the_time_of_a_reply_for_the_first_question() -> None:
    world = World()
    commands = world.client("a:1", token=TOKEN)
    users = server(USERS)
    world.nodes = {
        A: lambda data: users(data) if commands.session.waits.reply_s >= 9 else None,
    }
    world.run(commands.connect())
    assert world.now == 0


def test_a_silence_that_a_command_has_ended_early_doubles_nothing() -> None:
    waits = Waits(15.0, 2.0)
    for limit_s, then_s in ((0.05, 2.0), (None, 4.0)):
        with pytest.raises(TimeoutError), waits.at_first(limit_s), waits.greeting(True):
            raise TimeoutError
        with suppress(ConnectionError), waits.greeting(True):
            assert waits.reply_s == then_s
            raise ConnectionError  # no answer, and no silence


def test_nodes_that_are_all_slow_are_waited_for_in_the_end() -> None:
    world = World()
    commands = client(world, "t")
    users = server(USERS)

    def slow(data: bytes) -> bytes | None:
        return users(data) if commands.session.waits.reply_s >= 5 else None

    world.nodes = {A: slow, B: slow}
    world.run(commands.connect())
    assert 2 + 4 <= world.now < 7


def test_other_replies_may_take_longer_than_a_connection() -> None:
    world = World()
    world.nodes = {A: server({**USERS, b"auth": None}), B: server(USERS)}
    world.run(client(world, "t").connect())
    assert 15.0 <= world.now < 16.0


def test_a_plain_server_never_sees_a_token() -> None:
    world = World()
    world.nodes = {A: server({b"extensions": replies.UNKNOWN_COMMAND})}
    with pytest.raises(faults.NotAvailableError, match="auth"):
        world.run(client(world).connect())
    assert said(world) == [b"extensions"]


@pytest.mark.parametrize("token", [b"a b", b"x" * 129, "tökén".encode(), b"a\n"])
def test_a_token_that_no_user_can_have(token: bytes) -> None:
    with pytest.raises(ValueError, match="a token has 1 to 128 printable bytes"):
        client(World(), token=token)


FULL = server(dict.fromkeys((b"extensions", b"auth", b"use"), replies.OUT_OF_MEMORY))


def test_a_node_without_room_for_a_client_is_passed_over() -> None:
    """It answers so to the first command, which then tells nothing about extensions."""
    world = World()
    world.nodes = {A: FULL, B: server({**USERS, b"put-unique": b"INSERTED 7\r\n"})}
    commands = client(world)
    world.run(commands.connect())
    assert commands.session.at == B
    world.now += 60
    other = client(world, token=b"")
    assert world.run(other.put("x", 1, 0, 60, "key")) == 7
    assert TOKEN not in b"".join(data for place, data in world.said if place == A)


def test_only_nodes_without_room_are_no_answer() -> None:
    world = World()
    world.nodes = {A: FULL, B: FULL}
    with pytest.raises(faults.NoNodeError, match="extensions are not known: OUT_OF_MEMORY"):
        world.run(client(world).connect())
    with pytest.raises(faults.NoNodeError, match="extensions are not known: OUT_OF_MEMORY"):
        world.run(client(world, token=b"").put("x", 1, 0, 60, "key"))
