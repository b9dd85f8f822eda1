"""Calls recorded in the audit log: those of gRPC, and those of clients as administrators."""

import asyncio
import importlib
import json
import pkgutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgpack
import pytest

from beanpole import commands as c
from beanpole import pb
from beanpole.core.users import ADMIN, PUT, RIGHTS_MAX, RULES_MAX
from beanpole.events import GEARMAN, QLESS
from beanpole.pb import (
    admin_pb2,
    admin_pb2_grpc,
    jobs_pb2,
    node_admin_pb2,
    node_admin_pb2_grpc,
    peer_pb2,
    peer_pb2_grpc,
    policies_pb2,
    users_pb2,
)
from beanpole.protocol.gearman import packets
from beanpoled.audit import alike, entry
from beanpoled.audit.entry import Entry
from beanpoled.audit.log import AuditLog
from beanpoled.cli import main
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.auditing import AUDITED, NOT_AUDITED, Auditor, Row, arguments
from beanpoled.rpc.node_admin import NodeAdminServicer
from beanpoled.rpc.peer import PeerClient
from tests.unit.beanpoled.auth_scene import LEE, TOKEN, change_rights, gearman, give_users
from tests.unit.beanpoled.fakes import FakeSettings, FakeView, trust_of, until
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.beanpoled.gearman_scene import Scene, handle, submit, worker
from tests.unit.beanpoled.qless_scene import Client as QlessClient
from tests.unit.beanpoled.qless_scene import Scene as QlessScene

SECRET = "a secret of a cluster"


def methods() -> dict[str, Any]:
    """Return every method of every service, with its request."""
    found = {}
    for module in pkgutil.iter_modules(pb.__path__):
        if module.name.endswith("_pb2"):
            made = importlib.import_module(f"beanpole.pb.{module.name}")
            for service in made.DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    found[f"{service.name}/{method.name}"] = method.input_type
    return found


def test_every_method_is_told_of_or_named_with_a_reason() -> None:
    assert not AUDITED.keys() & NOT_AUDITED.keys()
    assert AUDITED.keys() | NOT_AUDITED.keys() == methods().keys()
    assert all(NOT_AUDITED.values())


def test_every_argument_that_is_shown_exists_and_is_no_secret() -> None:
    for name, row in AUDITED.items():
        for path in row.shown:
            message = methods()[name]
            *outer, last = path.split(".")
            for part in outer:
                message = message.fields_by_name[part].message_type
            assert last in message.fields_by_name, (name, path)
            assert not {"body", "token", "secret", "password"} & set(last.split("_")) or (
                # Shown as bytes, a number, and digits of a digest.
                last in ("body_contains", "body_bytes", "token_id")
            ), (name, path)


def test_arguments_in_short() -> None:
    row = AUDITED["JobAdmin/Change"]
    request = jobs_pb2.ChangeRequest(
        action=jobs_pb2.JOB_ACTION_DELETE,
        job_ids=range(1, 31),
        filter=jobs_pb2.JobFilter(
            queue="mail", states=[jobs_pb2.JOB_STATE_BURIED], body_contains=b"card 4711"
        ),
        dry_run=True,
    )
    found = arguments(request, row)
    assert found == {
        "action": "JOB_ACTION_DELETE",
        "job_ids": list(range(1, 21)),
        "job_ids.count": 30,
        "filter.queue": "mail",
        "filter.states": ["JOB_STATE_BURIED"],
        "filter.body_contains": "9 bytes",
        "dry_run": True,
    }
    policy = policies_pb2.SetPolicyRequest(policy=policies_pb2.Policy(pattern="mail*", dead="d"))
    assert arguments(policy, Row(("policy",))) == {"policy.pattern": "mail*", "policy.dead": "d"}


def test_a_number_without_a_name_is_told_as_a_number() -> None:
    """Enums are open: a newer client, or a hostile one, sends numbers that this node has not."""

    request = jobs_pb2.ChangeRequest(action=jobs_pb2.JOB_ACTION_DELETE, job_ids=[1])
    request.moved_state = 99  # type: ignore[assignment]
    request.filter.states.extend([jobs_pb2.JOB_STATE_BURIED, 98])  # type: ignore[list-item]
    assert arguments(request, AUDITED["JobAdmin/Change"]) == {
        "action": "JOB_ACTION_DELETE",
        "job_ids": [1],
        "filter.states": ["JOB_STATE_BURIED", "98"],
        "moved_state": "99",
    }


Ask = Callable[[grpc.aio.Channel], Awaitable[None]]


def served(
    ask: Ask, add: Callable[[Entry], None], view: FakeView | None = None, secret: str = ""
) -> None:
    """Send calls to a fake node, whose audit log is `add`."""

    async def run() -> None:
        trust = trust_of("n0", secret)
        peers = PeerClient({"n1": "127.0.0.1:1"}, trust)
        auditor = Auditor(add, lambda context: "ann")
        server = RpcServer(view or FakeView(), peers, trust, interceptors=[auditor])
        port = await server.start("127.0.0.1:0")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await ask(channel)
        await peers.close()
        await server.stop(0)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_calls_that_change_something_are_told_of_with_their_outcome() -> None:
    async def ask(channel: grpc.aio.Channel) -> None:
        stub = admin_pb2_grpc.AdminStub(channel)
        await stub.Status(admin_pb2.StatusRequest(local=True))
        await stub.TakeSnapshot(admin_pb2.TakeSnapshotRequest())
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.TransferLeader(admin_pb2.TransferLeaderRequest(to="n7"))
        # Its status is sent before it is told of.
        await until(lambda: len(told) == 2)

    told: list[Entry] = []
    served(ask, told.append)
    taken, moved = told
    assert (taken.method, taken.outcome) == ("Admin/TakeSnapshot", "OK")
    assert (moved.method, moved.outcome) == ("Admin/TransferLeader", "INVALID_ARGUMENT")
    assert (moved.caller, moved.user, moved.certificate) == ("127.0.0.1", "ann", "")
    assert moved.arguments == {"to": "n7"} and moved.duration_us >= 0


def test_a_caller_that_goes_and_a_stream_that_is_refused() -> None:
    async def ask(channel: grpc.aio.Channel) -> None:
        call = admin_pb2_grpc.AdminStub(channel).TransferLeader(admin_pb2.TransferLeaderRequest())
        await until(lambda: view.transfers)
        call.cancel()
        await until(lambda: told)
        with pytest.raises(grpc.aio.AioRpcError):
            await (
                peer_pb2_grpc.PeerStub(channel)
                .FetchSnapshot(peer_pb2.FetchSnapshotRequest(index=5))
                .read()
            )
        await until(lambda: len(told) == 2)

    view = FakeView()
    view.role = "leader"
    told: list[Entry] = []
    served(ask, told.append, view, SECRET)
    gone, refused = told
    assert (gone.method, gone.outcome) == ("Admin/TransferLeader", "CANCELLED")
    assert (refused.method, refused.outcome) == ("Peer/FetchSnapshot", "UNAUTHENTICATED")
    assert SECRET not in repr((gone, refused))


def test_reading_again_and_again_is_told_of_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask(channel: grpc.aio.Channel) -> None:
        stub = admin_pb2_grpc.AdminStub(channel)
        for alike_s in (60.0, 60.0, 60.0, 0.0):
            monkeypatch.setattr(alike, "ALIKE_S", alike_s)
            await stub.ListConnections(admin_pb2.ListConnectionsRequest())
            await stub.TakeSnapshot(admin_pb2.TakeSnapshotRequest())

    told: list[Entry] = []
    served(ask, alike.Alike(told.append).add)
    assert [one.alike for one in told if one.method == "Admin/ListConnections"] == [0, 2]
    assert len(told) == 6


def test_refusals_are_told_of_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Entry] = []
    add = alike.Alike(told.append).add
    for outcome in ("PERMISSION_DENIED", "ERR ACCESS_DENIED no", "OK"):
        for _ in range(3):
            add(ENTRY._replace(outcome=outcome, refused=outcome != "OK"))
    assert [one.outcome for one in told] == [
        "PERMISSION_DENIED",
        "ERR ACCESS_DENIED no",
        *["OK"] * 3,
    ]
    monkeypatch.setattr(alike, "ALIKE_S", 0.0)
    add(ENTRY._replace(outcome="PERMISSION_DENIED", refused=True))
    assert told[-1].alike == 2


def test_messages_in_a_list_are_short() -> None:
    patterns = ("p" * 300, "\N{SNOWMAN}" * 1_000_000)
    request = users_pb2.SetUserRequest(rights=[users_pb2.Rights(pattern=one) for one in patterns])
    rights = arguments(request, AUDITED["Users/Set"])["rights"]
    assert isinstance(rights, list)
    short, size = rights
    assert str(short).startswith('pattern: "pppp') and len(str(short)) < 300
    assert size == "3000005 bytes"


# Names as long as the cluster takes them, of characters that need the most room in a line.
LONG = ("p" * 500, '"' * 500, "\a" * 500, "\N{SNOWMAN}" * 160, "\N{GRINNING FACE}" * 120)


@pytest.mark.parametrize("name", ["team", *LONG])
def test_no_right_is_hidden_by_those_before_it(name: str) -> None:
    """The log had the first 20: the others were given without a trace."""
    rights = [
        users_pb2.Rights(pattern=f"{number}{name}", rights=[users_pb2.RIGHT_PUT] * 3000)
        for number in range(RIGHTS_MAX - 1)
    ]
    for one in (*rights[:5], users_pb2.Rights(pattern="all:*")):
        one.rights.extend([users_pb2.RIGHT_WORK, users_pb2.RIGHT_EVENTS, users_pb2.RIGHT_ADMIN])
    rights.append(users_pb2.Rights(pattern="all:*", rights=[users_pb2.RIGHT_ADMIN]))
    request = users_pb2.SetUserRequest(name="u" * 64, rights=rights)
    called = ENTRY._replace(arguments=arguments(request, AUDITED["Users/Set"]))
    shown = json.loads(entry.line(called, 1, "a"))["arguments"]
    assert len(shown["rights"]) == RIGHTS_MAX and "rights.count" not in shown
    assert shown["rights"][-1].strip() == 'pattern: "all:*" rights: RIGHT_ADMIN'
    assert all(one.count("RIGHT_PUT") == 1 for one in shown["rights"][:-1])
    assert "RIGHT_WORK rights: RIGHT_EVENTS rights: RIGHT_ADMIN" in shown["rights"][4]


@pytest.mark.parametrize("name", ["team.example", *(name[:253] for name in LONG)])
def test_the_user_of_every_rule_is_shown(name: str) -> None:
    rules = [
        users_pb2.Rule(
            protocol="beanstalk",
            network="2001:db8:1111:2222:3333:4444:5555:6666/128",
            certificate=name,
            user=f"{number:02}{'u' * 62}",
        )
        for number in range(RULES_MAX)
    ]
    request = users_pb2.SetRulesRequest(rules=rules)
    called = ENTRY._replace(arguments=arguments(request, AUDITED["Users/SetRules"]))
    shown = json.loads(entry.line(called, 1, "a"))["arguments"]["rules"]
    assert [one.partition(' user: "')[2].strip()[:-1] for one in shown] == [
        one.user for one in rules
    ]


def test_repeated_states_hide_no_other_one() -> None:
    states = [jobs_pb2.JOB_STATE_READY] * 30 + [jobs_pb2.JOB_STATE_BURIED]
    request = jobs_pb2.ChangeRequest(filter=jobs_pb2.JobFilter(states=states))
    found = arguments(request, AUDITED["JobAdmin/Change"])
    assert found["filter.states"] == ["JOB_STATE_READY", "JOB_STATE_BURIED"]


# --- clients ------------------------------------------------------------------------------------


def test_an_administrator_of_gearman() -> None:
    scene = Scene()
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    client = scene.connect()
    worker(scene, b"busy")
    for line in (
        *(b"status\n", b"version\n", b"create function f\n", b"maxqueue f 10\n"),
        *(b"cancel job H:stage:7\n", b"drop function busy\n", b"DROP function f\n", b"shutdown\n"),
    ):
        client.text(line)
    assert [(one.method, one.arguments["line"], one.outcome) for one in told] == [
        ("gearman/create function", "create function f", "OK"),
        ("gearman/maxqueue", "maxqueue f 10", "OK"),
        ("gearman/cancel job", "cancel job H:stage:7", "ERR UNKNOWN_JOB"),
        (
            "gearman/drop function",
            "drop function busy",
            "ERR there are still connected workers or executing clients",
        ),
        ("gearman/drop function", "DROP function f", "OK"),
        ("gearman/shutdown", "shutdown", "ERR UNKNOWN_COMMAND Unknown+server+commandshutdown"),
    ]
    assert {one.caller for one in told} == {"10.0.0.1"}
    client.connection.received(b"drop function f\n")
    client.connection.lost()
    assert told[-1].outcome == "UNKNOWN"


@pytest.mark.parametrize(("rights", "refused"), [(PUT | ADMIN, False), (PUT, True)])
@pytest.mark.parametrize("line", [b"create function f", b"drop function f", b"cancel job %b"])
def test_a_client_of_gearman_that_leaves_before_the_answer(
    line: bytes, rights: int, refused: bool
) -> None:
    scene, client = gearman((b"f", rights))
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    client.text(b"auth %b\n" % TOKEN)
    submit(client, packets.SUBMIT_JOB_BG)
    client.connection.received(line.replace(b"%b", handle(1)) + b"\n")
    client.connection.lost()
    assert [(one.outcome, one.refused) for one in told] == [("UNKNOWN", refused)]


def flushing(rights: int) -> tuple[QlessScene, QlessClient, list[Entry]]:
    """Connect a user with some rights in all queues of qless, where these may be removed."""
    scene = QlessScene(qless_flush="on")
    give_users(scene, QLESS, (b"*", rights))
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    client = scene.connect()
    client.ask(b"AUTH lee %b\r\n" % TOKEN)
    return scene, client, told


@pytest.mark.parametrize(("rights", "begun"), [(ADMIN, "BEGUN"), (PUT, "BEGUN without the right")])
def test_a_client_of_qless_that_may_not_remove_all(rights: int, begun: str) -> None:
    _, client, told = flushing(rights)
    client.ask(b"FLUSHALL\r\n")
    assert [(one.outcome, one.refused) for one in told] == [(begun, begun != "BEGUN")]


def by_rule(scene: FollowerScene, protocol: int, *rights: tuple[bytes, int]) -> None:
    """Make every client a user with some rights by a rule."""
    give_users(scene, protocol, *rights)
    scene.others((c.SET_RULES, 1, msgpack.packb([(0, b"", b"", LEE)])))


def test_changes_of_a_user_by_a_rule_are_told_each() -> None:
    """The client becomes the user with its first command, which may be the only one."""
    told: list[Entry] = []
    scene = Scene()
    by_rule(scene, GEARMAN, (b"f", ADMIN))
    scene.node.clients.audit = told.append
    for _ in range(2):
        client = scene.connect()
        client.text(b"create function f\n")
        client.connection.received(b"drop function f\n")
        client.connection.lost()
    outcomes = [(one.user, one.outcome, one.refused) for one in told]
    assert outcomes == [("lee", "OK", False), ("lee", "UNKNOWN", False)] * 2

    told.clear()
    beside = QlessScene(qless_flush="on")
    by_rule(beside, QLESS, (b"*", ADMIN))
    beside.node.clients.audit = told.append
    beside.connect().ask(b"FLUSHALL\r\n")
    assert [(one.user, one.outcome, one.refused) for one in told] == [("lee", "BEGUN", False)]


def test_a_client_of_qless_whose_right_is_not_known_here_yet() -> None:
    scene, client, told = flushing(PUT)
    client.connection.received(b"FLUSHALL\r\n")
    change_rights(scene, QLESS, (b"*", ADMIN))  # comes first in the log
    client.ask(b"")
    assert [(one.outcome, one.refused) for one in told] == [
        ("BEGUN without the right", True),
        ("OK", False),
    ]


def test_a_client_of_qless_that_removes_all() -> None:
    scene = QlessScene(qless_flush="on")
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    client = scene.connect()
    client.ask(b"FLUSHALL\r\n")
    assert [(one.method, one.outcome) for one in told] == [("qless/flushall", "BEGUN")]


# --- reading it ---------------------------------------------------------------------------------


class Pair:
    """Two nodes, each with its audit log; n2 is down."""

    def __init__(self, place: Path) -> None:
        self.addresses = {"n2": "127.0.0.1:1"}
        self.peers = PeerClient(self.addresses, trust_of())
        self.logs = {}
        self.servers = {}
        for name in ("n0", "n1"):
            (place / name).mkdir()
            log = self.logs[name] = AuditLog(str(place / name), name, print)
            view = FakeView(name)
            services = [NodeAdminServicer(view, self.peers, log, FakeSettings(name)).add_to]
            auditor = Auditor(log.add)
            self.servers[name] = RpcServer(view, self.peers, trust_of(), services, [auditor])

    async def run(self, do: Callable[[str], Any]) -> Any:
        """Call a function in a thread with the address of n0."""
        for name, server in self.servers.items():
            self.addresses[name] = f"127.0.0.1:{await server.start('127.0.0.1:0')}"
        done = await asyncio.to_thread(do, self.addresses["n0"])
        await self.peers.close()
        for name, server in self.servers.items():
            await server.stop(0)
            self.logs[name].close()
        return done


ENTRY = Entry(0, "10.0.0.9", "", "", "Queue/Kick", {"job_ids": [1, 2]}, "OK", 2500)


def test_the_command_shows_all_nodes_and_names_the_one_that_is_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Pair(tmp_path)
    pair.logs["n1"].add(ENTRY._replace(outcome="bad\x1b[2J"))
    pair.logs["n0"].add(ENTRY._replace(user="ann"))

    def do(address: str) -> tuple[int, int, int]:
        at = ("--addr", address)
        return (
            main(["node", "audit", *at]),
            main(["node", "audit", "--json", "--node", "n1", *at]),
            main(["node", "audit", "--node", "n7", *at]),
        )

    assert asyncio.run(pair.run(do)) == (1, 0, 2)
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    start = "1970-01-01T00:00:00.000Z"
    assert f"{start} n0 ann Queue/Kick job_ids=[1,2] OK 2 ms" in lines
    assert f"{start} n1 10.0.0.9 Queue/Kick job_ids=[1,2] bad\\x1b[2J 2 ms" in lines
    assert "n2" in shown.err and "n7" in shown.err
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    assert {one["node"] for one in objects} == {"n1"}
    assert "NodeAdmin/ReadAudit" in {one["method"] for one in objects}


def test_the_time_of_a_line_is_that_of_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the machine that asks may be days ahead, which hid each line."""
    pair = Pair(tmp_path)
    now_ns = time.time_ns()
    for ago_s in (100, 10):
        monkeypatch.setattr(time, "time_ns", lambda ago_s=ago_s: now_ns - ago_s * 1_000_000_000)
        pair.logs["n1"].add(ENTRY._replace(method=f"{ago_s} s ago"))
        assert pair.logs["n1"].flush()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    in_days_us = (now_ns // 1000) + 3 * 86_400_000_000
    request = node_admin_pb2.ReadAuditRequest(node="n1", after_id=in_days_us, last_us=50_000_000)

    def do(address: str) -> list[str]:
        with grpc.insecure_channel(address) as channel:
            reply = node_admin_pb2_grpc.NodeAdminStub(channel).ReadAudit(request)
            return [json.loads(line)["method"] for line in reply.lines]

    assert asyncio.run(pair.run(do))[0] == "10 s ago"


def test_pages_of_many_lines_through_another_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Pair(tmp_path)
    for number in range(8000):
        pair.logs["n1"].add(ENTRY._replace(method=f"m/{number}"))
    asyncio.run(pair.run(lambda at: main(["node", "audit", "--node", "n1", "--addr", at])))
    found = [line.split()[3] for line in capsys.readouterr().out.splitlines()]
    assert [one for one in found if one.startswith("m/")] == [f"m/{n}" for n in range(8000)]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    (tmp_path / "n0" / "audit.jsonl").mkdir()

    def do(address: str) -> grpc.StatusCode:
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
            node_admin_pb2_grpc.NodeAdminStub(channel).ReadAudit(node_admin_pb2.ReadAuditRequest())
        code: grpc.StatusCode = caught.value.code()
        return code

    assert asyncio.run(pair.run(do)) == grpc.StatusCode.UNAVAILABLE
