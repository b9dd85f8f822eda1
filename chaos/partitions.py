"""Partitions of a real network: one-way cuts, bridges, loss and resets between three namespaces.

`python -m chaos.partitions --minutes n` (root) runs it: the clients of a soak use all nodes while
the links between nodes, and now and then those of clients, are broken one way or the other. A
majority that hears each other is not always left; after each fault everything heals and the nodes
must serve again. The judges are those of `soak`; the status is 0 only if nothing was lost,
invented, doubled or stuck.
"""

import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from chaos import namespaces, rounds
from chaos.ground import check_compiled
from chaos.namespaces import CLIENTS, NAMES, Namespaces, address, others
from tests.integration.support.waiting import wait_for_time

FLAPS_S: Final = (0.05, 0.8)
LOSS_PERCENT: Final = (5, 20, 40)
RATES: Final = ("128kbit", "512kbit", "2mbit")
INSIDE: Final = "CHAOS_NAMESPACE"


class Faults:
    """Each method breaks the network, waits, and returns a few words; `heal` is the caller's."""

    def __init__(self, network: Namespaces, seed: int) -> None:
        self._network = network
        self._chance = random.Random(seed)

    def _victim(self) -> int:
        # The leader in 40 of 100 cases or more: faults of followers are seldom noticed.
        if self._chance.random() < 0.4:
            return self._network.leader()
        return self._chance.randrange(len(NAMES))

    def _wait(self) -> str:
        seconds = rounds.spread(self._chance)
        wait_for_time(seconds)
        return f"for {seconds:.1f} s"

    def _pair(self) -> tuple[int, int]:
        one = self._victim()
        return one, self._chance.choice(others(one))

    def _one_way(self, *pairs: tuple[int, int]) -> str:
        """Cut the way from each first to each second node; return how.

        Either TCP goes on, so that the other way works for as long as this one is cut; or nothing
        arrives, so that the other way stands, too, once TCP waits for acknowledgements.
        """
        words = self._chance.random() < 0.5
        for source, target in pairs:
            cut = self._network.hush if words else self._network.cut
            cut(address(source), target)
        return "data only" if words else "all"

    def deaf(self) -> str:
        """A node sends and hears nothing of the others; its clients reach it."""
        victim = self._victim()
        how = self._one_way(*((other, victim) for other in others(victim)))
        return f"{NAMES[victim]} hears no node ({how}) {self._wait()}"

    def mute(self) -> str:
        """A node hears all and none of the others hears it."""
        victim = self._victim()
        how = self._one_way(*((victim, other) for other in others(victim)))
        return f"no node hears {NAMES[victim]} ({how}) {self._wait()}"

    def one_way(self) -> str:
        one, other = self._pair()
        how = self._one_way((one, other))
        return f"{NAMES[other]} does not hear {NAMES[one]} ({how}) {self._wait()}"

    def bridge(self) -> str:
        """Two nodes are apart and the third one has links to both: a ring of majorities."""
        one, other = self._pair()
        self._network.cut(address(one), other)
        self._network.cut(address(other), one)
        return f"{NAMES[one]} and {NAMES[other]} are apart {self._wait()}"

    def circle(self) -> str:
        """Each node hears one of the others only, and another one than hears it."""
        how = self._one_way(*((n, (n + 1) % len(NAMES)) for n in range(len(NAMES))))
        return f"each hears one other ({how}) {self._wait()}"

    def isolated(self) -> str:
        victim = self._victim()
        for other in others(victim):
            self._network.cut(address(other), victim)
            self._network.cut(address(victim), other)
        return f"{NAMES[victim]} is alone {self._wait()}"

    def shattered(self) -> str:
        for number in range(len(NAMES)):
            for other in others(number):
                self._network.cut(address(other), number)
        return f"all are alone {self._wait()}"

    def flapping(self) -> str:
        """The link of a leader to a follower goes and comes, one way or both."""
        leader = self._network.leader()
        other = self._chance.choice(others(leader))
        both = self._chance.random() < 0.5
        flaps = self._chance.randrange(3, 12)
        for _ in range(flaps):
            self._network.cut(address(leader), other)
            if both:
                self._network.cut(address(other), leader)
            wait_for_time(self._chance.uniform(*FLAPS_S))
            self._network.heal()
            wait_for_time(self._chance.uniform(*FLAPS_S))
        return f"{NAMES[leader]} to {NAMES[other]} {flaps} times"

    def reset(self) -> str:
        one, other = self._pair()
        self._network.reset(address(one), other)
        return f"{NAMES[other]} resets {NAMES[one]} {self._wait()}"

    def lossy(self) -> str:
        victim, percent = self._victim(), self._chance.choice(LOSS_PERCENT)
        self._network.lose(victim, percent)
        return f"{NAMES[victim]} loses {percent} of 100 packets {self._wait()}"

    def slow(self) -> str:
        victim, rate = self._victim(), self._chance.choice(RATES)
        self._network.slow(victim, rate)
        return f"{NAMES[victim]} sends {rate} {self._wait()}"

    def unheard_clients(self) -> str:
        victim = self._victim()
        self._network.cut(CLIENTS, victim)
        return f"{NAMES[victim]} hears no client {self._wait()}"

    def reset_clients(self) -> str:
        """The connections of a node's clients end in the middle of what they send."""
        victim = self._victim()
        self._network.reset(CLIENTS, victim)
        return f"{NAMES[victim]} resets clients {self._wait()}"

    def killed_beside(self) -> str:
        """A node dies while the leader is cut one way; it comes back before the cut heals."""
        leader = self._network.leader()
        victim, other = self._chance.sample(others(leader), 2)
        self._network.cut(address(other), leader)
        self._network.kill(victim)
        words = self._wait()
        self._network.start(victim)
        return f"{NAMES[victim]} died, {NAMES[leader]} did not hear {NAMES[other]} {words}"

    def frozen_beside(self) -> str:
        """A node stands while it is cut off, so that all its timers are late when it wakes."""
        victim = self._victim()
        for other in others(victim):
            self._network.cut(address(victim), other)
        self._network.signal(victim, signal.SIGSTOP)
        words = self._wait()
        self._network.signal(victim, signal.SIGCONT)
        return f"{NAMES[victim]} stood {words}"

    @classmethod
    def names(cls) -> Sequence[str]:
        return list(cls.ALL)

    def named(self) -> dict[str, rounds.Fault]:
        """Return the faults by name."""
        return {name: partial(fault, self) for name, fault in self.ALL.items()}

    ALL: Final[dict[str, Callable[["Faults"], str]]] = {
        "deaf": deaf,
        "mute": mute,
        "one way": one_way,
        "bridge": bridge,
        "circle": circle,
        "isolated": isolated,
        "shattered": shattered,
        "flapping": flapping,
        "reset": reset,
        "lossy": lossy,
        "slow": slow,
        "unheard clients": unheard_clients,
        "reset clients": reset_clients,
        "killed beside": killed_beside,
        "frozen beside": frozen_beside,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one as the command line says; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = rounds.parse("partitions", __doc__, Faults.names(), given)
    if why := namespaces.missing() or (check_compiled() if options.compiled else ""):
        print(why, file=sys.stderr)
        return 2
    if INSIDE not in os.environ:
        words = ["unshare", "--net", sys.executable, "-m", "chaos.partitions", *given]
        # The same process goes on, so that whoever ends it ends all of it.
        os.chdir(rounds.ROOT)
        os.execvpe(words[0], words, {**os.environ, INSIDE: "1"})
    directory = rounds.begin("partitions", options)
    network = Namespaces(directory, options.compiled)
    return rounds.run(network, Faults(network, options.seed).named(), options, directory)


if __name__ == "__main__":
    sys.exit(main())
