"""The interface of a client's connection to the host, the origin and `Clients`, for all protocols.

It has no behaviour and knows no protocol: the code that connections with requests and replies have
in common is in `requests`, and each protocol has its package.
"""

from abc import abstractmethod
from typing import Any

from beanpole.addresses import network_of_host
from beanpole.core.jobs.job import Job
from beanpole.qless import Message
from beanpoled.origin.batches import Batch, Wait


class Connection:
    """A client's connection; implements `origin.Client`."""

    __slots__ = (
        "batch",
        "certificate",
        "client_host",
        "client_names",
        "id",
        "is_metered",
        "is_producer",
        "is_worker",
        "network",
        "number",
        "payer",
        "protocol",
        "refused",
        "since_us",
        "throttled",
        "token",
        "user",
        "wait",
    )

    def __init__(
        self,
        protocol: str,
        client_host: bytes,
        client_names: tuple[bytes, ...] = (),
        certificate: str = "",
    ) -> None:
        self.protocol = protocol  # the name of its frontend
        self.client_host = client_host
        self.network = network_of_host(client_host)  # takes as long as a command, for IPv6
        self.client_names = client_names
        self.certificate = certificate  # its name, for the audit log
        self.user = self.token = b""
        self.number = 0
        self.id = 0  # counts the connections of the node since its start; set by `Clients`
        self.since_us = 0  # when it was accepted, by the node's monotonic clock
        self.is_metered = False  # the rate of a user counts its commands, also without a session
        self.payer = b""  # that user, by a rule, while `user` is empty
        self.throttled = False  # not read because its address or its user is above its rate
        self.batch: Batch | None = None
        self.wait: Wait | None = None
        self.refused = False  # above the limit of clients: its first command is answered so
        self.is_producer = False
        self.is_worker = False

    # --- from the host --------------------------------------------------------------------------

    @abstractmethod
    def received(self, data: bytes) -> None:
        """Take bytes from the client."""

    @abstractmethod
    def half_closed(self) -> None:
        """Handle the end of the client's input; the client may still read."""

    @abstractmethod
    def lost(self) -> None:
        """Handle the loss of the connection."""

    @abstractmethod
    def stall(self) -> None:
        """Handle backpressure: too many replies wait for the client to read them."""

    @abstractmethod
    def unstall(self) -> None:
        """Handle the end of backpressure: the client has read its replies."""

    # --- from `Unread` --------------------------------------------------------------------------

    @abstractmethod
    def hold(self) -> None:
        """Act on no more requests before `unstall`: all clients together are too far behind."""

    # --- from `Clients` -------------------------------------------------------------------------

    @abstractmethod
    def flush(self) -> None:
        """Write the replies of this turn: now, or behind other large ones (`LargeOutput`)."""

    @abstractmethod
    def write(self) -> None:
        """Write the replies that are not written yet at once."""

    @property
    @abstractmethod
    def output_bytes(self) -> int:
        """The size of the replies that are not written yet."""

    @abstractmethod
    def room_again(self) -> None:
        """Go on reading: the outbox has room again."""

    @abstractmethod
    def drop(self) -> None:
        """Close without another reply, between replies; see `origin.Client`."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once: the client does not read its replies."""

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether the client is blocked in a wait, with no earlier reply pending."""

    @property
    @abstractmethod
    def is_at_rest(self) -> bool:
        """Whether no reply is pending, except that of a wait for a job."""

    @abstractmethod
    def watches(self, tube: bytes) -> bool:
        """Whether the client would accept a job of this tube."""

    # --- from `UserChanges` ---------------------------------------------------------------------

    def rights_changed(self) -> int:
        """End what the client has lost the right to, after a change of users or of its user.

        Answer its wait for a job, and send it no more notifications of jobs. This may close the
        connection. Return the number of queues that were checked.
        """
        return 0

    # --- from `HeldRequests` --------------------------------------------------------------------

    def request_checked(self, is_known: bool) -> None:
        """Go on with the request that is held, if there still is one.

        Args:
            is_known: whether this node knows all that was committed before the request; if not, no
                majority answers.
        """
        raise AssertionError(f"no request of {self.protocol} is held")

    # --- from `Listeners` -----------------------------------------------------------------------

    def job_told(self, job_id: int, kind: int, data: bytes) -> None:
        """Handle an effect on a job that the client listens to: see `core.jobs.effects`."""
        raise AssertionError(f"clients of {self.protocol} listen to no job")

    def notifications_missed(self, job_id: int) -> None:
        """Handle the possible loss of effects of a job: this node has loaded a snapshot."""

    def queue_ready(self, queue: bytes) -> None:
        """Handle the end of a wait: a queue that the client waited for has a ready job."""
        raise AssertionError(f"clients of {self.protocol} wait for no queue")

    # --- from `Publications` --------------------------------------------------------------------

    def published(self, pattern: bytes, channel: bytes, message: Message) -> None:
        """Handle a message that the client is subscribed to; `pattern` is empty for a channel."""
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
