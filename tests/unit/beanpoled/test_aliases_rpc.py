"""Aliases over gRPC and by `beanpole alias`, at a node with a scripted cluster."""

import asyncio
import json
from typing import Any

import grpc
import pytest

from beanpole import commands as c
from beanpole.client.rpc import detail_of
from beanpole.core.jobs.policies import Policy
from beanpole.core.machine import Machine
from beanpole.core.operations import queues
from beanpole.pb import queue_pb2
from beanpoled.cli import main
from beanpoled.rpc.aliases import read, refusal_as_dead, refusal_of
from beanpoled.rpc.server import CallRefused
from tests.unit.beanpoled.fakes import ended_by_hand
from tests.unit.beanpoled.test_queue_rpc import Service, run

Request = queue_pb2.SetAliasRequest


def upgraded(service: Service) -> None:
    """Raise the cluster to the version that has aliases."""
    service.stage.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 4),)))


async def applied(service: Service, call: Any) -> Any:
    """Apply the commands of a call; return its reply or raise its error."""
    task = asyncio.ensure_future(call)
    await service.apply_next()
    return await task


def test_an_alias_is_set_listed_and_removed() -> None:
    async def test(service: Service) -> None:
        upgraded(service)
        stub = service.stub
        for _ in range(2):
            await applied(service, stub.SetAlias(Request(alias="gearman:resize", queue="resize")))
        await applied(service, stub.SetAlias(Request(alias="mail", queue="gearman:mäil")))
        request = queue_pb2.ListAliasesRequest()
        listed = (await applied(service, stub.ListAliases(request))).aliases
        pairs = [(one.alias, one.queue) for one in listed]
        assert pairs == [("gearman:resize", "resize"), ("mail", "gearman:mäil")]
        await applied(service, stub.SetAlias(Request(alias="mail")))
        request.local = True
        listed = (await stub.ListAliases(request)).aliases
        assert [one.alias for one in listed] == ["gearman:resize"]

    run(test)


@pytest.mark.parametrize(
    ("alias", "queue", "field"),
    [
        ("a b", "gearman:q", "alias"),
        ("gearman:q", "a b", "queue"),
        ("", "gearman:q", "alias"),
        ("redis:q", "q", "alias"),
        ("gearman:q", "q" * 201, "queue"),
        ("workq:" + "q" * 256, "q", "alias"),
        ("workq:a b", "q", "alias"),
        ("gearman:q", "gearman:r", "alias"),
        ("q", "r", "alias"),
    ],
)
def test_names_that_cannot_be_are_refused_at_once(alias: str, queue: str, field: str) -> None:
    async def test(service: Service) -> None:
        upgraded(service)
        call = service.stub.SetAlias(Request(alias=alias, queue=queue))
        code, detail = await service.refusal(call)
        assert (code, detail.reason, detail.field) == ("INVALID_ARGUMENT", "BAD_NAME", field)
        assert not service.stage.node.clients.calls

    run(test)


@pytest.mark.parametrize(
    ("alias", "queue", "field"), [("qless:x", "y", "alias"), ("y", "qless:x", "queue")]
)
def test_queues_of_qless_have_no_aliases(alias: str, queue: str, field: str) -> None:
    with pytest.raises(CallRefused, match="'qless:x' is a queue of qless, which has no ali") as no:
        read(Request(alias=alias, queue=queue))
    assert (no.value.reason, no.value.field) == ("QLESS", field)


def test_the_refusal_of_one_more_alias_names_the_limit() -> None:
    refusal = refusal_of(c.OUT_OF_MEMORY, Request(alias="gearman:q", queue="q"))
    assert refusal is not None
    assert refusal[1] == "there are 1024 aliases already; remove one"


@pytest.mark.constants
def test_what_the_machine_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(service: Service) -> None:
        async def reason(alias: str, queue: str) -> str:
            call = service.stub.SetAlias(Request(alias=alias, queue=queue))
            code, detail = await service.refusal(applied(service, call))
            return f"{code} {detail.reason}"

        ended_by_hand(service.stage.node.context)
        before = service.stub.SetAlias(Request(alias="gearman:q", queue="q"))
        code, detail = await service.refusal(before)
        assert (code, detail.reason) == ("FAILED_PRECONDITION", "MACHINE_VERSION")
        upgraded(service)
        await applied(service, service.stub.SetAlias(Request(alias="gearman:q", queue="q")))
        assert await reason("gearman:q", "r") == "FAILED_PRECONDITION ALIAS_EXISTS"
        assert await reason("default", "gearman:r") == "FAILED_PRECONDITION ALIAS_IN_USE"
        assert await reason("gearman:r", "") == "NOT_FOUND NO_ALIAS"
        limit: Any = queues
        monkeypatch.setattr(limit, "ALIASES_MAX", 1)
        assert await reason("gearman:r", "r") == "RESOURCE_EXHAUSTED TOO_MANY_ALIASES"

    run(test)


def test_the_dead_tube_of_a_policy_becomes_no_alias() -> None:
    """Jobs could not move there any more: they were buried."""

    async def test(service: Service) -> None:
        upgraded(service)
        policy = Policy(attempts_max=3, dead=b"dead")
        stub, stage = service.stub, service.stage
        stage.apply_sections((1, 1, 1, ((c.OPEN, 1), (c.SET_POLICY, 1, b"mail*", *policy))))
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.SetAlias(Request(alias="dead", queue="gearman:d"))
        assert failed.value.details() == (
            "'dead' is in use: the policy of 'mail*' moves jobs there, and could not to "
            "'gearman:d'; set that policy with another dead tube first"
        )
        assert detail_of(failed.value).reason == "ALIAS_IN_USE"
        await applied(service, stub.SetAlias(Request(alias="gearman:d", queue="dead")))
        stage.apply_sections((1, 1, 2, ((c.DROP_POLICY, 1, b"mail*"),)))
        await applied(service, stub.SetAlias(Request(alias="gearman:d")))
        await applied(service, stub.SetAlias(Request(alias="dead", queue="gearman:d")))
        stage.apply_sections((1, 1, 3, ((c.SET_POLICY, 1, b"mail*", *policy),)))
        # To set an existing alias is no error, and it can be removed.
        await applied(service, stub.SetAlias(Request(alias="dead", queue="gearman:d")))
        await applied(service, stub.SetAlias(Request(alias="dead")))

    run(test)


@pytest.mark.parametrize(("others", "words"), [(1, "1 other pattern"), (2, "2 other patterns")])
def test_the_refusal_of_a_dead_tube_counts_its_other_policies(others: int, words: str) -> None:
    """It named the first alone, and after that was set, the next one."""
    machine = Machine()
    policy = Policy(attempts_max=3, dead=b"dead")
    for name in (b"c", b"b", b"a")[2 - others :]:
        machine.queue.policies.rows[name] = policy
    refusal = refusal_as_dead(machine, b"dead", Request(alias="dead", queue="gearman:d"))
    assert refusal is not None
    assert refusal[1] == (
        f"'dead' is in use: the policies of 'a' and {words} move jobs there, and could not to "
        "'gearman:d'; set each of them with another dead tube first"
    )


def test_the_command_sets_lists_and_removes(capsys: pytest.CaptureFixture[str]) -> None:
    async def test(service: Service) -> None:
        async def command(*words: str, applies: bool = True) -> tuple[int, str]:
            line = ["alias", *words, "--addr", f"127.0.0.1:{service.port}"]
            task = asyncio.create_task(asyncio.to_thread(main, line))
            if applies:
                await service.apply_next()
            status = await task
            told = capsys.readouterr()
            return status, (told.out + told.err).rstrip()

        assert await command("list") == (0, "")
        ended_by_hand(service.stage.node.context)
        status, words = await command("set", "gearman:resize", "resize", applies=False)
        assert status == 3 and "a machine version without aliases" in words
        upgraded(service)
        said = (0, "gearman:resize is resize")
        assert await command("set", "gearman:resize", "resize") == said
        assert await command("set", "w", "workq:w") == (0, "w is workq:w")
        _, told = await command("set", "w", "workq:w", "--json")
        assert json.loads(told) == {"alias": "w", "queue": "workq:w"}
        assert await command("list") == (
            0,
            "gearman:resize  resize\nw               workq:w",
        )
        _, listed = await command("list", "--json")
        assert json.loads(listed) == {"gearman:resize": "resize", "w": "workq:w"}
        refused = "'default' is in use: it has jobs, or clients that watch it"
        status, words = await command("set", "default", "gearman:q")
        assert status == 1 and refused in words
        status, words = await command("set", "gearman:a", "gearman:b", applies=False)
        assert status == 2 and "are queues of one protocol" in words
        assert (await command("set", "gearman:a", "", applies=False))[0] == 2
        assert await command("remove", "w") == (0, "w is no alias any more")
        assert await command("remove", "w") == (1, "'w' is no alias")
        _, told = await command("remove", "gearman:resize", "--json")
        assert json.loads(told) == {"alias": "gearman:resize", "queue": None}

    run(test)


def test_a_command_without_a_node_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alias", "list", "--addr", "127.0.0.1:1"]) == 3
    assert "no answer" in capsys.readouterr().err
