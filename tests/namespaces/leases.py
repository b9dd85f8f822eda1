"""Print what clients see of a fault between a node and its leader: `FAULT DIRECTORY`.

`test_partitions` runs this program in a namespace of its own. A worker holds a job at a follower
and sends nothing; another client waits for a job at the third node. The worker's connection must
end before the job goes to the other.
"""

import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chaos.backends.namespaces import DATA, Namespaces, run
from chaos.scenarios.common import others
from tests.integration.support.raw import Raw

# The queue of a path grows by about a second in a second, until a fence at 6.5 s.
TIMEOUT_S: Final = 60.0
# Less than the heartbeats of the two other nodes, behind a queue that drops nothing.
TRICKLE: Final = ("rate", "24kbit", "burst", "4kb", "latency", "100s")
TTR_S: Final = 3600


def deafen_leader(network: Namespaces, leader: int, victim: int) -> None:
    """Lose what the node sends to its leader; what the leader sends arrives."""
    network.cut(victim, leader, DATA)


def trickle(network: Namespaces, _: int, victim: int) -> None:
    """Let everything that is sent to the node arrive later and later."""
    run("tc", "qdisc", "replace", "dev", f"port{victim}", "root", "tbf", *TRICKLE)


def first_to_hear(network: Namespaces, fault: Callable[[Namespaces, int, int], None]) -> list[str]:
    """Return, in order, what the worker and the other client see after a fault."""
    leader = network.leader()
    victim, third = others(leader)
    addresses = network.addresses()
    with Raw(addresses[victim], TIMEOUT_S) as worker, Raw(addresses[third], TIMEOUT_S) as other:
        worker.put(b"job", ttr_s=TTR_S)
        worker.ask(b"reserve", b"RESERVED 1 3")
        worker.expect(b"job")
        other.send(b"reserve\r\n")
        fault(network, leader, victim)
        streams = {worker.stream: "worker", other.stream: "other"}
        seen: list[str] = []
        while streams:
            ready, _, _ = select.select(list(streams), [], [], TIMEOUT_S)
            assert ready, f"after {seen} nothing happened"
            seen += [f"{streams.pop(stream)} {stream.recv(100)!r}" for stream in ready]
    return seen


FAULTS: Final = {fault.__name__: fault for fault in (deafen_leader, trickle)}


def main(fault: str, directory: Path) -> None:
    """Try a fault with new nodes."""
    network = Namespaces(directory, compiled=False)
    try:
        network.start_all()
        sys.stdout.write(f"{', '.join(first_to_hear(network, FAULTS[fault]))}\n")
    finally:
        network.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
