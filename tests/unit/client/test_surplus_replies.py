"""A reply that does not fit: each later one may answer another request, so the connection ends."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from beanpole.client import aio, blocking
from tests.unit.client.scripted import Node, Script

PUT_A = b"put 65536 0 60 1\r\na\r\n"
PUT_B = b"put 65536 0 60 1\r\nb\r\n"
USED = b"list-tube-used\r\n"


def call(client: Any, command: str, *arguments: Any) -> Any:
    return getattr(client, command)(*arguments)


def blockingly(address: str, calls: list[tuple[Any, ...]]) -> list[Any]:
    found: list[Any] = []
    with blocking.Client(address, spread=False) as client:
        for one in calls:
            try:
                found.append(call(client, *one))
            except blocking.Error as error:
                found.append(error)
    return found


def by_asyncio(address: str, calls: list[tuple[Any, ...]]) -> list[Any]:
    async def run() -> list[Any]:
        found: list[Any] = []
        async with aio.Client(address, spread=False) as client:
            for one in calls:
                try:
                    found.append(await call(client, *one))
                except aio.Error as error:
                    found.append(error)
        return found

    return asyncio.run(run())


Talk = Callable[[str, list[tuple[Any, ...]]], list[Any]]
CLIENTS = pytest.mark.parametrize("talk", [blockingly, by_asyncio])


def finished(talk: Talk, calls: list[tuple[Any, ...]], *scripts: Script) -> list[Any]:
    node = Node(*scripts)
    found = talk(node.address, calls)
    node.finish()
    return found


@CLIENTS
def test_a_put_never_returns_the_id_of_another(talk: Talk) -> None:
    first, second = finished(
        talk,
        [("put", "a"), ("put", "b")],
        [(PUT_A, b"USING default\r\nINSERTED 7\r\n")],
        [(PUT_B, b"INSERTED 8\r\n")],
    )
    assert isinstance(first, blocking.UnknownResponseError)
    assert second == 8


@CLIENTS
def test_each_server_knows_the_first_commands(talk: Talk) -> None:
    first, second = finished(
        talk,
        [("using",), ("using",)],
        [(USED, b"UNKNOWN_COMMAND\r\nUSING default\r\n")],
        [(USED, b"USING default\r\n")],
    )
    assert isinstance(first, blocking.UnknownCommandError)
    assert second == "default"


@CLIENTS
def test_an_old_server_keeps_its_connection(talk: Talk) -> None:
    first, second = finished(
        talk,
        [("reserve_job", 7), ("using",)],
        [(b"reserve-job 7\r\n", b"UNKNOWN_COMMAND\r\n"), (USED, b"USING default\r\n")],
    )
    assert isinstance(first, blocking.UnknownCommandError)
    assert second == "default"


@CLIENTS
def test_jobs_that_came_with_a_surplus_reply_are_not_held(talk: Talk) -> None:
    first, second = finished(
        talk,
        [("reserve_many", 2, 0), ("using",)],
        [
            (
                b"reserve-with-timeout 0\r\n" * 2,
                b"RESERVED 7 1\r\nx\r\nUSING default\r\nRESERVED 8 1\r\nx\r\n",
            )
        ],
        [(USED, b"USING default\r\n")],
    )
    assert isinstance(first, blocking.UnknownResponseError)
    assert second == "default"


@CLIENTS
def test_the_replies_of_a_batch_after_a_surplus_one_are_doubted(talk: Talk) -> None:
    first, second = finished(
        talk,
        [("delete_many", [1, 2, 3]), ("using",)],
        [
            (
                b"delete 1\r\ndelete 2\r\ndelete 3\r\n",
                b"DELETED\r\nUSING default\r\nDELETED\r\nNOT_FOUND\r\n",
            )
        ],
        [(USED, b"USING default\r\n")],
    )
    assert isinstance(first, blocking.BatchError)
    done, wrong, doubted = first.results
    assert done is True
    assert isinstance(wrong, blocking.UnknownResponseError)
    assert isinstance(doubted, blocking.MayBeDoneError)
    assert second == "default"


@CLIENTS
@pytest.mark.parametrize("surplus", [b"TIMED_OUT", b"NOT_FOUND", b"DEADLINE_SOON"])
def test_an_error_of_another_command_does_not_answer_a_put(talk: Talk, surplus: bytes) -> None:
    first, second = finished(
        talk,
        [("put", "a"), ("put", "b")],
        [(PUT_A, surplus + b"\r\nINSERTED 7\r\n")],
        [(PUT_B, b"INSERTED 8\r\n")],
    )
    assert isinstance(first, blocking.UnknownResponseError)
    assert second == 8


@CLIENTS
def test_an_error_of_another_command_does_not_answer_a_batch(talk: Talk) -> None:
    deletes = b"delete 1\r\ndelete 2\r\n"
    (first,) = finished(
        talk, [("delete_many", [1, 2])], [(deletes, b"TIMED_OUT\r\nDELETED\r\nDELETED\r\n")]
    )
    assert isinstance(first, blocking.BatchError)
    assert isinstance(first.results[0], blocking.UnknownResponseError)
    assert isinstance(first.results[1], blocking.MayBeDoneError)


@CLIENTS
def test_a_delete_that_is_not_known_is_no_misread_put(talk: Talk) -> None:
    deletes = b"delete 1\r\ndelete 2\r\n"
    (first,) = finished(talk, [("delete_many", [1, 2])], [(deletes, b"UNKNOWN_COMMAND\r\n" * 2)])
    assert isinstance(first, blocking.BatchError)
    assert isinstance(first.results[0], blocking.UnknownCommandError)
    assert "sent a reply that does not fit" in str(first.results[1])


@CLIENTS
def test_a_second_reply_of_the_same_kind_answers_no_later_put(talk: Talk) -> None:
    found = finished(
        talk,
        [("put", "a"), ("put", "b")],
        [(PUT_A, b"INSERTED 7\r\nINSERTED 7\r\n")],
        [(PUT_B, b"INSERTED 8\r\n")],
    )
    assert found == [7, 8]


@CLIENTS
def test_jobs_of_a_connection_that_a_surplus_reply_ends_are_reserved_again(talk: Talk) -> None:
    reserve = b"reserve-with-timeout 0\r\n"
    (job,) = finished(
        talk,
        [("reserve", 0)],
        [(reserve, b"RESERVED 7 1\r\nx\r\nTIMED_OUT\r\n")],
        [(reserve, b"RESERVED 8 1\r\nx\r\n")],
    )
    assert job.id == 8


@CLIENTS
def test_a_job_of_a_connection_that_a_surplus_reply_ends_is_not_returned(talk: Talk) -> None:
    node = Node([(b"reserve-job 7\r\n", b"RESERVED 7 1\r\nx\r\nTIMED_OUT\r\n")])
    with pytest.raises(blocking.MayBeDoneError, match="a reply too many"):
        talk(node.address, [("reserve_job", 7)])
    node.finish()


@pytest.mark.parametrize("reply", [b"WATCHING 1\r\n", b"USING work\r\nUSING work\r\n"])
def test_a_connection_whose_tube_is_not_restored_is_not_used(reply: bytes) -> None:
    """It was closed and taken for open, and the next command failed by an assert."""
    node = Node([(b"use work\r\n", reply)])
    with pytest.raises(blocking.NoNodeError, match="a reply does not fit its command"):
        blocking.Client(node.address, use="work", patience_s=0)
    node.finish()
