"""Links between nodes in memory: delay, loss, duplication, reordering, partitions, full buffers.

By default a link behaves like TCP: messages arrive in order, and those in flight are lost when it
breaks. With `datagrams` it is worse than any real link, which exposes code that relies on order by
accident.
"""

import random
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from typing import Protocol

from tests.sim.clock import Clock


class Receiver(Protocol):
    """A node as the network sees it."""

    def receive(self, peer: str, message: bytes) -> None:
        """Take a message."""
        ...

    def connected(self, peer: str) -> None:
        """Note a new link."""
        ...

    def disconnected(self, peer: str) -> None:
        """Note that the link is gone."""
        ...


# (sender, receiver, message) -> the delays with which copies of the message arrive
Filter = Callable[[str, str, bytes], Iterable[float]]


class Network:
    """All links of a cluster."""

    def __init__(self, clock: Clock, seed: int, delay_s: float = 0.001) -> None:
        self.clock = clock
        self.random = random.Random(seed)
        self.delay_s = delay_s
        self.jitter_s = 0.0
        self.datagrams = False
        # Whether messages held up by a cut arrive if it heals in time, as by TCP's retransmission.
        # Otherwise they are lost although the link stays: only Raft's own messages tolerate that.
        self.streams = False
        self.lost = self.doubled = self.late = 0.0  # shares of the messages, with `datagrams`
        self.late_s = 0.5
        self.full_bytes = 2**40  # limit of the bytes in flight on one link
        self.dials = False  # whether nodes dial each other; otherwise links come up by themselves
        self.untraced: Callable[[bytes], bool] | None = None  # left out of the trace
        self.detect_s = 0.02  # until both ends notice that a link broke
        self.slow: dict[tuple[str, str], float] = {}
        # Bytes per second of one direction, behind a queue without an end that outlives the link.
        self.rates: dict[tuple[str, str], float] = {}
        self.filter: Filter | None = None
        # Changes a message on its way.
        self.spoil: Callable[[str, str, bytes], bytes] | None = None
        self.cut: set[tuple[str, str]] = set()
        self.sent = 0
        self.sent_bytes = 0
        self.trace = sha256()
        self._nodes: dict[str, Receiver] = {}
        self._links: dict[tuple[str, str], int] = {}  # (lower, higher) -> generation
        self._generation = 0
        self._in_flight: dict[tuple[str, str], int] = {}
        self._arrives_s: dict[tuple[str, str], float] = {}
        self._leaves_s: dict[tuple[str, str], float] = {}  # when the queue of `rates` is empty
        self._held_up: dict[tuple[str, str], list[tuple[int, bytes]]] = {}

    # --- nodes and links -------------------------------------------------------------------------

    def join(self, name: str, node: Receiver) -> None:
        """Add a running node; its links come up soon."""
        self._nodes[name] = node
        self._mend_soon()

    def leave(self, name: str) -> None:
        """Remove a dead node; its peers notice at once, because the system closes its sockets."""
        del self._nodes[name]
        for pair in sorted(self._links):
            if name in pair:
                self._break(pair)

    def partition(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Stop messages from the first to the second of each pair; replaces the previous cuts."""
        self.cut = set(pairs)
        for pair in sorted(self._links):
            if pair in self.cut or pair[::-1] in self.cut:
                self.clock.after(self.detect_s, partial(self._notice, pair, self._links[pair]))
        self._mend_soon()
        for way in [way for way in self._held_up if way not in self.cut]:
            for generation, message in self._held_up.pop(way):
                self._arrive(*way, generation, message)

    def isolate(self, *names: str) -> None:
        """Cut these nodes off from all others."""
        others = [other for other in sorted(self._nodes) if other not in names]
        pairs = [(name, other) for name in names for other in others]
        self.partition(pairs + [pair[::-1] for pair in pairs])

    def heal(self) -> None:
        """Let all messages through again."""
        self.partition(())

    def reset(self, a: str, b: str) -> None:
        """Break one link; it comes up again soon."""
        if _pair(a, b) in self._links:
            self._break(_pair(a, b))

    def mend(self) -> None:
        """End the queues of `rates`; their links break, because what the queues hold is gone."""
        for way in self.rates:
            for times_s in (self._leaves_s, self._arrives_s):
                times_s.pop(way, None)
            self.reset(*way)
        self.rates.clear()

    def is_linked(self, a: str, b: str) -> bool:
        """Return whether two nodes have a link."""
        return _pair(a, b) in self._links

    def generation(self, a: str, b: str) -> int:
        """Return the number of the link between two nodes; 0 for none."""
        return self._links.get(_pair(a, b), 0)

    def dial(self, dialer: str, other: str, failed: Callable[[], None]) -> None:
        """Make a link after one round trip, or call `failed`."""
        node = self._nodes[dialer]

        def answer() -> None:
            pair = _pair(dialer, other)
            if self._nodes.get(dialer) is not node:
                return  # that process is gone
            cut = pair in self.cut or pair[::-1] in self.cut
            if other not in self._nodes or pair in self._links or cut:
                failed()
            else:
                self._connect(pair)

        self.clock.after(2 * self.delay_s, answer)

    def _mend_soon(self) -> None:
        if not self.dials:
            self.clock.after(self.detect_s / 2, self._mend)

    def _mend(self) -> None:
        names = sorted(self._nodes)
        for place, low in enumerate(names):
            for high in names[place + 1 :]:
                pair = (low, high)
                if pair in self._links or pair in self.cut or pair[::-1] in self.cut:
                    continue
                self._connect(pair)

    def _connect(self, pair: tuple[str, str]) -> None:
        self._generation += 1
        self._links[pair] = self._generation
        self._in_flight[pair] = self._in_flight[pair[::-1]] = 0
        for name, peer in (pair, pair[::-1]):
            if pair in self._links:  # the first callback may have killed a process
                self._nodes[name].connected(peer)

    def _notice(self, pair: tuple[str, str], generation: int) -> None:
        cut = pair in self.cut or pair[::-1] in self.cut
        if self._links.get(pair) == generation and cut and not self.datagrams:
            self._break(pair)

    def _break(self, pair: tuple[str, str]) -> None:
        del self._links[pair]
        for name, peer in (pair, pair[::-1]):
            if name in self._nodes:
                self._nodes[name].disconnected(peer)
        self._mend_soon()

    # --- messages --------------------------------------------------------------------------------

    def in_flight(self, sender: str, receiver: str) -> int:
        """Return the number of bytes in flight in one direction."""
        return self._in_flight.get((sender, receiver), 0)

    def last_arrival_s(self, sender: str, receiver: str) -> float:
        """Return the time at which everything sent so far arrives, unless it is cut off."""
        return self._arrives_s.get((sender, receiver), 0.0)

    def send(self, sender: str, receiver: str, message: bytes, forced: bool = False) -> bool:
        """Send; False if there is no link, or too much is in flight and `forced` is not set."""
        way = (sender, receiver)
        generation = self._links.get(_pair(sender, receiver))
        if generation is None or (self._in_flight[way] > self.full_bytes and not forced):
            return False
        if self.spoil is not None:
            message = self.spoil(sender, receiver, message)
        self.sent += 1
        self.sent_bytes += len(message)
        leaves_s = self._pass_queue(way, len(message))
        for delay_s in self._delays(sender, receiver, message):
            arrives_s = leaves_s + delay_s
            if not self.datagrams:
                arrives_s = max(arrives_s, self._arrives_s.get(way, 0.0))
                self._arrives_s[way] = arrives_s
            self._in_flight[way] += len(message)
            self.clock.at(arrives_s, lambda: self._arrive(sender, receiver, generation, message))
        return True

    def _pass_queue(self, way: tuple[str, str], size: int) -> float:
        """Return the time at which a message leaves the queue of its direction."""
        rate = self.rates.get(way)
        if rate is None:
            return self.clock.now_s
        leaves_s = max(self.clock.now_s, self._leaves_s.get(way, 0.0)) + size / rate
        self._leaves_s[way] = leaves_s
        return leaves_s

    def _delays(self, sender: str, receiver: str, message: bytes) -> Iterable[float]:
        if self.filter is not None:
            return self.filter(sender, receiver, message)
        delay_s = self.delay_s + self.jitter_s * self.random.random()
        delay_s += self.slow.get((sender, receiver), 0.0)
        if not self.datagrams:
            return (delay_s,)
        dice = self.random.random()
        if dice < self.lost:
            return ()
        if dice < self.lost + self.doubled:
            return (delay_s, delay_s + self.random.random() * self.late_s)
        if dice < self.lost + self.doubled + self.late:
            return (delay_s + self.random.random() * self.late_s,)
        return (delay_s,)

    def _arrive(self, sender: str, receiver: str, generation: int, message: bytes) -> None:
        way, pair = (sender, receiver), _pair(sender, receiver)
        if self._links.get(pair) == generation:
            self._in_flight[way] -= len(message)
        elif not self.datagrams:
            return
        if way in self.cut and self.streams and not self.datagrams:
            self._in_flight[way] += len(message)
            self._held_up.setdefault(way, []).append((generation, message))
            return
        if way in self.cut or receiver not in self._nodes:
            return
        if self.untraced is None or not self.untraced(message):
            self.trace.update(f"{self.clock.now_s:.6f}{sender}{receiver}".encode() + message)
        self._nodes[receiver].receive(sender, message)


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)
