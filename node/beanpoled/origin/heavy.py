"""Commands that may take long, one at a time per node.

They are kicks of many jobs, long reads, calls of qless that touch many objects, and reports of
Gearman's workers on jobs with many clients.

Each takes milliseconds of the machine or of this node. Hundreds of them in one entry would block
all commands behind them, and all clients of the node; so they wait in a separate line, and other
commands pass. The client of each is blocked until it is answered, so no command of one client
passes another.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from beanpole import commands as c
from beanpole.core.operations.table import packed_bytes
from beanpoled.origin.batches import NOT_DONE, Batch, Client

# A command that examines more jobs, tubes, clients or connections than this (0.3 ms) is heavy.
LIGHT_MAX: Final = 256


class HeavyLine:
    """The heavy commands of a node's clients, first come first served; a repeated one goes last.

    Attributes:
        bytes: the bytes of the commands that wait in the line.
    """

    def __init__(self, submit: Callable[[Client, int, c.Command], Batch]) -> None:
        """Begin with an empty line; `submit` puts a command into the open batch."""
        self._submit = submit
        self.bytes = 0
        self._line: deque[tuple[Client, int, c.Command, int]] = deque()
        self._batch: Batch | None = None  # the batch that holds the command in flight
        self._since_us = 0  # when that command was submitted

    def __len__(self) -> int:
        return len(self._line)

    def submit(self, client: Client, kind: int, command: c.Command, now_us: int) -> None:
        """Submit a command now, or after those before it are answered."""
        if self._batch is None:
            self._since_us = now_us
            self._batch = self._submit(client, kind, command)
        else:
            self._line.append((client, kind, command, now_us))
            self.bytes += packed_bytes(command)

    def done(self, batch: Batch, now_us: int) -> None:
        """Submit the next command if this batch, applied or emptied, held the one in flight."""
        if batch is self._batch:
            self._batch = None
            self._submit_next(now_us)

    def _submit_next(self, now_us: int) -> None:
        while self._line:
            client, kind, command, _ = self._line.popleft()
            self.bytes -= packed_bytes(command)
            if client.number:  # otherwise the client has gone
                self.submit(client, kind, command, now_us)
                return

    def expire(self, before_us: int, now_us: int) -> None:
        """Fail overdue commands in the line if the command in flight is overdue, too."""
        batch = self._batch
        if batch is None or self._since_us >= before_us:
            return
        line, self._line = self._line, deque()
        overdue = [item for item in line if item[3] < before_us]
        self._line.extend(item for item in line if item[3] >= before_us)
        self.bytes = sum(packed_bytes(item[2]) for item in self._line)
        if not batch.number:
            self.done(batch, now_us)  # the command was taken out of its batch
        for client, kind, _, _ in overdue:
            if client.number:
                client.failed(kind, NOT_DONE)

    def clear(self) -> None:
        """Forget all commands: the incarnation is over, and all clients are closed."""
        self._line.clear()
        self.bytes = 0
        self._batch = None
