"""A node whose machine differs stops with a message within one digest interval; the others go on.

There are two ways to differ: in transitions, which the state hash of every heartbeat shows, and
only in the image, which the canonical digest shows, which the log requests every DIGEST_PERIOD_US.
The same with real processes is in tests/integration/test_divergence.py.
"""

import pytest

from beanpole import commands as c
from beanpoled.leading import proposing
from beanpoled.leading.proposing import DIGEST_PERIOD_US
from beanpoled.peers.agreement import RELINK_US
from tests.sim.host import SimHost
from tests.sim.wire import Wire
from tests.sim.witness import Witness
from tests.sim.world import WatchedCallbacks, World

MARK = b"the job that one node spoils"
SPOILT = b"the job that one node spoilt"
PERIOD_S = DIGEST_PERIOD_US / 1e6
# Nodes' clocks run at the true rate here; an election and some heartbeats come in between.
SLACK_S = 2.0
# The state hash is in every heartbeat.
BEATS_S = 0.5
# A process takes longer to start than a link to come back.
RESTART_S = 4.0


class Diverging(World):
    """A world in which a node may end itself."""

    def __init__(self) -> None:
        super().__init__(11, 3)
        self.ends: dict[str, tuple[float, str]] = {}
        for name in self.names:
            self.start(name)
        assert self.clock.run_until(lambda: len(self.serving()) == 3, 5.0)

    def ended(self, host: SimHost) -> None:
        """Note the time and the reason."""
        self.ends[host.name] = (self.clock.now_s, host.end)
        self.crash(host.name)

    def led_by(self, leads: bool) -> SimHost:
        """Return the leader, or a follower."""
        leader = self.leader()
        assert leader is not None
        return leader if leads else next(host for host in self.serving() if host is not leader)


class Putter:
    """A client that puts again when its put is answered, at once or after a while."""

    def __init__(self, world: World, host: SimHost, after_s: float = 0.5, count: int = 1) -> None:
        self.inserted = 0
        self._world = world
        self._after_s = after_s
        self._wire = Wire(world, host, self, 0.0001)
        self._put(count)

    def _put(self, count: int) -> None:
        if self._wire.open:
            self._wire.send(b"put 9 0 60 4\r\nfill\r\n" * count)

    def received(self, wire: Wire, data: bytes) -> None:
        """Put as many jobs as were inserted."""
        count = data.count(b"INSERTED")
        self.inserted += count
        if count:
            self._world.clock.after(self._after_s, lambda: self._put(count))

    def ended(self, wire: Wire) -> None:
        """Stay away."""


class Listener:
    """A client that keeps everything it is sent."""

    def __init__(self, world: World, host: SimHost, request: bytes = b"") -> None:
        self.told = b""
        self._world = world
        self._wire = Wire(world, host, self, 0.0001)
        if request:
            self._wire.send(request)

    def ask(self, request: bytes) -> bytes:
        """Send a request and wait for any reply."""
        self.told = b""
        self._wire.send(request)
        assert self._world.clock.run_until(lambda: bool(self.told), 5.0), request
        return self.told

    def received(self, wire: Wire, data: bytes) -> None:
        """Keep the bytes."""
        self.told += data

    def ended(self, wire: Wire) -> None:
        """Keep what was received."""


def spoil(patch: pytest.MonkeyPatch, victim: str, only_image: bool) -> None:
    """Let one node treat the marked job differently."""
    honest = WatchedCallbacks.apply

    def apply(node: WatchedCallbacks, index: int, term: int, entry: bytes) -> None:
        marked = node.context.name == victim and MARK in entry
        if marked and not only_image:
            node.context.machine.queue.next_id += 1
        honest(node, index, term, entry)
        for job in node.context.machine.queue.jobs.values() if marked and only_image else ():
            if job.body == MARK:
                job.body = SPOILT

    patch.setattr(WatchedCallbacks, "apply", apply)
    # The witness would notice at once; here the nodes must notice by themselves.
    patch.setattr(Witness, "check_chain", lambda *_: None)
    patch.setattr(Witness, "check_events", lambda *_: None)


def put_marked(client: Listener) -> int:
    """Put the marked job; returns its id."""
    told = client.ask(b"put 1 0 60 %d\r\n%b\r\n" % (len(MARK), MARK))
    return int(told.removeprefix(b"INSERTED "))


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
@pytest.mark.parametrize("only_image", [True, False], ids=["image", "transitions"])
def test_a_node_that_differs_stops_in_time(
    monkeypatch: pytest.MonkeyPatch, leads: bool, only_image: bool
) -> None:
    world = Diverging()
    victim = world.led_by(leads)
    other = next(host for host in world.serving() if host is not victim)
    spoil(monkeypatch, victim.name, only_image)
    client, putter = Listener(world, other), Putter(world, other)
    job = put_marked(client)
    began_s = world.clock.now_s
    limit_s = PERIOD_S + SLACK_S if only_image else BEATS_S
    assert world.clock.run_until(lambda: bool(world.ends), limit_s), f"after {limit_s} s"
    ended_s, reason = world.ends[victim.name]
    assert ended_s - began_s <= limit_s
    assert "this replica differs from 2 of 3 members at index" in reason
    assert ("image" if only_image else "state hash") in reason and "--rejoin" in reason
    # The other nodes go on, and nothing is lost.
    before = putter.inserted
    world.clock.run(SLACK_S)
    assert list(world.ends) == [victim.name]
    assert MARK in client.ask(b"peek %d\r\n" % job)
    assert putter.inserted > before
    # With an empty disk it comes back equal to the others.
    world.disks[victim.name].wipe()
    world.oracle.wiped(victim.name)
    world.rejoin.add(victim.name)
    monkeypatch.undo()
    world.start(victim.name)
    assert world.clock.run_until(
        lambda: victim.name in {host.name for host in world.serving()}, 20.0
    )
    assert list(world.ends) == [victim.name]
    assert MARK in Listener(world, world.hosts[victim.name]).ask(b"peek %d\r\n" % job)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_two_that_differ_stop_both_while_the_third_is_away(
    monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    """An absent member has reported nothing, so neither of the two may show clients its state."""
    world = Diverging()
    victim = world.led_by(leads)
    other, third = (host for host in world.serving() if host is not victim)
    client = Listener(world, other)
    world.crash(third.name)
    world.clock.run(RELINK_US / 1e6)  # nodes wait for it as long as a link takes to come back
    spoil(monkeypatch, victim.name, only_image=False)
    job = put_marked(client)
    assert world.clock.run_until(lambda: bool(world.ends), BEATS_S)
    world.clock.run(SLACK_S)
    for name, differing in ((victim.name, other.name), (other.name, victim.name)):
        if name in world.ends:
            reason = world.ends[name][1]
            assert f"this replica differs from {differing} at index" in reason
            assert "no majority of the 3 members" in reason and "all that differ stop" in reason
            continue
        # Its last heartbeat was lost; one node alone is no majority and acknowledges nothing.
        late = Listener(world, world.hosts[name], b"put 1 0 60 4\r\nmore\r\n")
        world.clock.run(SLACK_S)
        assert b"INSERTED" not in late.told
        world.crash(name)
    # The third node decides: with the honest node's log it is a majority.
    monkeypatch.undo()
    world.start(third.name)
    world.start(other.name)
    assert world.clock.run_until(lambda: len(world.serving()) == 2, 20.0)
    host = next(iter(world.serving()))
    assert MARK in Listener(world, host).ask(b"peek %d\r\n" % job)


def test_one_that_differs_while_the_third_is_slow_stops_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A linked member may take a moment to show that it agrees."""
    world = Diverging()
    victim = world.led_by(leads=False)
    other = world.led_by(leads=True)
    third = next(host for host in world.serving() if host not in (victim, other))
    spoil(monkeypatch, victim.name, only_image=False)
    client = Listener(world, other)
    third.pause(0.08)
    put_marked(client)
    world.clock.run(SLACK_S)
    assert list(world.ends) == [victim.name]


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_one_that_differs_while_the_third_restarts_stops_alone(
    monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    """Found in a run of real nodes: a correct node did not wait for one that came back."""
    monkeypatch.setattr(proposing, "DIGEST_PERIOD_US", 1_000_000)
    world = Diverging()
    victim = world.led_by(leads)
    other, third = (host for host in world.serving() if host is not victim)
    spoil(monkeypatch, victim.name, only_image=True)
    client = Listener(world, other)
    job = put_marked(client)
    world.crash(third.name)
    agreement = other.node.agreement
    assert world.clock.run_until(lambda: agreement.image_disputed, 2.0)
    world.clock.run(RESTART_S)
    # Its first link is with the node that differs: the other one has not dialed yet.
    both = ((other.name, third.name), (third.name, other.name))
    world.network.partition(both)
    world.start(third.name)
    assert world.clock.run_until(lambda: world.network.is_linked(victim.name, third.name), 2.0)
    world.clock.run(1.0)
    world.network.heal()
    assert world.clock.run_until(lambda: bool(world.ends), 2 * SLACK_S)
    assert "this replica differs from 2 of 3 members at index" in world.ends[victim.name][1]
    world.clock.run(SLACK_S)
    assert list(world.ends) == [victim.name]
    assert MARK in Listener(world, other).ask(b"peek %d\r\n" % job)


def test_digests_are_asked_for_under_load_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests were once proposed only in turns that had nothing else to propose."""
    monkeypatch.setattr(proposing, "DIGEST_PERIOD_US", 500_000)
    world = Diverging()
    putters = [Putter(world, host, 0.0, 8) for host in world.serving()]
    world.clock.run(3.0)
    assert all(putter.inserted > 1000 for putter in putters)
    sections = [
        section for _, entry in world.witness.log.values() for section in c.decode_entry(entry)[3]
    ]
    asked = [
        section for section in sections if section[0] == c.LEADER and (c.DIGEST,) in section[3]
    ]
    assert 4 <= len(asked) <= 6
