"""`beanpole import-qless`: import data that real reqless and qless-py left in a real Redis.

The data goes to a cluster of three nodes. Then both sides get calls of the same script, which only
Redis runs, and must give the same replies, except for jobs that were running.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support.nodes import Cluster
from tests.integration.support.processes import Process, answers
from tests.integration.support.raw import Address
from tests.integration.support.resp import Failure, Resp, evaluate
from tests.integration.support.waiting import wait_until
from tests.qless.suites import FLUSH, PORT_TIMEOUT_S, PYTHON, REQLESS, environment
from tests.qless.theirs import Redis, builds

pytestmark = pytest.mark.timeout(200)

NOW = 1_700_000_000.0
TIMEOUT_S = 100.0
MANY = 1500
# The unordered lists in a job's reply.
UNORDERED = ("dependencies", "dependents", "tags")


class Calls:
    """A client that calls the real script at a server."""

    def __init__(self, address: Address, dialect: str) -> None:
        self.client = Resp(address)
        self.dialect = dialect
        (text,) = builds()[dialect].values()
        self._sha = self.client.text("SCRIPT", "LOAD", text)

    def __call__(self, name: str, now: float, *words: str | float) -> Any:
        reply = evaluate(self.client, self._sha, [], [name, now, *words])
        assert not isinstance(reply, Failure), (name, words, reply)
        return reply

    def json(self, name: str, now: float, *words: str | float) -> Any:
        return json.loads(self(name, now, *words))

    def put(
        self, queue: str, jid: str, *options: str | float, delay: float = 0, at: float = 0
    ) -> None:
        worker = [] if self.dialect == "unified" else ["producer"]
        words = (queue, jid, "mod.Klass", json.dumps({"jid": jid}), delay, *options)
        self("put", NOW + at, *worker, *words)

    def pop(self, queue: str, at: float, count: int = 1) -> list[str]:
        found = self.json("pop", NOW + at, queue, "worker", count)
        return [job["jid"] for job in found] if found else []

    def job(self, jid: str) -> dict[str, Any]:
        found: dict[str, Any] = self.json("get", 0, jid)
        for name in UNORDERED:
            found[name] = sorted(found[name])
        return found


Connect = Callable[..., Calls]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("import"), 3, FLUSH).running() as found:
        addresses = [node.speaks("qless") for node in found.nodes]
        wait_until(lambda: all(map(answers, addresses)), PORT_TIMEOUT_S, "the ports of qless")
        yield found


def addresses_of(cluster: Cluster) -> list[Address]:
    return [node.speaks("qless") for node in cluster.nodes]


@pytest.fixture
def empty(cluster: Cluster, redis: Redis) -> None:
    for address in (cluster.nodes[0].speaks("qless"), redis.address):
        with Resp(address) as client:
            assert client.ask("FLUSHDB") == "OK"


@pytest.fixture
def connect() -> Iterator[Connect]:
    """A maker of connections that close at the end of the test."""
    with ExitStack() as stack:

        def made(address: Address, dialect: str = "throttles") -> Calls:
            calls = Calls(address, dialect)
            stack.callback(calls.client.close)
            return calls

        yield made


def command(*words: str) -> list[str]:
    program = "import sys; from beanpoled.cli import main; sys.exit(main())"
    return [sys.executable, "-c", program, "import-qless", *words]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def table(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers in the report by kind, without kinds that have no items."""
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    return {kind: tuple(map(int, n)) for kind, *n in rows if n[0] != "0"}


def fill(calls: Calls) -> None:
    """Create jobs in every state of the dialect, and other data."""
    calls("config.set", NOW, "heartbeat", 300)
    calls("config.set", NOW, "own-option", "5")
    for number in range(40):
        calls.put("mail", f"m{number}", "priority", number % 3 / 4, at=number / 8)
    calls.put("mail", "tagged", "tags", '["red","blue"]', "retries", 2, at=9)
    calls("tag", NOW + 20, "add", "tagged", "green")
    calls("log", NOW + 21, "tagged", "said", '{"a": [1, {"b": null}]}')
    calls("track", NOW + 22, "track", "tagged")
    calls.put("mail", "later", at=10, delay=10_000.5)
    calls.put("mail", "a", "depends", '["m2"]')
    calls.put("mail", "b", "depends", '["m1","a"]')
    calls.put("mail", "c", "depends", '["a","b"]')
    for number in range(4):
        calls.put("broken", f"f{number}", at=number)
    # One job has used its attempts, and the others fail in an order other than that of their puts.
    popped = calls.pop("broken", 30, 4)
    for place, jid in enumerate(reversed(popped)):
        calls("fail", NOW + 40 + place, jid, "worker", "group", f"why {place}")
    calls.put("retried", "r0", "retries", 0, at=3)
    assert calls.pop("retried", 50) == ["r0"]
    calls("retry", NOW + 51, "r0", "retried", "worker", 0)
    calls.put("retried", "r1", at=3)
    assert calls.pop("retried", 52) == ["r1"]
    calls("retry", NOW + 53, "r1", "retried", "worker", 0, "later", "it was not ready")
    calls.put("done", "d0")
    calls.put("done", "d1")
    for jid in calls.pop("done", 60, 2):
        calls("complete", NOW + 61, jid, "worker", "done", '{"result": 1}')
    calls.put("busy", "run", at=4)
    assert calls.pop("busy", 70) == ["run"]
    calls.put("busy", "stall", at=4)
    assert calls.pop("busy", 71) == ["stall"]
    calls("timeout", NOW + 72, "stall")
    calls("recur", NOW, "times", "every", "mod.Klass", "{}", "interval", 60, 0, "tags", '["t"]')
    assert calls.pop("times", 130, 9) == ["every-1", "every-2", "every-3"]
    calls("pause", NOW, "halted")
    calls.put("halted", "h", at=5)


EXPECTED = {
    "waiting": 43,
    "running": 4,
    "scheduled": 1,
    "depends": 3,
    "stalled": 1,
    "failed": 5,
    "complete": 2,
    "recurring": 1,
    "queues": 7,
    "options": 2,
    "tracked": 1,
}
RAN = ("run", "every-1", "every-2", "every-3")
WAITED = [f"m{number}" for number in range(40)] + ["tagged", "r1", "h"]
OTHERS = ["later", "a", "b", "c", "f0", "f1", "f2", "f3", "r0", "d0", "d1"]


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("dialect", ["throttles", "unified"])
def test_everything_comes_over_and_only_once(
    connect: Connect, cluster: Cluster, redis: Redis, dialect: str
) -> None:
    addresses = addresses_of(cluster)
    there = connect(redis.address, dialect)
    fill(there)
    dry = run(redis.address, "--dry-run", "--to", addresses[0])
    assert (dry.returncode, dry.stderr) == (0, "")
    assert table(dry) == {kind: (count,) for kind, count in EXPECTED.items()}
    done = run(redis.address, "--to", ",".join(addresses))
    assert (done.returncode, done.stderr) == (0, ""), done
    assert table(done) == {kind: (n, n, 0, 0) for kind, n in EXPECTED.items()}
    # Use another node than that of the import.
    here = connect(addresses[1], dialect)
    see_the_same(there, here)
    again = run(redis.address, "--to", addresses[2])
    assert again.returncode == 0, again
    assert table(again) == {kind: (n, 0, n, 0) for kind, n in EXPECTED.items()}
    see_the_same(there, here)
    see_them_run(there, here)


def see_the_same(there: Calls, here: Calls) -> None:
    for jid in (*WAITED, *OTHERS):
        # In Redis a retry leaves the last worker and expiry in the job.
        nobody = {"worker": "", "expires": 0}
        assert here.job(jid) == {**there.job(jid), **nobody}, jid
    for jid in RAN:
        job, before = here.job(jid), there.job(jid)
        assert (job["state"], before["state"]) == ("stalled", "running")
        assert job["history"][:-1] == before["history"]
        assert job["history"][-1]["what"] == "timed-out"
        for name in ("data", "klass", "priority", "queue", "remaining", "retries", "tags"):
            assert job[name] == before[name], (jid, name)
    questions: list[tuple[str, list[str | float]]] = [
        ("failed", []),
        ("failed", ["group", 0, 25]),
        ("failed", ["failed-retries-retried", 0, 25]),
        ("tag", ["get", "green", 0, 25]),
        ("tag", ["get", "t", 0, 25]),
        ("config.get", []),
        ("recur.get", ["every"]),
    ]
    for question, words in questions:
        assert here.json(question, 0, *words) == there.json(question, 0, *words), question
    asked = ("ZSCORE", "ql:q:times-recur", "every")
    assert here.client.ask(*asked) == there.client.ask(*asked)
    tracked = here.json("track", 0)["jobs"]
    assert [job["jid"] for job in tracked] == ["tagged"]
    queues = [queue["name"] for queue in there.json("queues", 0)]
    assert [queue["name"] for queue in here.json("queues", 0)] == queues
    assert here.json("queues", 0, "halted")["paused"] is True
    # A paused queue returns no jobs on either side.
    assert here.pop("halted", 80) == there.pop("halted", 80) == []


def see_them_run(there: Calls, here: Calls) -> None:
    """Check that both sides return the same jobs in the same order, and continue equally."""
    order = there.pop("mail", 90, 100)
    assert len(order) == 41
    assert here.pop("mail", 90, 100) == order
    assert here.pop("busy", 90, 9)[:1] in (["run"], ["stall"])
    assert here.pop("retried", 90, 9) == there.pop("retried", 90, 9) == ["r1"]
    for jid in ("m1", "m2", "a", "b"):
        for side in (there, here):
            if jid in "ab":
                assert side.pop("mail", 95, 1) == [jid]
            side("complete", NOW + 96, jid, "worker", "mail", "{}")
    assert here.job("c")["state"] == there.job("c")["state"] == "waiting"
    assert here("unfail", NOW + 97, "again", "group", 2) == 2
    assert there("unfail", NOW + 97, "again", "group", 2) == 2
    assert sorted(here.pop("again", 98, 9)) == sorted(there.pop("again", 98, 9))
    made = [jid for jid in here.pop("times", 190, 9) if jid not in RAN]
    assert made == ["every-4"]
    assert here.pop("mail", 10_009, 9)[0] == "c"
    assert here.pop("mail", 10_011, 9) == ["later"]


@pytest.mark.usefixtures("empty")
def test_throttles_go_on_to_hold_jobs_back(
    connect: Connect, cluster: Cluster, redis: Redis
) -> None:
    address = addresses_of(cluster)[0]
    there = connect(redis.address)
    there("throttle.set", NOW, "lone", 1)
    there("throttle.set", NOW, "brief", 7, 3000)
    there("queue.throttle.set", NOW, "q", 2)
    for number in range(4):
        there.put("q", f"j{number}", "throttles", '["lone"]', at=number)
    assert there.pop("q", 10, 4) == ["j0"]
    assert there.job("j1")["state"] == "throttled"
    done = run(redis.address, "--to", address)
    assert done.returncode == 0, done
    found = table(done)
    assert (found["throttled"], found["running"], found["throttles"]) == (
        *((3, 3, 0, 0), (1, 1, 0, 0), (3, 3, 0, 0)),
    )
    here = connect(address)
    assert here.json("throttle.get", 0, "lone")["maximum"] == 1
    assert 0 < here("throttle.ttl", 0, "brief") <= 3000
    for jid in ("j0", "j1", "j2", "j3"):
        assert here.pop("q", 20, 4) == [jid]
        here("complete", NOW + 21, jid, "worker", "q", "{}")


@pytest.mark.usefixtures("empty")
def test_what_reqless_itself_left_is_worked_off(
    cluster: Cluster, redis: Redis, tmp_path: Path
) -> None:
    """Its client puts, pops and fails jobs in Redis; then its client works at a node."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, reqless\n"
        "queue = reqless.Client('redis://' + sys.argv[1]).queues['work']\n"
        "if sys.argv[2] == 'fill':\n"
        "    for n in range(20): queue.put('a.B', '{\"n\": %d}' % n, jid='j%d' % n, priority=n)\n"
        "    queue.pop().fail('group', 'why')\n"
        "    queue.pop().complete()\n"
        "    queue.pop()\n"
        "else:\n"
        "    while (job := queue.pop()): print(job.jid, job.data); job.complete()\n"
    )

    def reqless(address: Address, what: str) -> list[str]:
        return subprocess.run(
            [str(PYTHON), str(program), address, what],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
            env=environment(REQLESS),
        ).stdout.splitlines()

    reqless(redis.address, "fill")
    addresses = addresses_of(cluster)
    done = run(f"redis://{redis.address}/0", "--to", addresses[0])
    assert done.returncode == 0, done
    lines = reqless(addresses[1], "work")
    # The job that was running comes first.
    expected = [17, *range(16, -1, -1)]
    assert [line.split(" ", 1)[0] for line in lines] == [f"j{n}" for n in expected]


@pytest.mark.usefixtures("empty")
def test_the_leader_dies_meanwhile(
    connect: Connect, cluster: Cluster, redis: Redis, tmp_path: Path
) -> None:
    there = connect(redis.address)
    for number in range(MANY):
        there.put("q", f"j{number}", at=number / 100)
    leader = cluster.leader()
    addresses = addresses_of(cluster)
    addresses = addresses[leader:] + addresses[:leader]
    here = connect(addresses[1])
    process = Process(command(redis.address, "--to", ",".join(addresses)), tmp_path / "import.log")
    wait_until(lambda: here("length", 0, "q") > 100, TIMEOUT_S, process.story())
    cluster.kill(leader)
    try:
        assert process.wait(TIMEOUT_S) == 0, process.story()
        assert here("length", 0, "q") == MANY
        order = [there.pop("q", 100, 500) for _ in range(3)]
        assert [here.pop("q", 100, 500) for _ in range(3)] == order
    finally:
        cluster.start(leader)
        cluster.wait_until_serving(leader)


@pytest.mark.usefixtures("empty")
def test_what_cannot_be_brought_is_named_and_the_rest_comes(
    connect: Connect, cluster: Cluster, redis: Redis
) -> None:
    address = addresses_of(cluster)[0]
    there = connect(redis.address)
    for jid in ("good", "large", "odd"):
        there.put("q", jid)
    there.put("q", "behind", "depends", '["large"]')
    there.put("q", "x", "depends", '["y"]')
    there.put("q", "y", "depends", '["good"]')
    there.put("q", "x", "depends", '["y"]')
    there("depends", NOW, "y", "on", "x")
    there("config.set", NOW, "own", "theirs")
    client = there.client
    assert client.ask("HSET", "ql:j:large", "data", "x" * (1024 * 1024 + 1)) == 0
    assert client.ask("HSET", "ql:j:odd", "retries", "many") == 0
    # Data and history are each within their limits, but not together with a class name.
    assert client.ask("HSET", "ql:j:both", *both_fields()) == 5
    for _ in range(2):
        client.ask("RPUSH", "ql:j:both-history", json.dumps([1, "x" * (512 * 1024)]))
    here = connect(address)
    here("config.set", NOW, "own", "ours")
    done = run(redis.address, "--to", address)
    assert done.returncode == 3
    reasons = done.stderr.splitlines()
    for part in (
        "waiting 'large': nothing was done: bytes of data: 1048576 at most",
        "waiting 'odd': its retries, remaining or priority is no number",
        "waiting 'both': it is too large: 2097152 bytes at most",
        "depends 'behind': it waits for 'large', which was refused",
        "depends 'x': it waits for itself, or for jobs that do",
        "options 'own': the cluster has 'ours' and keeps it",
    ):
        assert f"refused: {part}" in reasons, done.stderr
    assert table(done)["waiting"] == (4, 1, 0, 3)
    assert here.job("good")["state"] == "waiting"


def both_fields() -> list[str]:
    fields = {"jid": "both", "state": "waiting", "queue": "q", "data": "x" * (1024 * 1024)}
    return [word for pair in (*fields.items(), ("klass", "K")) for word in pair]


# --- servers that are none ------------------------------------------------------------------------


@pytest.mark.usefixtures("empty")
def test_servers_that_cannot_be_read_are_named(redis: Redis) -> None:
    nobody = run("127.0.0.1:1", "--dry-run")
    assert nobody.returncode == 3
    assert "the Redis at 127.0.0.1:1 cannot be read" in nobody.stderr
    assert "refused" in nobody.stderr
    nothing = run(redis.address, "--dry-run")
    assert nothing.returncode == 3
    assert "this database of the Redis has no key of qless" in nothing.stderr
    with Resp(redis.address) as client:
        client.ask("HSET", "ql:j:new", "jid", "new", "state", "pondering")
        newer = run(redis.address, "--dry-run")
        assert "'new' has the state 'pondering'" in newer.stderr
        assert "newer layout" in newer.stderr
        client.ask("DEL", "ql:j:new")
        client.ask("SET", "ql:j:odd", "text")
        wrong = run(redis.address, "--dry-run")
        assert "'ql:j:odd' has another type than qless gives it" in wrong.stderr
        client.ask("DEL", "ql:j:odd")
        client.ask("SET", "ql:queues", "text")
        wrong = run(redis.address, "--dry-run")
        assert "'ql:queues' has another type than qless gives it" in wrong.stderr
        assert {nobody.returncode, newer.returncode, wrong.returncode} == {3}


@pytest.mark.usefixtures("empty")
def test_a_password_is_asked_for_and_given(connect: Connect, redis: Redis, tmp_path: Path) -> None:
    connect(redis.address).put("q", "a")
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    with Resp(redis.address) as client:
        client.ask("CONFIG", "SET", "requirepass", "open sesame")
        try:
            without = run(redis.address, "--dry-run")
            assert without.returncode == 3
            assert "NOAUTH" in without.stderr and "--password-file" in without.stderr
            given = run(redis.address, "--dry-run", "--password-file", str(secret))
            assert table(given)["waiting"] == (1,)
            secret.write_text("wrong\n")
            wrong = run(redis.address, "--dry-run", "--password-file", str(secret))
            assert wrong.returncode == 3
            assert "WRONGPASS" in wrong.stderr
        finally:
            client.ask("CONFIG", "SET", "requirepass", "")
