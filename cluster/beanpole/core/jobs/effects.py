"""Effects: changes of jobs that clients of this node listen to.

Effects are no part of the state. The set of jobs with listeners is local to a node, in no image and
in no hash; for other jobs, the machine computes no effects. The listeners are in
`beanpoled.frontends`.
"""

from typing import Final

# --- kinds ---------------------------------------------------------------------------------------
DONE: Final = 1  # the job succeeded; the data is its result
FAILED: Final = 2  # the job failed for good; the data is its result
DELETED: Final = 3
EXPIRED: Final = 4  # the job's TTL ended
# The job has ended and its outcome is no longer known: for late listeners, and for clients whose
# sessions have ended.
GONE: Final = 5
# Kinds from here on are those of NOTIFY; each protocol defines its own, to 254.
NOTIFIED_MIN: Final = 16
NOTIFIED_MAX: Final = 255
PROGRESS: Final = 255  # the progress that PROGRESS reported, in the format of the job's protocol

# (job id, kind, data). A kind below NOTIFIED_MIN ends the job and is the last of its effects.
Effect = tuple[int, int, bytes]


class Effects:
    """The jobs that clients of this node listen to, and the effects of the present entry on them.

    Attributes:
        listened: the ids of these jobs; the node changes it between entries.
        asked_for: the ids of jobs that clients of any node begin to listen to in this entry. The
            node learns the id only when the entry is applied, and the job may have ended by then.
        happened: the effects in the order of the log, for the machine to take out.
    """

    __slots__ = ("asked_for", "happened", "listened")

    def __init__(self) -> None:
        self.listened: dict[int, None] = {}
        self.asked_for: dict[int, None] = {}
        self.happened: list[Effect] = []

    def record(self, job_id: int, kind: int, data: bytes) -> None:
        """Record an effect on a job, if the job has a listener."""
        listened = self.listened
        asked_for = self.asked_for
        if (listened and job_id in listened) or (asked_for and job_id in asked_for):
            self.happened.append((job_id, kind, data))
