"""Directed schedules for clients of qless: one situation at a time, in a world without randomness.

A schedule takes a seed, which it ignores, and the repairs that are on, and raises a Violation if a
rule is broken. Random calls are in `qless`, and their judge is in `verdicts_qless`.
"""

from typing import Any, Final

from beanpole.pb import users_pb2
from beanpole.protocol.resp.client import Reply, ReplyParser, encode
from beanpole.protocol.resp.values import Error
from beanpole.replication.pysyncobj.repairs import Repairs
from tests.sim.cluster import Violation
from tests.sim.history import host_of
from tests.sim.host import SimHost
from tests.sim.qless import NO_JOBS, SCRIPT
from tests.sim.schedules_node import REPLY_S, quick_world
from tests.sim.services import CallEnded, Services
from tests.sim.services import Caller as GrpcCaller
from tests.sim.stewards import EVERYWHERE, RIGHTS
from tests.sim.storm import Stuck
from tests.sim.wire import Wire
from tests.sim.world import World

# Of a lock, and of the grace period after it.
LOCK_S: Final = 1.0
# A lock has ended, and the grace period has not.
LATE_S: Final = 1.5
# The bytes that a user may have, and data that fits into them once, and not twice.
ROOM_BYTES: Final = 100
# A user, and a time that no schedule waits for.
NAME: Final = "ann"
LATER_S: Final = 1_000_000
LARGE: Final = b'{"data": "%s"}' % (b"x" * 50)


class Caller:
    """A scripted client, whose calls have the time of the world, or a later one."""

    def __init__(self, world: World, host: SimHost, ahead_s: float = 0.0) -> None:
        self.world = world
        self._ahead_s = ahead_s
        self._parser = ReplyParser()
        self._replies: list[Reply] = []
        self._wire = Wire(world, host, self, 0.0001, "qless")
        self._sha = self._ask(b"SCRIPT", b"LOAD", SCRIPT)

    def call(self, name: bytes, *args: bytes) -> Reply:
        """Make one call, and return its reply."""
        assert isinstance(self._sha, bytes), self._sha
        now = repr(self.world.clock.now_s + self._ahead_s).encode()
        return self._ask(b"EVALSHA", self._sha, b"0", name, now, *args)

    def _ask(self, *words: bytes) -> Reply:
        self._wire.send(encode(words))
        if not self.world.clock.run_until(lambda: bool(self._replies), REPLY_S):
            raise Stuck(f"no reply to {words!r} after {REPLY_S} s")
        return self._replies.pop()

    def received(self, wire: Wire, data: bytes) -> None:
        """Take bytes from the node."""
        self._parser.feed(data)
        while (found := self._parser.next()) is not None:
            self._replies.append(found[0])

    def ended(self, wire: Wire) -> None:
        """Note the end of the connection: no schedule here causes one."""
        raise Violation("a connection of qless was closed")


def a_warned_worker_renews_its_lock(_: int, repairs: Repairs) -> None:
    """A lock that was renewed in the grace period ends with a warning and another grace period."""
    world, leader = quick_world(repairs)
    holder, other = Caller(world, leader), Caller(world, leader)
    for option in (b"heartbeat", b"grace-period"):
        holder.call(b"config.set", option, repr(LOCK_S).encode())
    holder.call(b"put", b"holder", b"queue", b"job", b"klass", b"{}", b"0")
    if holder.call(b"pop", b"queue", b"holder", b"1") in NO_JOBS:
        raise Stuck("the job was not given out")
    for lock in ("first", "renewed"):
        world.clock.run(LATE_S)
        if (found := other.call(b"pop", b"queue", b"other", b"1")) not in NO_JOBS:
            raise Violation(f"its holder was not warned when the {lock} lock ended: {found!r}")
        holder.call(b"heartbeat", b"job", b"holder")


def data_that_grows_is_counted(_: int, repairs: Repairs) -> None:
    """A job that is put again with more data takes the room of all of it."""
    world, leader = quick_world(repairs)
    _bound_anonymous(world, leader)
    caller = Caller(world, leader)
    for jid, data in ((b"first", b"{}"), (b"first", LARGE), (b"second", LARGE)):
        reply = caller.call(b"put", b"worker", b"queue", jid, b"klass", data, b"0")
        is_in = not isinstance(reply, Error)
        if is_in != (jid == b"first"):
            raise Violation(f"of {ROOM_BYTES} bytes, and {jid!r} with {len(data)}: {reply!r}")


def a_reader_makes_no_job_due(_: int, repairs: Repairs) -> None:
    """A job that waits for its time goes on waiting, whatever time a user says that may only look.

    The clients of qless send the time, and each call that counts jobs makes those waiting that are
    due.
    """
    world, leader = quick_world(repairs)
    owner = Caller(world, leader)
    owner.call(b"put", b"owner", b"queue", b"job", b"klass", b"{}", b"%d" % LATER_S)
    _become(world, leader, [users_pb2.RIGHT_EVENTS])
    reader = Caller(world, leader, ahead_s=2.0 * LATER_S)
    for call in ((b"queues", b"queue"), (b"peek", b"queue", b"0", b"9")):
        if isinstance(reply := reader.call(*call), Error):
            raise Stuck(f"it may look, and is answered {reply!r}")
        if (found := owner.call(b"pop", b"queue", b"owner", b"1")) not in NO_JOBS:
            raise Violation(f"a reader made a job due: {found!r}")


def a_later_user_of_the_name(_: int, repairs: Repairs) -> None:
    """A connection that is a user by a rule has no rights when another user has that name."""
    world, leader = quick_world(repairs)
    # Without any user, every client may do everything.
    _change_users(world, leader, "Set", users_pb2.SetUserRequest(name="another"))
    _become(world, leader, RIGHTS)
    client = Caller(world, leader)
    look = (b"queues", b"queue")
    if isinstance(reply := client.call(*look), Error):
        raise Stuck(f"the rule gives it no right: {reply!r}")
    _change_users(world, leader, "SetRules", users_pb2.SetRulesRequest())
    _change_users(world, leader, "Drop", users_pb2.DropUserRequest(name=NAME))
    for user in ("dropped", "later"):
        if not isinstance(reply := client.call(*look), Error):
            raise Violation(f"it has the rights of a {user} user: {reply!r}")
        _become(world, leader, RIGHTS)


def _become(world: World, host: SimHost, some: Any) -> None:
    """Make new clients of qless one user, with these rights in a queue."""
    rights = [users_pb2.Rights(pattern="qless:queue", rights=some)]
    _change_users(world, host, "Set", users_pb2.SetUserRequest(name=NAME, rights=rights))
    rules = [users_pb2.Rule(protocol="qless", user=NAME)]
    _change_users(world, host, "SetRules", users_pb2.SetRulesRequest(rules=rules))


def _bound_anonymous(world: World, host: SimHost) -> None:
    """Give clients without a token all rights, and room for few bytes."""
    rights = [users_pb2.Rights(pattern=EVERYWHERE, rights=RIGHTS)]
    request = users_pb2.SetUserRequest(name="anonymous", rights=rights)
    request.limits.bytes_max = ROOM_BYTES
    _change_users(world, host, "Set", request)


def _change_users(world: World, host: SimHost, method: str, request: Any) -> None:
    services, done = Services(host), list[CallEnded | None]()
    caller: Any = GrpcCaller(host_of(0))  # as gRPC's own context
    call = getattr(services.users, method)
    services.begin(call(request, caller), lambda _, error: done.append(error))
    if not world.clock.run_until(lambda: bool(done), REPLY_S) or done != [None]:
        raise Stuck(f"users are not set: {done}")
