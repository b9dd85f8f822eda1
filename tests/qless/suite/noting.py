"""The job of the workers' test: it notes its begin and end, and may wait for a file."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Final

# The duration of a job: so long that some jobs are running whenever a node is killed.
WORK_S: Final = 0.02
POLL_S: Final = 0.01
_NEVER = threading.Event()


def note(what: str, job: Any) -> None:
    """Append a line to the file of notes in a single write."""
    fields = {"what": what, "jid": job.jid, "worker": job.worker_name}
    line = json.dumps({**fields, "at": time.time(), "expires": job.expires_at}) + "\n"
    with Path(os.environ["NOTES"]).open("ab", buffering=0) as notes:
        notes.write(line.encode())


class Noting:
    """A class of jobs, as reqless-py-worker imports it."""

    @staticmethod
    def process(job: Any) -> None:
        """Do the work and complete the job."""
        note("begin", job)
        gate = json.loads(job.data).get("gate")
        if gate:
            while not Path(gate).exists():
                _NEVER.wait(POLL_S)
        _NEVER.wait(WORK_S)
        job.complete()
        note("end", job)
