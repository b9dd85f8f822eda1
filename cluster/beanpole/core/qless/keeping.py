"""Notices before something of qless changes, for a copy that is made meanwhile.

Here is only what whoever changes a table must call, and when; the copy is in `core.image`.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from beanpole.core.qless.job import QlessJob, Recurring

if TYPE_CHECKING:
    from beanpole.core.qless.tables import QlessQueue, Throttle


class Keeper(ABC):
    """A copy of the state in progress: whatever is about to change is given to it first."""

    @abstractmethod
    def keep_job(self, job: QlessJob) -> None:
        """Keep a job as it is."""

    @abstractmethod
    def keep_queue(self, queue: "QlessQueue") -> None:
        """Keep what a queue is beside its jobs."""

    @abstractmethod
    def keep_recurring(self, template: Recurring) -> None:
        """Keep a template as it is."""

    @abstractmethod
    def keep_throttle(self, throttle: "Throttle") -> None:
        """Keep the bound of a throttle as it is."""
