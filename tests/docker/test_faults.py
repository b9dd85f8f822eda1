"""Kill, pause, cut off, move and slow containers under load: nothing is lost.

Every fault happens at least once; `make soak-docker` does the same for longer.
"""

import random
import sys
from pathlib import Path

from chaos import scenarios
from chaos.backends.contained import Contained
from chaos.containers import Containers
from chaos.rounds import Rounds

# Two rounds of all faults; a round takes about 35 s.
MINUTES = 1.0


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")


def test_nothing_is_lost(nodes: Containers, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    tell(f"seed {seed}")
    backend = Contained(tmp_path, nodes)
    backend.start_all()
    done = Rounds(backend, scenarios.possible(Contained), tmp_path, seed, tell).run(MINUTES)
    tell("\n".join(done.figures))
    assert not done.findings, f"seed {seed}: {done.findings}"
