"""The commands of a node's clients: outbox, numbered batches, answers. Waits are in `waits`.

Every node is an origin, the leader too. A command goes into the open batch; the batch is numbered
when it is handed to the link to the leader, and stays here until the machine has applied it. The
answer is made when this node applies its own batch, so a client always reads its own writes.
"""

from collections import deque
from typing import Any, Final

from beanpole import commands as c
from beanpole.constants import BATCH_COMMANDS_MAX, BATCH_MAX_BYTES
from beanpole.core.jobs.job import Job
from beanpole.core.operations.table import packed_bytes, ready_tube, since
from beanpole.events import BEANSTALK
from beanpole.weights import BATCH_ROOM_BYTES
from beanpoled.links import frames
from beanpoled.origin.batches import (
    BATCH_BYTES_IN_FLIGHT_MAX,
    BATCH_COST_MAX,
    COST_IN_FLIGHT_MAX,
    KIND_OPEN,
    KIND_QUIET,
    NOT_DONE,
    UNKNOWN,
    Batch,
    Client,
    Owner,
    Wait,
)
from beanpoled.origin.heavy import HeavyLine
from beanpoled.origin.leader_link import LeaderLink
from beanpoled.origin.opening import opening
from beanpoled.origin.waits import Waits
from beanpoled.shared.context import Context

# A command above this waits in a line of its own, where one batch is on its way at a time, so that
# others pass: it is twice the largest body that is allowed by default.
LARGE_BYTES_MIN: Final = 128 * 1024
# As much of that line travels together, or one command.
LARGE_BATCH_BYTES: Final = 1024 * 1024


class Origin:
    """The outbox of one node, for one incarnation after another.

    Attributes:
        leader: the way to the leader; set by the node before anything is submitted.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.leader: LeaderLink
        self.incarnation = 0
        self.up = False  # our NODE_UP is applied and we were not declared down since
        self.bytes = 0  # of all commands that are not applied
        self._bytes_numbered = self._cost_numbered = 0
        self._open = Batch()
        self._full: deque[Batch] = deque()  # as large as a batch may be, and not numbered yet
        self._large: deque[Batch] = deque()  # of large commands, and what stands behind one
        self._large_number = 0  # the last of them that was numbered
        self._numbered: dict[int, Batch] = {}
        self._next_number = 1
        self._next_session = 1
        self._waits = Waits(context)
        self._sent_to: tuple[str, int, int] | None = None  # leader, term, generation of its link
        self._first = True
        self._resend = False
        self.heavy = HeavyLine(self.submit)

    # --- lives ----------------------------------------------------------------------------------

    def start(self, incarnation: int) -> None:
        """Begin an incarnation: an empty batch 1 says NODE_UP."""
        assert incarnation > self.incarnation, (incarnation, self.incarnation)
        self.abandon()
        self.incarnation = incarnation
        self._next_number = 1
        self._next_session = 1
        self._first = True
        self._sent_to = None
        self._number(Batch())

    def abandon(self) -> None:
        """This incarnation is over: nothing in the outbox will be done; clients are closed."""
        self.up = False
        self._open = Batch()
        self._full.clear()
        self._large.clear()
        self._large_number = 0
        self._numbered.clear()
        self._waits.clear()
        self.heavy.clear()
        self.bytes = self._bytes_numbered = self._cost_numbered = 0

    @property
    def unsent_clients(self) -> int:
        """How many clients wait for what is in no numbered batch, or for a wait to be sent."""
        full = 0
        for batch in self._full:
            full += batch.clients
        return full + self._open.clients + self._waits.unsent

    @property
    def unsent_bytes(self) -> int:
        """The commands that are in no numbered batch, and may be in the next one."""
        unsent = self.bytes - self._bytes_numbered
        for batch in self._large:
            unsent -= batch.bytes
        return unsent

    def is_idle(self) -> bool:
        """Whether nothing is on its way."""
        return not (self._numbered or self._full or self._large or self._open.commands)

    # --- from the front ends --------------------------------------------------------------------

    def open_session(self, client: Client, protocol: int = BEANSTALK) -> None:
        """Give a client its session, which speaks a protocol (`events`)."""
        client.number = self._next_session
        self._next_session += 1
        for kind, command in opening(client, protocol, self._context.machine):
            self.submit(client, kind, command)

    def submit(
        self, client: Client | None, kind: int, command: c.Command, behind: Batch | None = None
    ) -> Batch:
        """Put a command into the open batch; `client.answered(kind, ...)` follows.

        A batch takes what is certain to fit: its commands are weighed before they are packed. A
        large one, and what its client sends behind it, stands in a line of its own.

        Args:
            client: gets the answer; None if none is to be given.
            kind: the client's.
            command: what is to be done.
            behind: without a client: the last batch of the client that it was of.

        Returns:
            The batch that it is in.
        """
        if not self.knows(command[0]):
            command = c.NO_COMMAND  # its answer keeps its place among the others
        size = packed_bytes(command)
        batch = self._open
        if size > LARGE_BYTES_MIN or (
            self._large and _is_waiting(behind if client is None else client.batch)
        ):
            batch = self._large_batch(size)
        elif batch.bytes + size > BATCH_ROOM_BYTES:
            self._full.append(batch)
            batch = self._open = Batch()
        batch.commands.append(command)
        batch.owners.append((client, kind, self._context.loop_us))
        batch.clients += kind >= 0
        batch.bytes += size
        self.bytes += size
        if client is not None:
            client.batch = batch
        self.leader.wake()
        if (
            len(batch.commands) >= BATCH_COMMANDS_MAX or batch.bytes >= BATCH_MAX_BYTES // 2
        ) and batch is self._open:
            self._full.append(batch)
            self._open = Batch()
        return batch

    def charge(self, batch: Batch, cost: int) -> None:
        """Say what a command costs that was just submitted into a batch."""
        batch.cost += cost
        if batch.cost >= BATCH_COST_MAX and batch is self._open:
            self._full.append(batch)
            self._open = Batch()

    def submit_latest(self, client: Client, kind: int, command: c.Command) -> bool:
        """Like `submit`, for a command that takes the place of an earlier one, if it has not left.

        The earlier one is of the same operation, session and job (the command's first fields), in
        the open batch. Nothing is answered for it.

        Returns:
            Whether there was one.
        """
        batch, key = self._open, (command[0], command[1], command[2])
        place = batch.latest.get(key, -1)
        if client.batch is not batch or place < 0:
            place = len(batch.commands)
            if self.submit(client, kind, command) is batch:
                batch.latest[key] = place
            return False
        size = packed_bytes(command) - packed_bytes(batch.commands[place])
        batch.commands[place] = command
        batch.bytes += size
        self.bytes += size
        return True

    def _large_batch(self, size: int) -> Batch:
        """The batch at the end of the line of large commands that has room for one."""
        line = self._large
        if (
            not line
            or line[-1].bytes + size > LARGE_BATCH_BYTES
            or len(line[-1].commands) >= BATCH_COMMANDS_MAX
            or line[-1].cost >= BATCH_COST_MAX
        ):
            batch = Batch()
            batch.is_large = True
            line.append(batch)
        line[-1].behind = self._open
        return line[-1]

    def _large_may_leave(self) -> bool:
        """Whether the next large batch may: one is on its way at a time, in its clients' order.

        What its clients sent before it stands in the batch that was open when it came, at the
        latest, and those leave in order.
        """
        if not self._large or self._large_number in self._numbered:
            return False
        behind = self._large[0].behind
        return (
            behind is None
            or behind.number != 0
            or (behind is self._open and not behind.commands and not self._full)
        )

    def knows(self, operation: int) -> bool:
        """Whether the cluster's machines have an operation; it becomes BAD_COMMAND if not."""
        return since(operation) <= self._context.machine.version

    def submit_put(self, client: Client, kind: int, command: c.Command) -> None:
        """Put a command into the open batch, with a hint of the tube where it makes a job ready."""
        hint = self.submit(client, kind, command).hint
        tube = ready_tube(command)
        if tube is not None:
            hint[tube] = hint.get(tube, 0) + 1

    def wait(self, client: Client, request: int) -> Wait:
        """Begin a wait for a job, behind everything the client has sent so far."""
        wait = self._waits.begin(client, request)
        self.leader.wake()
        return wait

    def end_wait(self, wait: Wait) -> None:
        """Ask for the end of a wait; `wait_ended` follows, with a job or without."""
        self._waits.end(wait)

    def leave(self) -> None:
        """The node stops: no client gets a job by a wait any more, but what is on its way."""
        self._waits.leave()

    def close(self, client: Client, lost: bool) -> None:
        """The client is gone: end its session."""
        if client.wait is not None:
            self._waits.forget(client.wait)
        if client.number:
            command = (c.CLOSE, client.number, int(lost))
            self.submit(None, KIND_QUIET, command, behind=client.batch)
            client.number = 0

    # --- to the leader --------------------------------------------------------------------------

    def send(self) -> None:
        """Hand what is new to the leader; after a change of leader or link, everything again."""
        target = self.leader.target()
        if target is None:
            return
        if target != self._sent_to or self._resend:
            self._sent_to = target
            self._resend = False
            self._send_all()
        self._seal()
        if self._waits.has_news:
            last = self._next_number - 1
            self._resend |= not self._waits.send(self.leader, target[1], self.incarnation, last)

    def _seal(self) -> None:
        """Number the batches that are not on their way, and hand them over, while there is room."""
        while self.up and self._has_room():
            if self._large and self._large_may_leave():
                batch = self._large.popleft()
                self._large_number = self._next_number
                batch.behind = None
            elif self._full:
                batch = self._full.popleft()
            elif self._open.commands:
                batch, self._open = self._open, Batch()
            else:
                return
            self._bytes_numbered += batch.bytes
            self._cost_numbered += batch.cost
            self._number(batch)
            self._send_batch(batch)

    def _has_room(self) -> bool:
        return not self._numbered or (
            len(self._numbered) < frames.BATCHES_IN_FLIGHT_MAX
            and self._bytes_numbered < BATCH_BYTES_IN_FLIGHT_MAX
            and self._cost_numbered < COST_IN_FLIGHT_MAX
        )

    def _number(self, batch: Batch) -> None:
        batch.number = self._next_number
        self._next_number += 1
        batch.payload = c.pack_commands(batch.commands)
        batch.packed_hint = frames.pack(batch.hint) if batch.hint else b""
        self._numbered[batch.number] = batch

    def _send_batch(self, batch: Batch) -> None:
        assert self._sent_to is not None
        frame = frames.encode_batch(
            self._sent_to[1],
            self.incarnation,
            batch.number,
            self._first,
            batch.clients,
            batch.packed_hint,
            batch.payload,
        )
        self._first = False
        if not self.leader.send(frames.BATCH, frame):
            self._resend = True  # the link was full or gone: everything again on the next turn

    def _send_all(self) -> None:
        """A new link or a new leader knows nothing: send every unapplied batch and every wait."""
        self._first = True
        for batch in self._numbered.values():
            self._send_batch(batch)
        self._waits.tell_all()

    # --- what the machine applied ---------------------------------------------------------------

    def applied(self, number: int, results: list[Any]) -> None:
        """One of our batches was applied: answer."""
        had_room = self._has_room()
        batch = self._numbered.pop(number, None)
        if batch is None:
            return
        self._forget(batch)
        for (client, kind, _), result in zip(batch.owners, results, strict=True):
            if client is not None:
                client.answered(kind, result)
        self.heavy.done(batch, self._context.loop_us)
        if self._large or not had_room:
            self._context.wake()

    def _forget(self, batch: Batch) -> None:
        self.bytes -= batch.bytes
        self._bytes_numbered -= batch.bytes
        self._cost_numbered -= batch.cost

    def granted(self, session: int, request: int, job: Job) -> None:
        """A job was given to one of our sessions."""
        if not self._waits.granted(session, request, job):
            # No client waits for it any more. If the session is closed, its CLOSE is on the way.
            self.submit(None, KIND_QUIET, (c.RETURN, session, job.id))

    def nones(self, peer: str, frame: bytes) -> None:
        """The leader says that waits ended without a job; only our present leader is believed."""
        term, incarnation, items = frames.decode_items(frame, 3)
        if self._sent_to is None or self._sent_to[:2] != (peer, term):
            return
        if incarnation != self.incarnation:
            return
        for session, request, until_us in items:
            self._waits.none(session, request, until_us)

    def resend(self) -> None:
        """A gap was applied: the leader is missing one of our batches."""
        self._resend = True
        self._context.wake()

    def image_loaded(self) -> None:
        """A snapshot replaced the machine: what it covers was done, but its results are unknown."""
        state = self._context.machine.origins.get(self._context.index)
        if state is None or state.incarnation != self.incarnation:
            return
        for number in [number for number in self._numbered if number < state.next_number]:
            batch = self._numbered.pop(number)
            self._forget(batch)
            for client in {id(owner[0]): owner[0] for owner in batch.owners}.values():
                if client is not None:
                    client.drop()
            self.heavy.done(batch, self._context.loop_us)
        self._waits.image_loaded(state.sessions)

    # --- when it takes too long -----------------------------------------------------------------

    def expire(self, before_us: int) -> None:
        """Give up what came before `before_us`: certainly not done, or outcome unknown."""
        # First those with unknown outcome, because they close their connections.
        for numbered in list(self._numbered.values()):
            if not numbered.owners or numbered.owners[0][2] >= before_us:
                continue
            for client, kind, at_us in numbered.owners:
                if client is not None and at_us < before_us:
                    client.failed(kind, UNKNOWN)
        for batch in [*self._full, self._open, *self._large]:
            if batch.owners and batch.owners[0][2] < before_us:
                self._expire_unnumbered(batch, before_us)
        self.heavy.expire(before_us, self._context.loop_us)
        self._waits.expire(before_us)

    def fence(self) -> None:
        """Clients are about to be closed: tell them what no leader was told, and never will be."""
        self.expire(self._context.loop_us + 1)
        self._waits.fence()

    def _expire_unnumbered(self, batch: Batch, before_us: int) -> None:
        """Take overdue commands out of a batch, except those that must still happen."""
        kept: list[tuple[c.Command, Owner]] = []
        failed: list[tuple[Client, int]] = []
        for command, owner in zip(batch.commands, batch.owners, strict=True):
            client, kind, at_us = owner
            if client is None or at_us >= before_us or kind in (KIND_OPEN, KIND_QUIET):
                kept.append((command, owner))
                continue
            failed.append((client, kind))
            tube = ready_tube(command)
            if tube is not None:
                batch.hint[tube] -= 1
            size = packed_bytes(command)
            batch.clients -= 1
            batch.bytes -= size
            self.bytes -= size
        batch.commands = [command for command, _ in kept]
        batch.owners = [owner for _, owner in kept]
        batch.latest.clear()
        for client, kind in failed:
            client.failed(kind, NOT_DONE)


def _is_waiting(batch: Batch | None) -> bool:
    """Whether what follows this batch of a client must stand in the line of large commands, too."""
    return batch is not None and batch.is_large and not batch.number
