"""Notices before jobs, tubes and holders change, for a copy that is made meanwhile.

Here is only what the queue must call, and when. Which copy that is stands in `core.image`.
"""

from abc import ABC, abstractmethod

from beanpole.core.jobs.job import Holder, Job, Tube


class CopyOnWrite(ABC):
    """A copy of the state in progress: whatever is about to change is given to it first."""

    @abstractmethod
    def keep(self, job: Job) -> None:
        """Keep a job as it is, because it is about to change, and so is its holder."""

    @abstractmethod
    def keep_tube(self, tube: Tube) -> None:
        """Keep a tube as it is."""

    @abstractmethod
    def keep_holder(self, holder: Holder) -> None:
        """Keep a holder as it is."""
