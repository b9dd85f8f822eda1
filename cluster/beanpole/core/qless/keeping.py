"""Notices before something of qless changes, for a copy that is made meanwhile.

Here is only what whoever changes a table must call, and when; the copy is in `core.image`.
"""

from abc import ABC, abstractmethod

from beanpole.core.qless.job import QlessJob


class Keeper(ABC):
    """A copy of the state in progress: whatever is about to change is given to it first."""

    @abstractmethod
    def keep_job(self, job: QlessJob) -> None:
        """Keep a job as it is."""
