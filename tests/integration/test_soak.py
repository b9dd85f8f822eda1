"""A short soak: every kind of fault once or so, and every reply of the clients judged.

The long one is `make soak`; what is done is in chaos/README.md.
"""

import random
import sys
from pathlib import Path

import pytest

from chaos.soak import Soak

MINUTES = 0.35


@pytest.mark.timeout(240)
def test_short_soak(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    told: list[str] = [f"seed {seed}"]
    soak = Soak(tmp_path, seed, MINUTES, told.append)
    good = soak.run()
    story = "\n".join([*told, *soak.figures, *soak.findings])
    sys.stdout.write(story + "\n")
    assert good, f"make soak MINUTES={MINUTES} ARGS='--seed {seed}'\n{story}"
