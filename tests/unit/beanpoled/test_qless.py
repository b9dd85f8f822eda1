"""Calls and subscriptions of RESP clients at one node: replies, recipients and order."""

import json

import msgpack
import pytest

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.operations import qless as operations
from beanpole.qless import DATA_MAX_BYTES
from beanpoled.frontends.publications import CHANNELS_MAX, PATTERNS_MAX
from beanpoled.frontends.qless.heaviness import cost_of
from beanpoled.frontends.qless.subscriptions import CHANNEL_MAX_BYTES
from beanpoled.node_view import LocalNodeView
from beanpoled.origin.heavy import LIGHT_MAX
from beanpoled.view import SpaceFigures
from tests.unit.beanpoled.fakes import trust_of
from tests.unit.beanpoled.qless_scene import SCRIPT, Client, Scene, array
from tests.unit.core.cluster import copy_of

NOT_DONE = b"-ERR no majority of the nodes answers: it was not done\r\n"
PONG = b"+PONG\r\n"
JID = b"$1\r\nj\r\n"


@pytest.fixture
def scene() -> Scene:
    return Scene()


def put(jid: bytes = b"j", data: bytes = b"{}") -> tuple[bytes, ...]:
    return (b"put", b"1", b"worker", b"queue", jid, b"klass", data, b"0")


def put_request(scene: Scene, jid: bytes = b"j") -> bytes:
    return array(b"EVALSHA", scene.sha, b"0", *put(jid))


def confirmed(what: bytes, name: bytes | None, count: int, kind: bytes = b"*") -> bytes:
    """Return the confirmation of a subscription."""
    bulk = (b"_\r\n" if kind == b">" else b"$-1\r\n") if name is None else bulk_of(name)
    return b"%b3\r\n%b%b:%d\r\n" % (kind, bulk_of(what), bulk, count)


def bulk_of(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def told(channel: bytes, text: bytes, pattern: bytes = b"", kind: bytes = b"*") -> bytes:
    """Return a message on a channel."""
    words = [b"pmessage", pattern, channel, text] if pattern else [b"message", channel, text]
    return b"%b%d\r\n%b" % (kind, len(words), b"".join(map(bulk_of, words)))


def publish(scene: Scene, channel: bytes, text: bytes) -> None:
    """Publish a message, as an entry does."""
    scene.node.clients.publications.published([(channel, text)])
    scene.node.clients.flush()


# --- calls ----------------------------------------------------------------------------------------


def test_a_call_becomes_one_command_and_its_result_a_reply(scene: Scene) -> None:
    client, other = scene.connect(), scene.connect(3)
    assert client.send(put_request(scene)) == b""
    assert len(scene.commit_own()) == 3, "the session's two commands, and the call"
    assert client.port.take() == JID
    assert scene.machine.qless.jobs[b"j"].queue == b"queue"
    found = json.loads(other.call(b"get", b"2", b"j").split(b"\r\n")[1])
    assert (found["jid"], found["data"]) == ("j", "{}")
    assert other.call(b"get", b"2", b"none") == b"_\r\n"
    assert client.call(b"get", b"2", b"none") == b"$-1\r\n"


def test_operators_see_its_jobs(scene: Scene) -> None:
    client = scene.connect()
    for jid in (b"j", b"k"):
        client.call(*put(jid))
    client.call(b"pop", b"2", b"queue", b"worker", b"1")
    view = LocalNodeView(scene.node, trust_of())
    assert view.jobs() == (1, 1, 0, 0)
    metrics = view.metrics()
    assert metrics.spaces["qless"] == SpaceFigures(ready=1, reserved=1, queues=1, jobs_total=2)
    assert metrics.clients["qless"].connections == 2
    assert metrics.clients["qless"].commands_total["evalsha"] == 3


def test_a_script_may_come_with_its_call(scene: Scene) -> None:
    script = b"-- another text\n" + SCRIPT
    client = scene.connect()
    assert client.ask(array(b"EVAL", script, b"0", *put())) == JID
    assert client.ask(array(b"EVAL", script, b"1", *put())).startswith(b"-ERR ")


def test_what_is_no_call_is_refused_at_once(scene: Scene) -> None:
    client = scene.connect()
    assert client.send(array(b"EVALSHA", scene.sha, b"0", b"nonsense", b"1")).startswith(b"-ERR ")
    assert scene.commit_own() == []


def test_replies_keep_the_order_of_requests(scene: Scene) -> None:
    client = scene.connect()
    first, second = put_request(scene), put_request(scene, b"k")
    sent = first + b"PING\r\n" + second + b"nope\r\nPING\r\n"
    assert client.send(sent) == b""
    scene.commit_own()
    said = client.port.take()
    assert said.startswith(JID + PONG + b"$1\r\nk\r\n-ERR unknown command 'nope'")
    assert said.endswith(PONG)
    assert list(scene.machine.qless.jobs) == [b"j", b"k"]


def test_the_version_changes_between_replies(scene: Scene) -> None:
    """HELLO waits until earlier replies are written, which the client reads in the old version."""
    client = scene.connect()
    none = array(b"EVALSHA", scene.sha, b"0", b"get", b"1", b"none")
    said = client.ask(none + b"HELLO 3\r\n" + none + b"RESET\r\n" + none + b"PING\r\n")
    before, _, rest = said.partition(b"%7\r\n")
    assert before == b"$-1\r\n"
    assert rest.endswith(b"modules\r\n*0\r\n_\r\n+RESET\r\n$-1\r\n" + PONG)


def test_quit_waits_for_what_was_asked(scene: Scene) -> None:
    client = scene.connect()
    said = client.ask(put_request(scene) + b"QUIT\r\n" + put_request(scene, b"k"))
    assert said == JID + b"+OK\r\n"
    assert client.port.closed
    assert list(scene.machine.qless.jobs) == [b"j"]


def test_half_closed_clients_have_their_replies(scene: Scene) -> None:
    client = scene.connect()
    client.send(put_request(scene) + b"HELLO 3\r\nPING\r\n")
    client.connection.half_closed()
    scene.commit_own()
    said = client.port.take()
    assert said.startswith(JID + b"%7\r\n") and said.endswith(PONG)
    assert client.port.closed


def test_without_a_majority_nothing_is_done_and_that_is_said(scene: Scene) -> None:
    client = scene.connect()
    client.call(*put(b"first"))
    scene.follow(leader="n1", term=2)
    scene.node.router.link_down("n1")
    client.send(put_request(scene) + b"PING\r\n" + put_request(scene))
    scene.node.origin.expire(scene.node.context.loop_us + 1)
    scene.run()
    assert client.port.take() == NOT_DONE + PONG + NOT_DONE
    assert not client.port.closed


def test_an_unknown_outcome_closes_the_connection(scene: Scene) -> None:
    client = scene.connect()
    assert client.send(put_request(scene)) == b""
    scene.node.origin.expire(scene.node.context.loop_us + 1)
    scene.run()
    assert client.port.closed and client.port.take() == b""


def test_a_draining_node_makes_no_jobs(scene: Scene) -> None:
    client = scene.connect()
    scene.node.context.draining = True
    assert client.call(*put()) == b"-ERR this node is draining: it makes no jobs\r\n"
    assert client.call(b"get", b"2", b"j") == b"$-1\r\n"


def test_nothing_is_made_while_disks_are_full(scene: Scene) -> None:
    client = scene.connect()
    scene.apply(c.encode_entry(c.FLAG_PUTS_REFUSED, scene.machine.queue.now_us, 0, []))
    assert client.send(put_request(scene)).startswith(b"-ERR a limit of the cluster is reached")
    assert scene.commit_own() == []


def test_large_replies_bound_what_is_asked_for_at_a_time() -> None:
    scene = Scene(client_output_bytes_max=2 * DATA_MAX_BYTES)
    client = scene.connect()
    none = array(b"EVALSHA", scene.sha, b"0", b"get", b"1", b"none")
    client.send(none * 8)
    assert len(client.connection._asked) == 2
    assert client.ask(b"PING\r\n") == b"$-1\r\n" * 8 + PONG


HEAVY = [
    (q.POP, (b"q", b"w", 257)),
    (q.POP, (b"q", b"w", 0)),
    (q.CANCEL, ((b"j",) * 257,)),
    (q.DEPENDS_ON, (b"j", (b"k",) * 257)),
    (q.JOBS, (q.RUNNING, b"q", 0, 0)),
    (q.JOBS, (q.RUNNING, b"q", -1, 1)),
    (q.JOBS, (q.SCHEDULED, b"q", 0, 1)),
    (q.TAGGED, (b"a", -5, 5)),
    (q.FLUSH, ()),
]
LIGHT = [
    (q.POP, (b"q", b"w", 256)),
    (q.PEEK, (b"q", 0, 1)),
    (q.CANCEL, ((b"j",),)),
    (q.DEPENDS_OFF, (b"j", None)),
    (q.JOBS, (q.RUNNING, b"q", 0, 256)),
    (q.QUEUE_COUNTS, (None,)),
    (q.WORKER_JOBS, (b"w",)),
    (q.GET, (b"j",)),
]


@pytest.mark.parametrize(("calls", "heavy"), [(HEAVY, True), (LIGHT, False)])
def test_calls_that_look_at_many(
    scene: Scene, calls: list[tuple[int, tuple[object, ...]]], heavy: bool
) -> None:
    for code, arguments in calls:
        cost = cost_of(scene.machine.qless, code, 1.0, arguments)
        assert (cost > LIGHT_MAX) is heavy, (code, arguments)


def test_what_stands_behind_a_heavy_call_waits(scene: Scene) -> None:
    one, other = scene.connect(), scene.connect()
    none = array(b"EVALSHA", scene.sha, b"0", b"pop", b"1", b"queue", b"worker", b"1000")
    for client in (one, other):
        assert client.send(none + put_request(scene) + b"PING\r\n") == b""
    assert other.connection.blocked and len(other.connection._asked) == 1
    scene.commit_own()
    assert one.port.take() == b"$2\r\n{}\r\n" + JID + PONG
    popped, _, rest = other.port.take().partition(JID)
    assert b'"jid":"j"' in popped and rest == PONG, (
        "the second in the line pops the job of the first"
    )


# --- commands that are no scripts -----------------------------------------------------------------


def test_keys_tell_whether_there_is_anything(scene: Scene) -> None:
    client = scene.connect()
    assert client.ask(b"KEYS *\r\nDBSIZE\r\n") == b"*0\r\n:0\r\n"
    client.call(*put())
    assert client.ask(b"KEYS *\r\nKEYS foo*\r\nDBSIZE\r\n") == b"*1\r\n$3\r\nql:\r\n*0\r\n:1\r\n"


def test_flush_removes_everything_if_that_is_configured() -> None:
    scene = Scene(qless_flush="on")
    client = scene.connect()
    for command in (b"FLUSHDB\r\n", b"FLUSHALL ASYNC\r\n"):
        client.call(*put())
        assert client.ask(command + b"DBSIZE\r\n") == b"+OK\r\n:0\r\n"
        assert not scene.machine.qless.jobs


def test_the_next_time_of_a_recurring_job(scene: Scene) -> None:
    client, newer = scene.connect(), scene.connect(3)
    session = client.connection._session()
    template = (b"queue", b"t", b"klass", b"{}", 2.5, 8.0, 0.0, (), 5, 0.0, None)
    recur = operations.command(session, q.RECUR, q.CORE, 1.0, template)
    scene.node.origin.submit(None, -1, recur)
    scene.commit_own()
    asked = array(b"ZSCORE", b"ql:q:queue-recur", b"t")
    assert client.ask(asked) == b"$1\r\n9\r\n"
    assert newer.ask(asked) == b",9\r\n"
    nothing = array(b"ZSCORE", b"ql:q:queue-recur", b"u")
    assert (client.ask(nothing), newer.ask(nothing)) == (b"$-1\r\n", b"_\r\n")
    assert client.send(array(b"ZSCORE", b"ql:q:queue-work", b"t")).startswith(b"-ERR only the keys")


# --- subscriptions --------------------------------------------------------------------------------


def test_subscriptions_are_told_as_redis_does(scene: Scene) -> None:
    client = scene.connect()
    assert client.send(b"SUBSCRIBE a b a\r\nPSUBSCRIBE x*\r\n") == (
        confirmed(b"subscribe", b"a", 1)
        + confirmed(b"subscribe", b"b", 2)
        + confirmed(b"subscribe", b"a", 2)
        + confirmed(b"psubscribe", b"x*", 3)
    )
    assert client.send(b"UNSUBSCRIBE a\r\nUNSUBSCRIBE\r\nUNSUBSCRIBE\r\nPUNSUBSCRIBE\r\n") == (
        confirmed(b"unsubscribe", b"a", 2)
        + confirmed(b"unsubscribe", b"b", 1)
        + confirmed(b"unsubscribe", None, 1)
        + confirmed(b"punsubscribe", b"x*", 0)
    )
    newer = scene.connect(3)
    assert newer.send(b"SUBSCRIBE a\r\nPUNSUBSCRIBE\r\n") == (
        confirmed(b"subscribe", b"a", 1, b">") + confirmed(b"punsubscribe", None, 1, b">")
    )


def test_an_old_client_that_has_subscribed_may_do_little_else(scene: Scene) -> None:
    client = scene.connect()
    client.send(b"SUBSCRIBE a\r\n")
    assert (
        client.send(b"PING\r\nPING x\r\n")
        == b"*2\r\n$4\r\npong\r\n$0\r\n\r\n*2\r\n$4\r\npong\r\n$1\r\nx\r\n"
    )
    refused = (
        b"-ERR Can't execute '%b': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET "
        b"are allowed in this context\r\n"
    )
    for line, name in (
        (b"HELLO 3\r\n", b"hello"),
        (b"CLIENT ID\r\n", b"client|id"),
        (put_request(scene), b"evalsha"),
    ):
        assert client.send(line) == refused % name
    assert client.send(b"RESET\r\nPING\r\n") == b"+RESET\r\n" + PONG
    publish(scene, b"a", b"x")
    assert client.port.take() == b""
    newer = scene.connect(3)
    newer.send(b"SUBSCRIBE a\r\n")
    assert newer.ask(b"PING\r\n" + put_request(scene)) == PONG + JID


def test_what_is_published_is_told_to_those_that_subscribed(scene: Scene) -> None:
    one, newer, other = scene.connect(), scene.connect(3), scene.connect()
    one.send(b"SUBSCRIBE ql:log\r\nPSUBSCRIBE ql:* *g\r\n")
    newer.send(b"SUBSCRIBE ql:log ql:w:x\r\n")
    other.send(b"SUBSCRIBE log\r\nPSUBSCRIBE ql:?\r\n")
    publish(scene, b"log", b"text")
    publish(scene, b"w:x", b"more")
    assert one.port.take() == (
        told(b"ql:log", b"text")
        + told(b"ql:log", b"text", b"ql:*")
        + told(b"ql:log", b"text", b"*g")
        + told(b"ql:w:x", b"more", b"ql:*")
    )
    assert newer.port.take() == (
        told(b"ql:log", b"text", kind=b">") + told(b"ql:w:x", b"more", kind=b">")
    )
    assert other.port.take() == b""


def test_a_call_is_told_behind_its_own_reply(scene: Scene) -> None:
    old, newer = scene.connect(), scene.connect(3)
    old.send(b"SUBSCRIBE ql:log\r\n")
    newer.send(b"SUBSCRIBE ql:log\r\n")
    said = newer.ask(put_request(scene) + b"PING\r\n" + put_request(scene, b"k"))
    replies, _, pushed = said.partition(b">3\r\n")
    assert replies == JID + PONG + b"$1\r\nk\r\n"
    assert pushed.count(b">3\r\n") == 1
    said = old.port.take()
    assert said.count(b"*3\r\n") == 2
    assert b'"event":"put"' in said and said.index(b'"j"') < said.index(b'"k"')


def test_a_subscription_stands_behind_what_was_asked_before(scene: Scene) -> None:
    """Otherwise an old client would take a message for the reply that it waits for."""
    client = scene.connect()
    assert client.send(put_request(scene) + b"SUBSCRIBE ql:log\r\nPING\r\n") == b""
    publish(scene, b"log", b"too early")
    scene.commit_own()
    assert client.port.take() == (
        JID + confirmed(b"subscribe", b"ql:log", 1) + b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"
    )


def test_the_machine_makes_messages_while_somebody_hears_them(scene: Scene) -> None:
    def heard() -> bool:
        return scene.machine.qless.heard

    one, two = scene.connect(), scene.connect(3)
    assert not heard()
    one.send(b"SUBSCRIBE a\r\n")
    two.send(b"PSUBSCRIBE b*\r\n")
    assert heard()
    one.send(b"UNSUBSCRIBE\r\n")
    assert heard()
    scene.load(copy_of(scene.machine))
    assert heard(), "a snapshot does not end it"
    two.connection.lost()
    assert not heard()
    one.send(b"SUBSCRIBE a\r\nRESET\r\n")
    assert not heard()


def test_a_client_that_does_not_read_is_closed(scene: Scene) -> None:
    client = scene.connect(3)
    client.send(b"SUBSCRIBE ql:log\r\n")
    client.connection.stall()
    publish(scene, b"log", b"x")
    assert client.port.closed and client.port.take() == b""
    publish(scene, b"log", b"x")


def test_the_limits_of_subscriptions(scene: Scene) -> None:
    client = scene.connect()
    long = b"x" * (CHANNEL_MAX_BYTES + 1)
    assert client.send(array(b"SUBSCRIBE", long)).startswith(b"-ERR a channel has")
    assert client.send(array(b"PSUBSCRIBE", long)).startswith(b"-ERR a pattern has")
    for command, most in ((b"SUBSCRIBE", CHANNELS_MAX), (b"PSUBSCRIBE", PATTERNS_MAX)):
        names = [b"%d" % number for number in range(most)]
        client.send(array(command, *names))
        said = client.send(array(command, b"one more", names[0]))
        assert said.startswith(b"-ERR a client has %d" % most) and said.endswith(
            b":%d\r\n" % client.scene.node.clients.publications.count_of(client.connection)
        )


def test_a_session_that_is_refused_is_the_end(scene: Scene) -> None:
    client: Client = scene.connect()
    client.send(put_request(scene))
    client.connection.answered(-2, c.OUT_OF_MEMORY)
    assert client.port.closed and client.port.take().startswith(b"-ERR a limit")


# --- imports --------------------------------------------------------------------------------------


def packed(*args: object, now: object = 5.0) -> bytes:
    """Return the argument of BEANPOLE.IMPORT."""
    found = msgpack.packb((now, args), use_bin_type=True)
    assert isinstance(found, bytes)
    return found


def imported(
    jid: bytes,
    *,
    data: bytes = b"{}",
    history: tuple[object, ...] = (),
    more: tuple[object, ...] = (),
) -> bytes:
    fields = (b"q", jid, b"K", data, q.WAITING, 0.0, 5, 5, 0.0, 1.0, None, (), history, None)
    return packed(*fields, (), (), b"", *more)


def test_imports_make_what_is_not_there(scene: Scene) -> None:
    client = scene.connect()
    history = ((1.0, q.HAS_LOGGED, b"m", b'{"a":1}'),)
    asked = array(b"BEANPOLE.IMPORT", b"job", imported(b"a", history=history))
    assert client.ask(asked + asked) == b":1\r\n:0\r\n"
    template = packed(b"q", b"r", b"K", b"{}", 1.0, 9.0, 0.0, (), 5, 0.0, None, 3)
    assert client.ask(array(b"beanpole.import", b"RECURRING", template)) == b":1\r\n"
    assert client.ask(array(b"BEANPOLE.IMPORT", b"queue", packed(b"x", True))) == b":1\r\n"
    t = scene.machine.qless
    assert (list(t.jobs), list(t.recurring), list(t.queues)) == ([b"a"], [b"r"], [b"q", b"x"])


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"nothing", imported(b"a")),
        (b"job", b""),
        (b"job", b"\xc1"),
        (b"job", msgpack.packb(5)),
        (b"job", msgpack.packb((1.0, 5))),
        (b"job", b"\x91" * 5000 + b"\x90"),
        (b"job", b"\x92\xcb\x40\x00\x00\x00\x00\x00\x00\x00" + b"\x91" * 1020 + b"\x90"),
        (b"job", imported(b"a", more=(1,))),
        (b"job", packed(now=float("nan"))),
        (b"job", imported(b"a", history=((1.0, q.HAS_LOGGED, b"m", b"no object"),))),
        (b"queue", packed(b"x", 1)),
    ],
)
def test_an_import_that_is_none_is_refused(scene: Scene, kind: bytes, body: bytes) -> None:
    client = scene.connect()
    refused = b"-ERR wrong arguments of an import: nothing was done\r\n"
    assert client.send(array(b"BEANPOLE.IMPORT", kind, body)) == refused
    assert client.send(b"PING\r\n") == PONG


def test_an_import_that_is_too_large_is_refused_by_its_limit(scene: Scene) -> None:
    client = scene.connect()
    body = imported(b"a", data=b"x" * (DATA_MAX_BYTES + 1))
    said = client.send(array(b"BEANPOLE.IMPORT", b"job", body))
    assert said == b"-ERR nothing was done: bytes of data: 1048576 at most\r\n"


def test_a_draining_node_takes_no_import(scene: Scene) -> None:
    client = scene.connect()
    scene.node.context.draining = True
    said = client.send(array(b"BEANPOLE.IMPORT", b"job", imported(b"a")))
    assert said.startswith(b"-ERR this node is draining")


def test_a_node_that_stops_gives_no_job(scene: Scene) -> None:
    client = scene.connect()
    assert client.call(*put()) == JID
    scene.node.clients.leave()
    call = array(b"EVALSHA", scene.sha, b"0", b"pop", b"1", b"queue", b"worker", b"1")
    assert client.send(call) == b"$2\r\n{}\r\n"
    assert scene.node.origin.is_idle()
