"""Effects: changes of jobs that clients of this node listen to.

They are no part of the state. Which jobs are listened to is each node's own affair, in no image and
in no hash; the machine computes nothing for the others. The listeners are in `beanpoled.frontends`.
"""

from typing import Final

# --- kinds ---------------------------------------------------------------------------------------
DONE: Final = 1  # it ended well; the data is its result
FAILED: Final = 2  # it failed for good; the data is its result
DELETED: Final = 3
EXPIRED: Final = 4  # its TTL ended
GONE: Final = 5  # it is not known any more how it ended: for nodes that look later
# Kinds from here on are those of NOTIFY: each protocol has its own words for them.
NOTIFIED_MIN: Final = 16
NOTIFIED_MAX: Final = 255
PROGRESS: Final = 255  # how far it is: of PROGRESS, in its protocol's own words

# (job id, kind, data). Below NOTIFIED_MIN it is the end of the job, and the last of its effects.
Effect = tuple[int, int, bytes]


class Effects:
    """The jobs that are listened to at this node, and what the present entry did to them.

    Attributes:
        listened: the ids of the jobs, for the node to change between entries.
        asked_for: the ids of jobs that clients want to listen to from this entry on, at whichever
            node: it learns of the job when the entry is applied, and the job may have ended by
            then.
        happened: in the order of the log, for the machine to take out.
    """

    __slots__ = ("asked_for", "happened", "listened")

    def __init__(self) -> None:
        self.listened: dict[int, None] = {}
        self.asked_for: dict[int, None] = {}
        self.happened: list[Effect] = []

    def tell(self, job_id: int, kind: int, data: bytes) -> None:
        """Something happened to a job."""
        listened = self.listened
        asked_for = self.asked_for
        if (listened and job_id in listened) or (asked_for and job_id in asked_for):
            self.happened.append((job_id, kind, data))
