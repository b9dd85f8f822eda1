"""The commands of a node's clients: outbox, numbered batches, answers. Waits are in `waits`.

Every node is an origin, including the leader. A command goes into the open batch; the batch is
numbered when it is handed to the link to the leader, and stays here until the machine has applied
it. A client gets its answer when this node applies its own batch, so it always reads its own
writes.
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

# A command above this size, twice the default limit of a body, waits in a separate line with one
# batch in flight at a time, so that other commands pass.
LARGE_BYTES_MIN: Final = 128 * 1024
# The limit of a batch of that line, which may hold one larger command.
LARGE_BATCH_BYTES: Final = 1024 * 1024


class Origin:
    """The outbox of one node, for one incarnation after another.

    Attributes:
        leader_link: the path to the leader; set by the node before anything is submitted.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.leader_link: LeaderLink
        self.incarnation = 0
        self.up = False  # our NODE_UP is applied and we were not declared down since
        self.bytes = 0  # of all commands in batches that are not applied yet
        self._bytes_numbered = self._cost_numbered = 0
        self._open = Batch()
        self._full: deque[Batch] = deque()  # full batches that are not numbered yet
        self._large: deque[Batch] = deque()  # of large commands, and of those behind one
        self._large_number = 0  # the number of the last large batch that was numbered
        self._numbered: dict[int, Batch] = {}
        self._next_number = 1
        self._next_session = 1
        self._waits = Waits(context)
        self._sent_to: tuple[str, int, int] | None = None  # leader, term, generation of its link
        self._first = True
        self._resend = False
        self.heavy = HeavyLine(self.submit)

    # --- incarnations ---------------------------------------------------------------------------

    def start(self, incarnation: int) -> None:
        """Begin an incarnation: the empty batch 1 is its NODE_UP."""
        assert incarnation > self.incarnation, (incarnation, self.incarnation)
        self.abandon()
        self.incarnation = incarnation
        self._next_number = 1
        self._next_session = 1
        self._first = True
        self._sent_to = None
        self._number(Batch())

    def abandon(self) -> None:
        """End this incarnation: nothing in the outbox will be done, and clients are closed."""
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
    def outbox_bytes(self) -> int:
        """The bytes of all commands that are not applied yet, with those in the heavy line."""
        return self.bytes + self.heavy.bytes

    @property
    def unsent_clients(self) -> int:
        """The number of clients whose commands are in no numbered batch or whose wait is unsent."""
        full = 0
        for batch in self._full:
            full += batch.clients
        return full + self._open.clients + self._waits.unsent

    @property
    def unsent_bytes(self) -> int:
        """The bytes of commands in no numbered batch that may be in the next one."""
        unsent = self.bytes - self._bytes_numbered
        for batch in self._large:
            unsent -= batch.bytes
        return unsent

    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not (self._numbered or self._full or self._large or self._open.commands)

    # --- from the front ends --------------------------------------------------------------------

    def open_session(self, client: Client, protocol: int = BEANSTALK) -> None:
        """Give a client a session that speaks a protocol (`events`)."""
        client.number = self._next_session
        self._next_session += 1
        for kind, command in opening(client, protocol, self._context.machine):
            self.submit(client, kind, command)

    def submit(
        self, client: Client | None, kind: int, command: c.Command, behind: Batch | None = None
    ) -> Batch:
        """Put a command into the open batch; `client.answered(kind, ...)` follows.

        A batch takes only commands that certainly fit: they are weighed before they are packed. A
        large command, and whatever its client sends behind it, waits in a separate line.

        Args:
            client: gets the answer; None if no answer is needed.
            kind: the client's kind of the command.
            command: the command to submit.
            behind: without a client: the last batch of the client that the command concerns.

        Returns:
            The batch that holds the command.
        """
        if not self.knows(command[0]):
            command = c.NO_COMMAND  # its answer keeps its position among the others
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
        self.leader_link.wake()
        if (
            len(batch.commands) >= BATCH_COMMANDS_MAX or batch.bytes >= BATCH_MAX_BYTES // 2
        ) and batch is self._open:
            self._full.append(batch)
            self._open = Batch()
        return batch

    def charge(self, batch: Batch, cost: int) -> None:
        """Add the cost of a command that was just submitted to the cost of its batch."""
        batch.cost += cost
        if batch.cost >= BATCH_COST_MAX and batch is self._open:
            self._full.append(batch)
            self._open = Batch()

    def submit_latest(self, client: Client, kind: int, command: c.Command) -> bool:
        """Submit a command that replaces an earlier one if that is still in the open batch.

        The earlier command has the same operation, session and job (the command's first fields). It
        gets no answer of its own.

        Returns:
            Whether an earlier command was replaced.
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

    def keep_latest(self, key: tuple[int, int, int]) -> None:
        """Let no later command replace the submitted one: the client sends another one behind it.

        Args:
            key: the first fields of the command, as in `submit_latest`.
        """
        self._open.latest.pop(key, None)

    def _large_batch(self, size: int) -> Batch:
        """The batch at the end of the line of large commands that has room for a command."""
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
        """Whether the next large batch may leave: one at a time, in its clients' order.

        Earlier commands of its clients are at the latest in the batch that was open when it was
        created, and these batches leave in order.
        """
        if not self._large or self._large_number in self._numbered:
            return False
        behind = self._large[0].behind
        return (
            behind is None
            or behind.number != 0
            or (behind is self._open and not behind.commands and not self._full)
        )

    def is_in_line(self, client: Client) -> bool:
        """Whether the last command of a client waits in the line of large commands."""
        return _is_waiting(client.batch)

    def knows(self, operation: int) -> bool:
        """Whether the cluster's machines know an operation; otherwise it becomes BAD_COMMAND."""
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
        self.leader_link.wake()
        return wait

    def end_wait(self, wait: Wait) -> None:
        """Ask for the end of a wait; `wait_ended` follows, with a job or without."""
        self._waits.end(wait)

    def leave(self) -> None:
        """Stop granting jobs by waits, except those in flight: the node stops."""
        self._waits.leave()

    def close(self, client: Client, lost: bool) -> None:
        """End the session of a client that is gone."""
        if client.wait is not None:
            self._waits.forget(client.wait)
        if client.number:
            command = (c.CLOSE, client.number, int(lost))
            self.submit(None, KIND_QUIET, command, behind=client.batch)
            client.number = 0

    # --- to the leader --------------------------------------------------------------------------

    def send(self) -> None:
        """Send new batches and waits to the leader; after a new leader or link, everything."""
        target = self.leader_link.target()
        if target is None:
            return
        if target != self._sent_to or self._resend:
            self._sent_to = target
            self._resend = False
            self._send_all()
        self._seal()
        if self._waits.has_news:
            last = self._next_number - 1
            self._resend |= not self._waits.send(
                self.leader_link, target[1], self.incarnation, last
            )

    def _seal(self) -> None:
        """Number and send the batches that are not in flight yet, while there is room."""
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
        if not self.leader_link.send(frames.BATCH, frame):
            self._resend = True  # the link was full or is gone: resend everything in the next turn

    def _send_all(self) -> None:
        """Send every unapplied batch and every wait: a new link or leader knows none of them."""
        self._first = True
        for batch in self._numbered.values():
            self._send_batch(batch)
        self._waits.tell_all()

    # --- applied batches and grants -------------------------------------------------------------

    def applied(self, number: int, results: list[Any]) -> None:
        """Answer the clients of one of our batches that was applied."""
        had_room = self._has_room()
        batch = self._numbered.pop(number, None)
        if batch is None:
            return
        self._forget(batch)
        for (client, kind, _), result in zip(batch.owners, results, strict=True):
            if client is not None:
                client.answered(kind, result)
        self.heavy.done(batch, self._context.loop_us)
        batch.release()
        if self._large or not had_room:
            self._context.wake()

    def _forget(self, batch: Batch) -> None:
        self.bytes -= batch.bytes
        self._bytes_numbered -= batch.bytes
        self._cost_numbered -= batch.cost

    def granted(self, session: int, request: int, job: Job) -> None:
        """Deliver a job that was granted to one of our sessions."""
        if not self._waits.granted(session, request, job):
            # No client waits for the job any more. If the session is closed, its CLOSE is in
            # flight.
            self.submit(None, KIND_QUIET, (c.RETURN, session, job.id))

    def nones(self, peer: str, frame: bytes) -> None:
        """End waits without a job as the leader says; other senders than our leader are ignored."""
        term, incarnation, items = frames.decode_items(frame, 3)
        if self._sent_to is None or self._sent_to[:2] != (peer, term):
            return
        if incarnation != self.incarnation:
            return
        for session, request, until_us in items:
            self._waits.none(session, request, until_us)

    def resend(self) -> None:
        """Resend everything: an applied gap shows that the leader lacks one of our batches."""
        self._resend = True
        self._context.wake()

    def image_loaded(self) -> None:
        """Drop what a loaded snapshot covers: it was done, but its results are unknown."""
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
            batch.release()
        self._waits.image_loaded(state.sessions)

    # --- time limits ----------------------------------------------------------------------------

    def expire(self, before_us: int) -> None:
        """Fail what was submitted before `before_us`: certainly not done, or outcome unknown."""
        # First the commands with unknown outcome, because they close their connections.
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

    def drop_moved(self) -> None:
        """Close the clients that wait although their session goes on at another connection."""
        state = self._context.machine.origins.get(self._context.index)
        if state is not None and state.incarnation == self.incarnation:
            self._waits.drop_moved(state)

    def fence(self) -> None:
        """Fail all commands and waits before clients are closed: with NOT_DONE if never sent."""
        self.expire(self._context.loop_us + 1)
        self._waits.fence()

    def _expire_unnumbered(self, batch: Batch, before_us: int) -> None:
        """Take overdue commands out of a batch, except those that must still be applied."""
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
    """Whether commands behind this batch of a client must join the line of large commands."""
    return batch is not None and batch.is_large and not batch.number
