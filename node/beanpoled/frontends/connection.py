"""A client's connection as the host, the origin and `Clients` see it, for all protocols.

No protocol and no behaviour is here: what connections with requests and replies have in common is
in `requests`, and each protocol has its package.
"""

from abc import abstractmethod
from typing import Any

from beanpole.core.jobs.job import Job
from beanpole.qless import Message
from beanpoled.origin.batches import Batch, Wait


class Connection:
    """A client's connection. It implements `origin.Client`."""

    __slots__ = (
        "batch",
        "client_host",
        "client_names",
        "id",
        "is_producer",
        "is_worker",
        "number",
        "protocol",
        "refused",
        "since_us",
        "throttled",
        "token",
        "user",
        "wait",
    )

    def __init__(
        self, protocol: str, client_host: bytes, client_names: tuple[bytes, ...] = ()
    ) -> None:
        self.protocol = protocol  # the name of its frontend
        self.client_host = client_host
        self.client_names = client_names
        self.user = self.token = b""
        self.number = 0
        self.id = 0  # counts the connections of the node since its start; set by `Clients`
        self.since_us = 0  # when it came, by the node's monotonic clock
        self.throttled = False  # not read because its address or its user is above its rate
        self.batch: Batch | None = None
        self.wait: Wait | None = None
        self.refused = False  # one client too many: its first command is answered so
        self.is_producer = False
        self.is_worker = False

    # --- from the host --------------------------------------------------------------------------

    @abstractmethod
    def received(self, data: bytes) -> None:
        """Bytes of the client."""

    @abstractmethod
    def half_closed(self) -> None:
        """The client will send nothing more, but it still reads."""

    @abstractmethod
    def lost(self) -> None:
        """The connection is gone."""

    @abstractmethod
    def stall(self) -> None:
        """Too many replies are waiting for the client to read them."""

    @abstractmethod
    def unstall(self) -> None:
        """The client has read its replies."""

    # --- from `Clients` -------------------------------------------------------------------------

    @abstractmethod
    def flush(self) -> None:
        """Write the replies of this turn at once."""

    @abstractmethod
    def room_again(self) -> None:
        """The outbox has room again."""

    @abstractmethod
    def drop(self) -> None:
        """See `origin.Client`: close without another reply, between replies."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once: the client does not read its replies."""

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether the client is blocked, with nothing before that still on its way."""

    @property
    @abstractmethod
    def is_at_rest(self) -> bool:
        """Whether no reply is on its way, but that of a wait for a job."""

    @abstractmethod
    def watches(self, tube: bytes) -> bool:
        """Whether the client would take a job of this tube."""

    # --- from `UserChanges` ---------------------------------------------------------------------

    def rights_changed(self) -> int:
        """There are other users: tell a client that waits for what it may not have any more.

        It may have ended. Returns how many queues were looked at.
        """
        return 0

    # --- from `Listeners` -----------------------------------------------------------------------

    def job_told(self, job_id: int, kind: int, data: bytes) -> None:
        """Something happened to a job that the client listens to: see `core.jobs.effects`."""
        raise AssertionError(f"clients of {self.protocol} listen to no job")

    def news_missed(self, job_id: int) -> None:
        """What was said of a job that goes on may be lost: this node has loaded a snapshot."""

    def queue_ready(self, queue: bytes) -> None:
        """A queue that the client waits for has a ready job; it does not wait any more."""
        raise AssertionError(f"clients of {self.protocol} wait for no queue")

    # --- from `Publications` --------------------------------------------------------------------

    def published(self, pattern: bytes, channel: bytes, message: Message) -> None:
        """Something was published that the client subscribed to; by which pattern, if by one."""
        raise AssertionError(f"clients of {self.protocol} subscribe to nothing")

    # --- from the origin ------------------------------------------------------------------------

    @abstractmethod
    def answered(self, kind: int, result: Any) -> None:
        """See `origin.Client`."""

    @abstractmethod
    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """See `origin.Client`."""

    @abstractmethod
    def failed(self, kind: int, why: int) -> None:
        """See `origin.Client`."""
