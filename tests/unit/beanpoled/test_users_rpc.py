"""The gRPC service `Users`, and the rights that each call requires, over a real socket."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.users import ANONYMOUS, EVERYWHERE, RIGHTS_MAX, User
from beanpole.pb import (
    jobs_pb2,
    jobs_pb2_grpc,
    queue_pb2,
    queue_pb2_grpc,
    users_pb2,
    users_pb2_grpc,
)
from beanpoled.audit.entry import Entry
from beanpoled.rpc import user_shapes as shapes
from beanpoled.rpc.auditing import Auditor
from beanpoled.rpc.caller import CALLER, read
from beanpoled.rpc.callers import Callers
from beanpoled.rpc.door import Door
from beanpoled.rpc.guarding import FREE, GUARDED, Guard
from beanpoled.rpc.jobs import JobAdminServicer
from beanpoled.rpc.queue import QueueServicer
from beanpoled.rpc.server import CallRefused
from beanpoled.rpc.users import UsersServicer
from tests.unit.beanpoled.fakes import until
from tests.unit.beanpoled.test_auditing import methods
from tests.unit.beanpoled.test_jobs_rpc import Admin

ROOT, LEE = "the-token-of-root", "the-token-of-lee"
PUT, WORK, ADMIN = users_pb2.RIGHT_PUT, users_pb2.RIGHT_WORK, users_pb2.RIGHT_ADMIN
Ask = Callable[..., Any]


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()


class CountingDoor(Door):
    """Counts the calls whose callers have proved themselves."""

    proved = 0

    def prove(self, context: Any) -> None:
        """See `Door`."""
        self.proved += 1


class Guarded(Admin):
    """A follower with users: root, and lee, who has some rights in `mail`."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Entry] = []
        self.door = CountingDoor()

    def lock(self, lee: int = 1) -> None:
        root, rights = msgpack.packb([(EVERYWHERE, 15)]), msgpack.packb([(b"mail", lee)])
        self.apply(
            *((c.SET_USER, 1, b"root", root, 0, 0, 0), (c.SET_TOKEN, 1, b"root", digest(ROOT), 1)),
            *((c.SET_USER, 1, b"lee", rights, 0, 0, 0), (c.SET_TOKEN, 1, b"lee", digest(LEE), 1)),
            *(
                (c.SET_USER, 1, ANONYMOUS, msgpack.packb(()), 0, 0, 0),
                (c.AS_USER, 1, b"", digest(ROOT)),
            ),
        )

    def add_to(self, server: grpc.aio.Server) -> None:
        """Add more services."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        node = self.stage.node
        callers = Callers(node)
        auditor = Auditor(self.told.append, lambda _: CALLER.get().name)
        server = grpc.aio.server(interceptors=(auditor, Guard(node, callers, self.door)))
        for servicer in (QueueServicer, JobAdminServicer, UsersServicer):
            servicer(node, callers).add_to(server)
        self.add_to(server)
        self.port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                self.channel = channel
                self.users = users_pb2_grpc.UsersStub(channel)
                self.queue = queue_pb2_grpc.QueueStub(channel)
                self.jobs_stub = jobs_pb2_grpc.JobAdminStub(channel)
                yield
        finally:
            await server.stop(0)

    def put_in(self, tube: str, token: str) -> Any:
        request = queue_pb2.PutRequest(jobs=[queue_pb2.PutJob(tube=tube, body=b"x")])
        return self.queue.Put(request, metadata=bearer(token))

    def set_user(self, name: str, token: str, *rights: users_pb2.Rights) -> Any:
        request = users_pb2.SetUserRequest(name=name, rights=rights)
        return self.users.Set(request, metadata=bearer(token))


def run(test: Callable[[Guarded], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        service = Guarded()
        async with service.running():
            await test(service)

    asyncio.run(asyncio.wait_for(main(), 60))


def may(pattern: str, *rights: users_pb2.Right) -> users_pb2.Rights:
    return users_pb2.Rights(pattern=pattern, rights=rights)


# --- the table ------------------------------------------------------------------------------------


def test_every_method_of_every_service_has_its_row() -> None:
    assert not GUARDED.keys() & FREE.keys()
    assert GUARDED.keys() | FREE.keys() == methods().keys()
    assert all(FREE.values())


def test_every_row_reads_its_requests() -> None:
    """A function of a row that names a missing field would fail each call."""
    for name, row in GUARDED.items():
        request = methods()[name]._concrete_class()
        if row.queues is not None:
            assert all(isinstance(text, str) for text in row.queues(request)), name
        if row.jobs is not None:
            assert all(isinstance(job, int) for job in row.jobs(request)), name


# --- callers --------------------------------------------------------------------------------------


def test_tokens_prove_callers_to_the_door() -> None:
    async def test(it: Guarded) -> None:
        who = users_pb2.WhoAmIRequest()
        await it.ask(it.users.WhoAmI(who))
        assert it.door.proved == 1, "without users everybody has all rights"
        it.lock()
        it.door.proved = 0
        await it.ask(it.users.WhoAmI(who))
        for token in ("", "a wrong one"):
            await it.reason(it.put_in("mail", token))
        assert it.door.proved == 0
        await it.ask(it.users.WhoAmI(who, metadata=bearer(LEE)))
        assert await it.reason(it.set_user("eve", LEE)) == "PERMISSION_DENIED NO_RIGHT"
        await it.ask(it.put_in("mail", LEE))
        assert it.door.proved == 3

    run(test)


def test_without_users_no_call_needs_anything() -> None:
    async def test(it: Guarded) -> None:
        assert (await it.ask(it.put_in("mail", ""))).results[0].job_id == 1
        reply = await it.ask(it.users.WhoAmI(users_pb2.WhoAmIRequest()))
        assert (reply.user, reply.has_users) == ("anonymous", False)
        assert list(reply.rights) == shapes.rights(((EVERYWHERE, 15),))

    run(test)


def test_a_producer_puts_where_it_may_and_nowhere_else() -> None:
    async def test(it: Guarded) -> None:
        it.lock()
        assert (await it.ask(it.put_in("mail", LEE))).results[0].job_id == 1
        assert await it.reason(it.put_in("other", LEE)) == "PERMISSION_DENIED NO_RIGHT"
        assert await it.reason(it.put_in("", LEE)) == "PERMISSION_DENIED NO_RIGHT"
        assert await it.reason(it.put_in("mail", "")) == "UNAUTHENTICATED NO_TOKEN"
        assert await it.reason(it.put_in("mail", "wrong")) == "UNAUTHENTICATED UNKNOWN_TOKEN"
        refused = it.stage.node.clients.auth_refused
        assert refused == {"unknown_token": 1, "no_token": 1, "no_right": 2}
        session = next(iter(it.stage.node.context.machine.queue.jobs.values()))
        assert session.tube.name == b"mail"

    run(test)


def test_jobs_that_are_named_are_those_of_queues_that_one_may_administer() -> None:
    async def test(it: Guarded) -> None:
        it.put(b"a", tube=b"mail")
        it.put(b"b", tube=b"other")
        it.lock(lee=4)
        get, change = it.jobs_stub.GetJob, it.jobs_stub.Change
        found = await it.ask(get(jobs_pb2.GetJobRequest(id=1), metadata=bearer(LEE)))
        assert found.body == b"a"
        for job in (2, 99):
            call = get(jobs_pb2.GetJobRequest(id=job), metadata=bearer(LEE))
            assert await it.reason(call) == "PERMISSION_DENIED NO_RIGHT"
        several: list[dict[str, Any]] = [
            {"job_ids": [1, 2]},
            {"filter": jobs_pb2.JobFilter(queue="other")},
            {"filter": jobs_pb2.JobFilter(protocol="beanstalk")},
            {"job_ids": [1], "to_queue": "other", "action": jobs_pb2.JOB_ACTION_MOVE},
        ]
        for fields in several:
            request = jobs_pb2.ChangeRequest(
                **{"action": jobs_pb2.JOB_ACTION_DELETE, "dry_run": True, **fields}
            )
            stream = change(request, metadata=bearer(LEE))
            assert await it.reason(stream.read()) == "PERMISSION_DENIED NO_RIGHT", fields
        listed = it.jobs_stub.ListJobs(jobs_pb2.ListJobsRequest(), metadata=bearer(LEE))
        assert await it.reason(listed) == "PERMISSION_DENIED NO_RIGHT"
        wanted = jobs_pb2.ListJobsRequest(filter=jobs_pb2.JobFilter(queue="mail"))
        reply = await it.ask(it.jobs_stub.ListJobs(wanted, metadata=bearer(LEE)))
        assert [job.id for job in reply.jobs] == [1]

    run(test)


def test_a_token_that_this_node_does_not_know_yet_is_taken() -> None:
    """It was added at another node, which replied before this node applied it."""

    async def test(it: Guarded) -> None:
        it.lock()
        new = "a-new-token"
        it.theirs += 1
        it.stage.apply_sections((1, 1, it.theirs, ()))
        call = asyncio.ensure_future(_awaited(it.put_in("mail", new)))
        await until(lambda: it.stage.node.clients.calls)
        it.apply((c.SET_TOKEN, 1, b"lee", digest(new), 1))
        assert (await it.ask(call)).results[0].job_id == 1

    run(test)


async def _awaited(call: Any) -> Any:
    return await call


def test_the_audit_log_names_the_user_and_no_token() -> None:
    async def test(it: Guarded) -> None:
        it.lock()
        await it.ask(it.set_user("ann", ROOT, may("mail*", PUT)))
        await it.reason(it.set_user("ann", LEE))
        await it.ask(
            it.users.AddToken(
                users_pb2.AddTokenRequest(user="ann", digest=digest("a")), metadata=bearer(ROOT)
            )
        )
        assert [(entry.user, entry.method, entry.outcome) for entry in it.told] == [
            ("root", "Users/Set", "OK"),
            ("lee", "Users/Set", "PERMISSION_DENIED"),
            ("root", "Users/AddToken", "OK"),
        ]
        assert it.told[0].arguments["rights"] == ['pattern: "mail*" rights: RIGHT_PUT']
        assert ROOT not in repr(it.told) and digest("a").hex() not in repr(it.told)

    run(test)


def test_limits_are_set_listed_with_what_is_used_and_met() -> None:
    async def test(it: Guarded) -> None:
        it.lock()
        limits = users_pb2.Limits(jobs_max=2, bytes_max=100, commands_per_second_max=7)
        made = users_pb2.SetUserRequest(name="lee", rights=[may("mail", PUT)], limits=limits)
        await it.ask(it.users.Set(made, metadata=bearer(ROOT)))
        outcomes = [(await it.ask(it.put_in("mail", LEE))).results[0].outcome for _ in range(3)]
        assert outcomes == [1, 1, queue_pb2.PUT_OUTCOME_QUEUE_FULL]
        reply = await it.ask(it.users.List(users_pb2.ListUsersRequest(), metadata=bearer(ROOT)))
        found = {user.name: user for user in reply.users}
        assert (found["lee"].limits, found["lee"].jobs, found["lee"].bytes) == (limits, 2, 2)
        assert (found["root"].limits, found["root"].jobs) == (users_pb2.Limits(), 0)
        await it.ask(it.set_user("lee", ROOT, may("mail", PUT)))
        assert (await it.ask(it.put_in("mail", LEE))).results[0].job_id == 3, "it has no limit now"
        assert it.told[0].arguments["limits.jobs_max"] == 2

    run(test)


def test_many_users_are_listed_in_pages() -> None:
    async def test(it: Guarded) -> None:
        machine = it.stage.node.context.machine
        rights = tuple((b"q%02d*" % number, 1) for number in range(RIGHTS_MAX))
        names = [b"user%04d" % number for number in range(40)]
        machine.users.change({name: User(name, (), rights) for name in reversed(names)})
        after, sizes, found = "", [], []
        while True:
            request = users_pb2.ListUsersRequest(after=after)
            reply = await it.ask(it.users.List(request))
            sizes.append(len(reply.users))
            found += [user.name.encode() for user in reply.users]
            after = reply.next_after
            if not after:
                break
        assert found == names and sizes == [15, 15, 10]

    run(test)


@pytest.mark.parametrize(
    ("field", "number"),
    [("jobs_max", 2**32), ("bytes_max", 2**62 + 1), ("commands_per_second_max", 2**32)],
)
def test_a_limit_that_cannot_be_is_named(field: str, number: int) -> None:
    async def test(it: Guarded) -> None:
        it.lock()
        limits = users_pb2.Limits(**{field: number})
        made = users_pb2.SetUserRequest(name="lee", limits=limits)
        with pytest.raises(CallRefused, match=f"{field} is {number}; at most {number - 1}"):
            shapes.read_limits(limits)
        call = it.users.Set(made, metadata=bearer(ROOT))
        assert await it.reason(call) == f"INVALID_ARGUMENT BAD_LIMIT limits.{field}"

    run(test)


@pytest.mark.parametrize("said", ["Bearer tok", "bearer  tok", "BEARER tok "])
def test_a_token_in_its_metadata(said: str) -> None:
    caller = read(b"10.0.0.1", (), (("x", "y"), ("authorization", said)))
    assert caller.token == digest("tok")
    assert caller.metadata == (("authorization", said),)


def test_another_scheme_is_no_token_and_not_nothing() -> None:
    """A caller that tries to authenticate is not treated as an anonymous one."""
    assert read(b"", (), (("authorization", "Basic dG9r"),)).token not in (b"", digest("dG9r"))
    assert read(b"", (), ()).token == b""


# --- the service ----------------------------------------------------------------------------------


def test_users_tokens_and_rules_from_nothing() -> None:
    async def test(it: Guarded) -> None:
        users = it.users
        everything = may("all:*", PUT, WORK, ADMIN, users_pb2.RIGHT_EVENTS)
        await it.ask(it.set_user("root", "", everything))
        reason = await it.reason(it.set_user("anonymous", ""))
        assert reason == "FAILED_PRECONDITION LOCKED_OUT"
        add = users_pb2.AddTokenRequest(user="root", digest=digest(ROOT))
        await it.ask(users.AddToken(add))
        await it.ask(it.set_user("anonymous", "", may("gearman:resize*", WORK)))
        assert await it.reason(it.set_user("x", "")) == "UNAUTHENTICATED NO_TOKEN"
        root = bearer(ROOT)
        rules = [users_pb2.Rule(protocol="gearman", network="10.0.0.0/8", user="root")]
        await it.ask(users.SetRules(users_pb2.SetRulesRequest(rules=rules), metadata=root))
        found = await it.ask(users.ListRules(users_pb2.ListRulesRequest(), metadata=root))
        assert list(found.rules) == rules
        listed = await it.ask(users.List(users_pb2.ListUsersRequest(), metadata=root))
        assert [user.name for user in listed.users] == ["anonymous", "root"]
        assert list(listed.users[1].token_ids) == [digest(ROOT).hex()[:16]]
        wanted = users_pb2.ListUsersRequest(name="root", local=True)
        one = await users.List(wanted, metadata=root)
        assert list(one.users[0].rights) == [everything]
        drop = users_pb2.DropTokenRequest(user="root", token_id=digest(ROOT).hex()[:4])
        reason = await it.reason(users.DropToken(drop, metadata=root))
        assert reason == "FAILED_PRECONDITION LOCKED_OUT"
        for request, why in (
            (users_pb2.DropUserRequest(name="root"), "FAILED_PRECONDITION USER_IN_RULE"),
            (users_pb2.DropUserRequest(name="who"), "NOT_FOUND NO_USER"),
            (users_pb2.DropUserRequest(name="a b"), "INVALID_ARGUMENT BAD_USER name"),
        ):
            assert await it.reason(users.Drop(request, metadata=root)) == why
        await it.ask(users.SetRules(users_pb2.SetRulesRequest(), metadata=root))
        await it.ask(users.Drop(users_pb2.DropUserRequest(name="anonymous"), metadata=root))
        reply = await users.WhoAmI(users_pb2.WhoAmIRequest(), metadata=root)
        assert (reply.user, reply.has_users) == ("root", True)

    run(test)


@pytest.mark.parametrize(
    ("method", "request_of", "why"),
    [
        ("AddToken", {"user": "lee", "digest": b"short"}, "INVALID_ARGUMENT BAD_DIGEST digest"),
        ("AddToken", {"user": "anonymous", "digest": bytes(32)}, "INVALID_ARGUMENT BAD_USER user"),
        ("AddToken", {"user": "who", "digest": bytes(32)}, "NOT_FOUND NO_USER"),
        ("AddToken", {"user": "lee", "digest": digest(ROOT)}, "FAILED_PRECONDITION TOKEN_TAKEN"),
        ("DropToken", {"user": "lee", "token_id": "zz"}, "NOT_FOUND NO_TOKEN token_id"),
        ("DropToken", {"user": "lee", "token_id": ""}, "INVALID_ARGUMENT NO_TOKEN token_id"),
        ("DropToken", {"user": "who", "token_id": "aa"}, "NOT_FOUND NO_USER"),
        ("SetRules", {"rules": [users_pb2.Rule(user="who")]}, "NOT_FOUND NO_USER"),
        ("Set", {"name": "lee", "rights": [may("a*b", PUT)]}, "INVALID_ARGUMENT BAD_PATTERN "
         "rights[0].pattern"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(method: str, request_of: dict[str, Any], why: str) -> None:
    async def test(it: Guarded) -> None:
        it.lock()
        kind = methods()[f"Users/{method}"]._concrete_class
        call = getattr(it.users, method)(kind(**request_of), metadata=bearer(ROOT))
        assert await it.reason(call) == why

    run(test)


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        *(("all:*", EVERYWHERE), ("*", b"*"), ("mail", b"mail"), ("mail*", b"mail*")),
        *(("gearman:*", b"\x02*"), ("gearman:a b*", b"\x02a b*"), ("workq:a", b"\x01a")),
        *(("qless:*", b"\x03*"), ("qless:a:b", b"\x03a:b")),
    ],
)
def test_patterns_come_back(text: str, pattern: bytes) -> None:
    assert shapes.read_pattern(text, "x") == pattern
    assert shapes.pattern_text(pattern) == text


@pytest.mark.parametrize(
    "text",
    ["", "a*b", "**", "all:x", "grpc:*", "beanstalk:a", "who:*", "a b", "gearman:a*b", "\0*"],
)
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(CallRefused) as refused:
        shapes.read_pattern(text, "x")
    assert refused.value.reason == "BAD_PATTERN"


def test_rights_of_one_pattern_are_joined() -> None:
    packed = shapes.read_rights([may("a", PUT), may("a", ADMIN), may("b", WORK)])
    assert msgpack.unpackb(packed) == [[b"a", 5], [b"b", 2]]


@pytest.mark.parametrize(
    ("rights", "reason"),
    [
        ([may("a")], "BAD_RIGHT"),
        ([may("a", 9)], "BAD_RIGHT"),  # type: ignore[arg-type]
        ([may(f"a{n}", PUT) for n in range(65)], "TOO_MANY_RIGHTS"),
    ],
)
def test_what_are_no_rights(rights: list[users_pb2.Rights], reason: str) -> None:
    with pytest.raises(CallRefused) as refused:
        shapes.read_rights(rights)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        *(({"protocol": "smtp"}, "BAD_PROTOCOL"), ({"network": "10.0.0.1/8"}, "BAD_NETWORK")),
        *(({"network": "ten"}, "BAD_NETWORK"), ({"certificate": "x" * 254}, "BAD_CERTIFICATE")),
        ({"user": "a b"}, "BAD_USER"),
    ],
)
def test_what_is_no_rule(fields: dict[str, str], reason: str) -> None:
    with pytest.raises(CallRefused) as refused:
        shapes.read_rules([users_pb2.Rule(**{"user": "lee", **fields})])
    assert refused.value.reason == reason


@pytest.mark.parametrize("network", ["", "10.0.0.0/8", "0.0.0.0/0", "10.1.2.3/32", "2001:db8::/32"])
def test_rules_come_back(network: str) -> None:
    given = users_pb2.Rule(protocol="qless", network=network, certificate="a.example", user="lee")
    (row,) = msgpack.unpackb(shapes.read_rules([given]))
    from beanpole.core.users import Rule, may_be_network

    assert shapes.rule(Rule(*row)) == given
    assert may_be_network(row[1])
