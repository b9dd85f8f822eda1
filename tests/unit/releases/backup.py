"""Record tests/fixtures/backup-1: `python -m tests.unit.releases.backup`.

This is a backup of format 1 that every later release has to read and restore. It is made once:
another format gets another file.
"""

from pathlib import Path
from typing import Final

from beanpole import commands as c
from beanpole.core.image.contents import Contents
from beanpole.storage.backups import Writer
from beanpoled.disk.backups import summary
from tests.unit.core.cluster import Cluster, image_of

FIXTURE: Final = Path(__file__).resolve().parents[2] / "fixtures" / "backup-1"
TERM: Final = 3


def machine() -> Cluster:
    """Make jobs in all states of beanstalk, a key and a paused tube, at a released version."""
    cluster = Cluster()
    cluster.lead((c.RAISE, 3))
    cluster.open(1)
    for number in range(6):
        cluster.put(b"body %d" % number, priority=number % 2, delay_s=90 if number == 5 else 0)
    cluster.do(c.BURY, 1, cluster.reserve(), 4)
    cluster.reserve()
    cluster.do(c.PUT_KEYED, 1, b"keyed", 0, 0, 60, b"with a key", b"key")
    cluster.do(c.PAUSE_TUBE, 1, b"keyed", 600)
    return cluster


def main() -> None:
    """Write the file."""
    cluster = machine()
    contents = Contents()
    about = {
        "cluster": "test",
        "node": "n1",
        "birth": "00" * 16,
        "members": ["n0", "n1", "n2"],
        "index": cluster.machine.index,
        "term": TERM,
        "program": "0.4.0.dev0",
        "created_s": 1_790_000_000,
    }
    with FIXTURE.open("xb") as stream:
        writer = Writer(stream, about)
        for chunk in image_of(cluster.machine):
            contents.take(chunk)
            writer.add(chunk)
        writer.finish(summary(contents))


if __name__ == "__main__":
    main()
