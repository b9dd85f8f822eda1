"""Kick chosen jobs, each only where it was when it was chosen, and count what became of them.

The choice is in `redriving`. Plain values, no Spark.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Final

from beanpole.client.admin import PART_IDS, Admin, AdminRefused
from beanpole.client.rpc import TOO_OLD
from beanpole.errors import ClientError
from beanpole.events import PROTOCOL_NAMES, QLESS
from beanpole.pb import jobs_pb2

STATES: Final = {"buried": jobs_pb2.JOB_STATE_BURIED, "delayed": jobs_pb2.JOB_STATE_DELAYED}
_QLESS: Final = f"{PROTOCOL_NAMES[QLESS]}:"


class Kicks:
    """What became of the jobs so far.

    Attributes:
        kicked: the number of jobs that were kicked.
        changed: the number of jobs that were ended or moved, or are in another state.
        qless: the number of jobs of qless, which only a client of qless may change.
        unsure: the number of jobs that a lost node may have kicked.
    """

    def __init__(self, state: str) -> None:
        """Begin with none; `state` is the state for which the jobs were chosen."""
        self.kicked = 0
        self.changed = 0
        self.qless = 0
        self.unsure = 0
        self._state = state

    def kick(self, admin: Admin, jobs: Iterable[tuple[str, int]]) -> None:
        """Kick jobs, given as queue and id, in the order of their queues.

        Raises:
            ClientError: no node answers, or it refuses. The counts hold for what was done before.
        """
        for queue, ids in _parts(jobs):
            if queue.startswith(_QLESS):
                self.qless += len(ids)
                continue
            request = jobs_pb2.ChangeRequest(
                action=jobs_pb2.JOB_ACTION_KICK,
                job_ids=ids,
                filter=jobs_pb2.JobFilter(queue=queue, states=[STATES[self._state]]),
            )
            try:
                told = admin.change(request)
            except BaseException as error:  # Ctrl-C, too
                self.unsure += len(admin.asked_again.intersection(ids))
                if isinstance(error, AdminRefused) and error.reason == "BAD_CHOICE":
                    raise ClientError(f"{TOO_OLD}: {error}") from None
                raise
            unsure = len(admin.unsure(told))
            self.kicked += told.changed
            self.unsure += unsure
            self.changed += len(ids) - told.changed - unsure

    def words(self) -> str:
        """Return the counts as one line."""
        words = [f"{self.kicked:,} kicked"]
        if self.changed:
            words.append(f"{self.changed:,} not: no longer {self._state} in that queue")
        if self.qless:
            words.append(f"{self.qless:,} not: use a client of qless")
        if self.unsure:
            words.append(f"{self.unsure:,} perhaps: without an answer")
        return "; ".join(words)


def _parts(jobs: Iterable[tuple[str, int]]) -> Iterator[tuple[str, list[int]]]:
    for queue, group in groupby(jobs, key=lambda job: job[0]):
        while ids := [job_id for _, job_id in islice(group, PART_IDS)]:
            yield queue, ids
