"""Any input of a RESP client: nothing raises, and each request has one reply, in order."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from beanpoled.frontends.qless.connection import COMMANDS
from tests.unit.beanpoled.qless_scene import Scene, array
from tests.unit.core.qless.checking import check
from tests.unit.protocol.qless.scripts import core, dotted, seed, throttles, unified

SCRIPTS = [
    *(core(), dotted(), throttles(), unified()),
    *map(seed, ("Put", "Pop", "Complete", "Cancel", "Recur", "Queues", "Failed")),
]
ENDS = (b"quit",)
NAMES = st.sampled_from([tuple(name.split(b"|")) for name in COMMANDS if name not in ENDS])
WORDS = st.one_of(
    st.sampled_from(
        b'0 1 2 -1 3 1.5 1e400 nan x q w j k {} [] [1] {"a":[]} on off all ql:log ql:* * ['.split()
    ),
    st.sampled_from(
        b"delay priority tags retries depends throttles next interval backlog running complete "
        b"add remove get set unset update tag untag default 3 LIB-NAME AUTH SETNAME".split()
    ),
    st.binary(max_size=6),
)
CALLS = st.sampled_from(
    b"put pop peek complete fail retry heartbeat timeout cancel get multiget jobs queues length "
    b"priority depends track tag log failed unfail workers worker.deregister stats recur unrecur "
    b"recur.get recur.update recur.tag recur.untag config.get config.set config.unset pause "
    b"unpause queue.forget requeue throttle.set throttle.get throttle.delete throttle.locks "
    b"throttle.pending throttle.release throttle.ttl queue.put queue.pop queue.peek queue.counts "
    b"job.complete job.fail job.get job.retry jobs.tagged queues.counts recurringJob.get".split()
)
PLAIN = st.tuples(NAMES, st.lists(WORDS, max_size=4)).map(lambda it: (*it[0], *it[1]))
ANY_CALLS = st.tuples(
    st.sampled_from(SCRIPTS), st.integers(0, 1), CALLS, st.lists(WORDS, max_size=9)
).map(lambda it: (b"EVAL", it[0], b"%d" % it[1], it[2], *it[3]))
# Calls that are mostly valid: J stands for a jid, N for a number, and so on.
FORMS = (
    *(b"put N W Q J klass {} N", b"put N W Q J klass {} N O", b"requeue N W Q J klass {} N"),
    *(b"pop N Q W N", b"peek N Q N", b"complete N J W Q {}", b"complete N J W Q {} next Q O"),
    *(b"fail N J W group words", b"retry N J Q W", b"retry N J Q W N", b"heartbeat N J W"),
    *(b"timeout N J", b"cancel N J J", b"cancel N J", b"get N J", b"multiget N J J"),
    *(b"jobs N running Q", b"jobs N complete", b"jobs N depends Q N N", b"queues N", b"queues N Q"),
    *(b"length N Q", b"priority N J N", b"depends N J on J", b"depends N J off all", b"track N"),
    *(b"track N track J", b"track N untrack J", b"tag N add J a b", b"tag N remove J a"),
    *(b"tag N get a N N", b"tag N top N N", b"log N J words", b"failed N", b"failed N group N N"),
    *(
        b"unfail N Q group N",
        b"workers N",
        b"workers N W",
        b"worker.deregister N W",
        b"stats N Q N",
    ),
    *(b"recur N Q J klass {} interval N N O", b"unrecur N J", b"recur.get N J", b"pause N Q"),
    *(b"recur.update N J interval N", b"recur.tag N J a", b"unpause N Q", b"queue.forget N Q"),
    *(b"config.set N heartbeat N", b"config.set N Q-max-concurrency N", b"config.get N"),
    *(b"throttle.set N t N N", b"throttle.get N t", b"throttle.locks N t", b"throttle.pending N t"),
    *(b"throttle.release N t J", b"throttle.delete N t", b"config.unset N heartbeat"),
)
OPTIONS = (b"depends", b'["j"]', b"priority", b"2", b"tags", b'["a"]', b"throttles", b'["t"]')
KINDS: dict[bytes, st.SearchStrategy[Any]] = {
    b"N": st.sampled_from([b"0", b"1", b"2", b"3", b"60", b"100", b"1.5", b"-1"]),
    b"J": st.sampled_from([b"j", b"k", b"l"]),
    b"Q": st.sampled_from([b"q", b"r"]),
    b"W": st.sampled_from([b"w", b"v", b""]),
    b"O": st.integers(0, 3).map(lambda place: OPTIONS[2 * place : 2 * place + 2]),
}


@st.composite
def real_calls(draw: st.DrawFn) -> tuple[bytes, ...]:
    """Draw a call that is probably valid."""
    words: list[bytes] = []
    for word in draw(st.sampled_from(FORMS)).split():
        drawn: Any = draw(KINDS[word]) if word in KINDS else word
        words += drawn if isinstance(drawn, tuple) else [drawn]
    return (b"EVAL", draw(st.sampled_from(SCRIPTS[:4:2])), b"0", *words)


QLESS = st.one_of(real_calls(), real_calls(), ANY_CALLS)
REQUESTS = st.lists(st.one_of(QLESS, PLAIN), max_size=20)


@settings(max_examples=150, deadline=None)
@given(REQUESTS, st.booleans(), st.integers(0, 3))
def test_every_request_has_its_reply(
    requests: list[tuple[bytes, ...]], flushes: bool, pause: int
) -> None:
    scene = Scene(qless_flush="on" if flushes else "off")
    client, listener = scene.connect(), scene.connect(3)
    listener.send(b"PSUBSCRIBE *\r\n")
    for number, words in enumerate(requests):
        if pause and number % pause == 0:
            scene.commit_own()
        client.connection.received(array(*words))
    client.connection.received(array(b"RESET") + array(b"ECHO", b"the last"))
    scene.commit_own()
    said = client.port.take()
    assert not client.port.closed and not listener.port.closed
    assert said.endswith(b"+RESET\r\n$8\r\nthe last\r\n")
    check(scene.machine.qless)
    assert not client.connection._asked and not client.connection._replies.pending


@settings(max_examples=100, deadline=None)
@given(st.lists(QLESS, max_size=30))
def test_every_call_has_one_reply(requests: list[tuple[bytes, ...]]) -> None:
    scene = Scene()
    client = scene.connect()
    for words in requests:
        client.connection.received(array(*words) + array(b"ECHO", b"and\r\nthen\r\nthere"))
    scene.commit_own()
    parts = client.port.take().split(b"$16\r\nand\r\nthen\r\nthere\r\n")
    assert len(parts) == len(requests) + 1
    check(scene.machine.qless)
    assert parts[-1] == b""
    for part in parts[:-1]:
        assert part[:1] in (b"$", b"*", b":", b"+", b"-") and part.endswith(b"\r\n"), part
