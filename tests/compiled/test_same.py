"""The compiled tree and the sources agree: on the machine after a log, on the requests in bytes.

`make test` builds the tree first; without it these tests fail with a hint.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.compiled.apply_log import HEAD
from tests.sim.storm import Storm

ROOT = Path(__file__).resolve().parents[2]
SOURCES = f"{ROOT / 'cluster'}:{ROOT / 'node'}"
COMPILED = str(ROOT / "build" / "compiled")
WORDS = (
    b"put 1 0 5 3\r\nabc\r\n",
    b"put 0 0 60 2000\r\n" + b"x" * 2000 + b"\r\n",
    b"put 5 -1 4 1\r\n",
    b"reserve\r\n",
    b"reserve-with-timeout 4294967296\r\n",
    b"delete 18446744073709551615\r\n",
    b"delete 1 2\r\n",
    b"release 7 4294967295 0\r\n",
    b"bury 1 0\r\n",
    b"watch " + b"t" * 200 + b"\r\n",
    b"use a-b+c/d;e.f$g_h()\r\n",
    b"kick 99999999999999999999\r\n",
    b"pause-tube x 1\r\n",
    b"stats-job abc\r\n",
    b"\0\r\n",
    b"list-tubes\n",
    b"y" * 300 + b"\r\n",
)


def apply_log(path: str, log: Path, sent: Path) -> dict[str, Any]:
    """Return the output of `apply_log.py` on one of the trees."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("apply_log.py")), str(log), str(sent)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("seed", [7, 11, 29])
def test_both_trees_do_the_same(seed: int, tmp_path: Path) -> None:
    storm = Storm(seed)
    storm.run()
    entries = sorted(storm.world.witness.log.items())
    log, sent = tmp_path / "log", tmp_path / "sent"
    log.write_bytes(b"".join(HEAD.pack(index, len(entry)) + entry for index, (_, entry) in entries))
    dice = random.Random(seed)
    sent.write_bytes(b"".join(dice.choice(WORDS) for _ in range(2000)))
    source, compiled = apply_log(SOURCES, log, sent), apply_log(COMPILED, log, sent)
    assert not source.pop("compiled")
    assert compiled.pop("compiled"), "run `make compiled`"
    assert source == compiled
    assert source["index"] > 100
