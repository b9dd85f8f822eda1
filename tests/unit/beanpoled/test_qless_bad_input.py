"""Bad input of clients of qless: a clear error, no partial effect, an open connection."""

import json

import pytest

from beanpole import qless as q
from beanpoled.frontends.qless.calls import READ_IN_A_ROW_BYTES
from tests.unit.beanpoled.qless_scene import Client, Scene, array
from tests.unit.core.qless.checking import check
from tests.unit.protocol.qless.scripts import throttles

MANY_TAGS = json.dumps([f"t{number}" for number in range(10_000)]).encode()
MANY_JIDS = json.dumps([f"d{number}" for number in range(100_000)]).encode()
LONG = b"n" * (q.NAME_MAX_BYTES + 1)
LARGE = b'"%b"' % (b"x" * q.DATA_MAX_BYTES)
DEEP = b"[" * 129 + b"]" * 129


@pytest.fixture
def client() -> Client:
    """Return a client that has put "a", on which "b" depends, and has popped "p"."""
    scene = Scene()
    loaded = scene.connect().send(array(b"SCRIPT", b"LOAD", throttles()))
    scene.sha = loaded[5:-2]
    found = scene.connect()
    put = (b"put", b"100", b"w", b"q")
    assert found.call(*put, b"p", b"K", b"{}", b"0") == b"$1\r\np\r\n"
    assert b"running" in found.call(b"pop", b"101", b"q", b"w", b"1")
    assert found.call(*put, b"a", b"K", b"{}", b"0") == b"$1\r\na\r\n"
    assert found.call(*put, b"b", b"K", b"{}", b"0", b"depends", b'["a"]') == b"$1\r\nb\r\n"
    return found


PUT = (b"put", b"102", b"w", b"q")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), b"Must provide a command"),
        ((b"nope", b"1"), b"Unknown command nope"),
        ((b"put",), b'Arg "now" missing or not a number: nil'),
        ((b"put", b"later"), b'Arg "now" missing or not a number: nil'),
        ((b"put", b"nan", b"w", b"q", b"x", b"K", b"{}", b"0"), b'Arg "now" missing'),
        ((*PUT,), b'Put(): Arg "jid" missing'),
        ((*PUT, b"x", b"K", b"{a}", b"0"), b"Expected object key string"),
        ((*PUT, b"x", b"K", b"", b"0"), b"Expected value but found T_END"),
        ((*PUT, b"x", b"K", DEEP, b"0"), b"too many nested data structures"),
        ((*PUT, b"x", b"K", b"{}", b"soon"), b'Put(): Arg "delay" not a number: soon'),
        ((*PUT, b"x", b"K", b"{}", b"0", b"tags"), b"Odd number of additional args"),
        ((*PUT, b"x", b"K", b"{}", b"0", b"tags", b"red"), b"Expected value"),
        ((*PUT, b"x", b"K", b"{}", b"0", b"tags", MANY_TAGS), b"more than 1000 tags"),
        ((*PUT, b"x", b"K", b"{}", b"0", b"depends", MANY_JIDS), b"more than 1000 dependencies"),
        ((*PUT, LONG, b"K", b"{}", b"0"), b"a name has more than 4096 bytes"),
        ((*PUT, b"x", b"K", LARGE, b"0"), b"data has more than 1048576 bytes"),
        ((*PUT, b"a", b"K", b"{}", b"0", b"depends", b'["b"]'), b"depends on itself"),
        ((*PUT, b"a", b"K", b"{}", b"0", b"depends", b'["a"]'), b"depends on itself"),
        (
            (b"tag", b"102", b"add", b"a", *[b"t%d" % one for one in range(2000)]),
            b"more than 1000 tags",
        ),
        ((b"complete", b"102", b"p", b"w", b"q", b"{"), b"Expected object key string"),
        ((b"complete", b"102", b"p", b"v", b"q", b"{}"), b"handed out to another worker: w"),
        ((b"complete", b"102", b"p", b"w", b"q", LARGE), b"data has more than 1048576 bytes"),
        ((b"heartbeat", b"102", b"p", b"w", b"nothing"), b"invalid token"),
        ((b"cancel", b"102", b"a"), b"a is a dependency of b but is not mentioned"),
        ((b"cancel", b"102", *[b"c%d" % one for one in range(2000)]), b"more than 1000 jobs"),
        ((b"pop", b"102", b"q", b"w", b"many"), b'Arg "count" missing or not a number: many'),
    ],
)
def test_a_bad_call_does_nothing(client: Client, words: tuple[bytes, ...], error: bytes) -> None:
    t = client.scene.machine.qless
    before = [(job.jid, job.state, dict(job.tags), len(job.history)) for job in t.jobs.values()]
    size = t.bytes
    said = client.call(*words)
    assert said.startswith(b"-ERR ") and said.count(b"\r\n") == 1, said
    assert error in said
    assert [(job.jid, job.state, dict(job.tags), len(job.history)) for job in t.jobs.values()] == (
        before
    )
    assert t.bytes == size
    check(t)
    assert client.call(b"complete", b"103", b"p", b"w", b"q", b"{}") == b"$8\r\ncomplete\r\n"


def test_others_have_a_turn_while_large_arguments_are_read(client: Client) -> None:
    """JSON that only cjson accepts takes 2.5 us for a byte: 256 KiB of it held a node for 0.6 s."""
    data = b"[%b0x1" % (b"0," * 500)
    call = array(b"EVALSHA", client.scene.sha, b"0", *PUT, b"x", b"K", data, b"0")
    count = 60
    client.connection.received(call * count)
    sizes = [client.port.take().count(b"-ERR")]
    while not client.port.reading:
        soon, client.scene.host.soon = client.scene.host.soon, []
        for callback in soon:
            callback()
        client.scene.node.clients.flush()
        sizes.append(client.port.take().count(b"-ERR"))
    assert sum(sizes) == count
    # The first row is written with the second one.
    assert max(sizes) <= 2 * (1 + READ_IN_A_ROW_BYTES // len(data))


def test_an_unknown_script_and_keys(client: Client) -> None:
    assert client.send(array(b"EVALSHA", b"0" * 40, b"0")).startswith(b"-NOSCRIPT ")
    assert client.send(array(b"EVAL", b"return 1", b"0")).startswith(b"-ERR unsupported script")
    said = client.send(array(b"EVALSHA", client.scene.sha, b"1", b"key", b"get", b"1", b"a"))
    assert said.startswith(b"-ERR ")
    assert client.send(array(b"EVALSHA", client.scene.sha, b"2", b"key")).startswith(b"-ERR ")
    assert b'"jid":"a"' in client.call(b"get", b"102", b"a")


def test_time_that_goes_backwards(client: Client) -> None:
    """A clock that is behind pops and completes as well, but no lock expires by it."""
    said = client.call(b"pop", b"50", b"q", b"v", b"9")
    assert b'"jid":"a"' in said and b'"expires":110' in said and b'"jid":"p"' not in said
    assert client.call(b"complete", b"-5", b"a", b"v", b"q", b"{}") == b"$8\r\ncomplete\r\n"
    assert b'"state":"waiting"' in client.call(b"get", b"0", b"b")
    # The job waited for -50 seconds, and "p" for 1: the histogram has no bin below zero.
    assert b'"count":2,"mean":-24.5' in client.call(b"stats", b"50", b"q", b"50")
    check(client.scene.machine.qless)


def test_more_dependents_than_may_be(client: Client) -> None:
    """Of 1,100 jobs that would depend on a job, 1,000 do; the limit refuses the others."""
    refused = 0
    for number in range(1100):
        jid = b"d%d" % number
        said = client.call(*PUT, jid, b"K", b"{}", b"0", b"depends", b'["a"]')
        refused += b"the limit is 1000" in said
        assert said.startswith(b"-ERR" if refused else b"$")
    t = client.scene.machine.qless
    assert refused == 101  # "b" is one of them
    assert len(t.jobs[b"a"].dependents) == q.DEPENDENCIES_MAX
    assert b"d1099" not in t.jobs
    assert client.call(b"cancel", b"103", b"d0") == b"*1\r\n$2\r\nd0\r\n"
    check(t)
