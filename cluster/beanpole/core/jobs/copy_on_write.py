"""Notifications before jobs, tubes and holders change, for a copy in progress.

This is only the interface that the queue calls. The copy is implemented in `core.image`.
"""

from abc import ABC, abstractmethod

from beanpole.core.jobs.job import Holder, Job, Tube


class CopyOnWrite(ABC):
    """A copy of the state in progress, notified of every object before it changes."""

    @abstractmethod
    def keep(self, job: Job) -> None:
        """Record a job as it is, because the job and its holder are about to change."""

    @abstractmethod
    def keep_tube(self, tube: Tube) -> None:
        """Record a tube as it is."""

    @abstractmethod
    def keep_holder(self, holder: Holder) -> None:
        """Record a holder as it is."""
