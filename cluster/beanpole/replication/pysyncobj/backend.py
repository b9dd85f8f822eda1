"""The replica that a node runs: the library, its repairs and the disk, driven by turns.

This module defines the order of the steps; each step is implemented in a module of its own. Every
call from outside goes through `_enter` and `_leave`, and every exception that leaves the library
or a repair stops the node (I1, I4): the library would log it and retry after half a step.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from beanpole.errors import ProtocolError
from beanpole.replication.consensus import (
    ENTRIES_IN_FLIGHT_ALONE_MAX,
    ENTRIES_IN_FLIGHT_MAX,
    ENTRY_MAX_BYTES,
    FOLLOWER,
    Callbacks,
    DiskFigures,
    DiskRoom,
    LogOnDisk,
    ReplicaConfig,
    Role,
)
from beanpole.replication.pysyncobj import messages, seam
from beanpole.replication.pysyncobj.acks import FollowerAcks, LeaderAcks
from beanpole.replication.pysyncobj.appends import Appends
from beanpole.replication.pysyncobj.core import Core, Standing
from beanpole.replication.pysyncobj.elections import Elections
from beanpole.replication.pysyncobj.journal import LogJournal
from beanpole.replication.pysyncobj.pinned import LEADING
from beanpole.replication.pysyncobj.rejoin import Rejoin
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS, Repairs
from beanpole.replication.pysyncobj.room import Room
from beanpole.replication.pysyncobj.shared import Shared
from beanpole.replication.pysyncobj.snapshots import Dump, Snapshots
from beanpole.replication.pysyncobj.transfer import Transfer
from beanpole.replication.pysyncobj.transport import LibraryTransport
from beanpole.storage.files import Files
from beanpole.storage.remedies import told

if TYPE_CHECKING:
    from beanpole.storage.snapshots import SnapshotInfo

# Idle turns check for due timers only at this interval, which is well below a heartbeat.
LOOK_PERIOD_S: Final = 0.01
# A turn applies no further entries after this time: the heaviest take some 30 ms, and a node that
# lags behind has hundreds of them to apply.
APPLY_SLICE_S: Final = 0.05


class PySyncObjReplica:
    """A `consensus.Replica` based on PySyncObj."""

    def __init__(
        self,
        config: ReplicaConfig,
        callbacks: Callbacks,
        files: Files,
        repairs: Repairs = ALL_REPAIRS,
    ) -> None:
        """Store the arguments; `start` opens the files. `repairs` is for simulators only."""
        self.node_id = config.node_id
        self.members = tuple(sorted(config.members))
        self._config, self._callbacks, self._files = config, callbacks, files
        self._repairs = repairs
        self._alone = len(self.members) == 1
        self.in_flight_max = ENTRIES_IN_FLIGHT_ALONE_MAX if self._alone else ENTRIES_IN_FLIGHT_MAX
        self._started = self._closed = self._inside = self._durable_grew = False
        self._applying_until_s = self._look_s = 0.0
        self._standing: Standing = (0, None, 0, 0, 0)

    # --- the start and the end -------------------------------------------------------------------

    def start(self) -> None:
        """Load snapshot and log. Raises errors of the files, in which case nothing was changed."""
        config, callbacks, repairs = self._config, self._callbacks, self._repairs
        self._rejoin = Rejoin(config, callbacks)
        self._journal = LogJournal(config, self._files, repairs)
        self._journal.wal.on_durable = self._on_durable
        self._journal.wal.on_failure = self._on_failure
        room = self._room = Room(config, callbacks, self._journal.wal, self._files)
        shared = self._shared = Shared(config, callbacks, self._journal, room, repairs)
        self._journal.wal.on_full = room.ballast.make_room
        dump = Dump()
        self._transport = LibraryTransport()
        self._snapshots = Snapshots(shared, self._files, dump)
        self._follower_acks = FollowerAcks(shared, self._rejoin)
        self._leader_acks = LeaderAcks(shared, self._transport)
        self._elections = Elections(shared, self._transport, self._leader_acks, self._rejoin)
        self._appends = Appends(
            shared, self._transport, self._elections, self._follower_acks, self._snapshots
        )
        self._transfer = Transfer(shared, self._leader_acks)
        self._rejoin.wire(shared)
        self._snapshots.wire(self._transport, self._leader_acks)
        self._transport.wire(
            shared,
            self._elections.begin_campaign,
            self._follower_acks.matched,
            self._leader_acks.wants_answers,
            self._snapshots.offered,
        )
        header = self._snapshots.load_latest()
        self._context = seam.CallContext(callbacks.random, self._journal, dump)
        seam.enter(self._context, shared.now_s)
        shared.core = Core(
            config,
            repairs,
            shared.members,
            self._transport,
            self._journal,
            self._before_apply,
            self._apply,
        )
        self._core = shared.core
        if header is not None:
            self._snapshots.take_over(header)
        if self._alone:
            self._core.campaign()  # no other member to wait for
        self._started = True
        self._room.begin(self._shared.now_s)
        self._note_changes()
        self._journal.flush(self._shared.now_s)
        callbacks.wake()

    def close(self) -> None:
        """Write out the buffers and close the files."""
        if self._closed or not self._started:
            self._closed = True
            return
        self._closed = True
        self._snapshots.close()
        self._transport.destroy()
        self._journal.wal.close()

    # --- turns -----------------------------------------------------------------------------------

    def turn(self) -> None:
        """Do all due work. An idle turn costs one reading of the clock."""
        assert not self._inside, "a replica was entered from inside one of its callbacks"
        now_s = self._callbacks.now_s()
        if not self._shared.due and now_s < self._look_s:
            return
        if not self._enter(now_s):
            return
        self._look_s = now_s + LOOK_PERIOD_S
        try:
            self._turn()
        except Exception as error:
            self._shared.crash("turn", error)
        self._leave()

    def _turn(self) -> None:
        shared, core, journal = self._shared, self._core, self._journal
        shared.due = False
        self._snapshots.install_fetched()
        self._elections.before_tick()
        self._transport.begin_round()
        self._transfer.turn()
        # D2, single node: the library commits an entry in the tick after its proposal, and there is
        # no acknowledgement that could be deferred.
        waits = self._alone and self._repairs.alone_waits_for_disk
        if core.wants_tick(shared.now_s) and not (waits and journal.durable < journal.last):
            core.tick()
        if shared.stopped:
            return
        self._note_changes()
        if core.leads:
            shared.due = shared.due or core.has_unsent
            self._transport.send_heartbeats()
            self._leader_acks.check_confirmations()
        self._rejoin.check()
        self._room.look(shared.now_s)
        self._snapshots.turn()
        journal.flush(shared.now_s)
        if core.applied < core.commit:
            shared.due = True  # F11: the next turns apply the rest, so that the loop is not blocked
        if shared.due:
            self._callbacks.wake()

    @property
    def imaging(self) -> bool:
        """Whether an image is being made and is not waiting for the disk."""
        return self._snapshots.imaging

    def slice_image(self) -> None:
        """Make the next slice of the image."""
        if not self._enter(self._callbacks.now_s()):
            return
        try:
            self._snapshots.slice()
        except Exception as error:
            self._shared.crash("an image", error)
        self._leave()

    # --- input -----------------------------------------------------------------------------------

    def receive(self, peer: str, message: bytes) -> None:
        """Handle one message; a bad one raises ProtocolError and changes nothing."""
        if peer not in self._transport.links:
            raise ProtocolError(f"{peer} is not a member")
        decoded = messages.decode(message)
        if not self._enter(self._callbacks.now_s()):
            return
        try:
            self._dispatch(peer, decoded)
            self._note_changes()
        except ProtocolError:
            self._leave()
            raise
        except Exception as error:
            self._shared.crash(f"message {decoded[0]} of {peer}", error)
        self._leave()
        shared = self._shared
        if not shared.due:
            # Newly committed entries are applied, and received ones written, in the next turn.
            core = self._core
            shared.due = core.commit > core.applied or self._journal.wants_write(shared.now_s)
        if shared.due:
            self._callbacks.wake()

    def _dispatch(self, peer: str, message: messages.Message) -> None:
        kind = message[0]
        if kind == messages.APPEND:
            self._appends.append(peer, message)
        elif kind == messages.ACK:
            self._leader_acks.receive(peer, message)
        elif kind == messages.VOTE:
            self._elections.vote(peer, message)
        elif kind == messages.VOTE_GRANTED:
            self._elections.vote_granted(peer, message)
        elif kind == messages.PRE_VOTE:
            self._elections.pre_vote(peer, message)
        elif kind == messages.PRE_VOTE_GRANTED:
            self._elections.pre_vote_granted(peer, message)
        elif kind == messages.HIGHER_TERM:
            self._elections.higher_term(peer, message)
        elif kind == messages.OFFER:
            self._appends.offer(peer, message)
        elif kind == messages.TIMEOUT_NOW:
            self._elections.timeout_now(peer, message)
        else:
            self._rejoin.proved(peer, message)

    def connected(self, peer: str) -> None:
        """Note a new link."""
        if self._enter(self._callbacks.now_s()):
            self._transport.connected(peer)
            self._core.send_now()
            self._shared.due = True
            self._leave()
            self._callbacks.wake()

    def disconnected(self, peer: str) -> None:
        """Note that the link has ended."""
        if self._enter(self._callbacks.now_s()):
            self._transport.disconnected(peer)
            self._leave()

    # --- proposals, proofs, transfer, snapshots --------------------------------------------------

    @property
    def entries_in_flight(self) -> int:
        """The number of entries that this leader has proposed and not yet committed."""
        # Entries of an earlier leader do not count: they must not block the first ones of a term.
        settled = max(self._core.commit, self._core.first_of_term - 1)
        return self._journal.last - settled

    def can_propose(self) -> bool:
        """Return whether an entry may be proposed now."""
        core = self._core
        if not core.leads or self._closed or self._transfer.active or self._room.full:
            return False
        if self._journal.is_choked:
            return False
        return self.entries_in_flight < self.in_flight_max

    def propose(self, entry: bytes) -> int:
        """Append an entry; the caller's next turn sends it."""
        assert self.can_propose(), "propose() without can_propose()"
        assert 0 < len(entry) <= ENTRY_MAX_BYTES, f"an entry of {len(entry)} bytes"
        index = self._core.append(entry)
        self._core.send_now()
        # From inside `committed` the entry is sent in this turn. On a single node another tick must
        # commit it.
        if self._alone or not self._inside:
            self._shared.due = True
        return index

    def tell_later(self, index: int, members: tuple[str, ...]) -> None:
        """See `Replica`."""
        self._core.tell_later(index, members)

    def confirm(self, done: Callable[[], None]) -> None:
        """Call `done` once a majority has confirmed this leadership after this call."""
        if self._core.leads and not self._closed:
            self._leader_acks.confirm(done)
            self._callbacks.wake()

    def transfer(self, to: str | None) -> bool:
        """Begin a transfer of leadership."""
        begun = not self._closed and self._transfer.begin(to)
        if begun:
            self._shared.due = True
            self._callbacks.wake()
        return begun

    @property
    def snapshot_index(self) -> int:
        """The last index that the newest snapshot covers; 0 without one."""
        offered = self._snapshots.offered()
        return 0 if offered is None else offered[0]

    def compact(self) -> None:
        """Begin a snapshot now."""
        assert not self._inside, "compact() from inside a callback"
        if not self._closed and not self._shared.stopped:
            self._snapshots.compact()

    def snapshot_source(self) -> "tuple[SnapshotInfo, Iterator[bytes]] | None":
        """Return the newest snapshot and its chunks."""
        return self._snapshots.source()

    # --- state for the node ----------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The role in the current term."""
        return FOLLOWER if self._closed else self._core.role

    @property
    def leader(self) -> str | None:
        """The leader of the current term, as far as known."""
        return self._core.leader

    @property
    def term(self) -> int:
        """The current term."""
        return self._core.term

    @property
    def commit_index(self) -> int:
        """The last index known to be committed."""
        return self._core.commit

    @property
    def applied_index(self) -> int:
        """The last applied index."""
        return self._core.applied

    @property
    def first_index(self) -> int:
        """The first index in the log."""
        return self._journal.first

    @property
    def last_index(self) -> int:
        """The last index in the log."""
        return self._journal.last

    def newest_entry(self) -> tuple[int, bytes] | None:
        """See `Replica`."""
        return self._journal.newest()

    @property
    def durable_index(self) -> int:
        """The last index up to which the log is durable on this disk."""
        return self._journal.durable

    def disk(self) -> DiskFigures:
        """Return the disk figures of the log."""
        wal = self._journal.wal
        times = wal.syncs, wal.sync_us_total, wal.last_sync_us
        return DiskFigures(*times, wal.bytes_written, wal.sync_counts)

    def room(self) -> DiskRoom:
        """Return the free space of the disk."""
        return self._room.figures()

    def log_on_disk(self) -> LogOnDisk:
        """Return the progress of the disk with the log."""
        return self._journal.on_disk()

    def note_disk(self, hangs: bool) -> None:
        """Note whether the disk hangs, so that nothing waits for it."""
        self._journal.disk_hangs = hangs

    @property
    def journal_bytes(self) -> int:
        """The bytes of the log on disk."""
        return self._journal.wal.bytes_kept

    @property
    def snapshot_bytes(self) -> int:
        """The size of the newest snapshot."""
        return self._snapshots.size_and_behind()[0]

    @property
    def snapshot_behind_bytes(self) -> int:
        """The bytes of the log after the newest snapshot."""
        return self._snapshots.size_and_behind()[1]

    @property
    def majority_answers(self) -> bool:
        """Whether this member leads and a majority answered recently."""
        return self._leader_acks.majority_answers()

    @property
    def majority_heard_us(self) -> int:
        """When this leader sent the newest message that a majority answered (`now_s`), or 0."""
        return int(self._leader_acks.majority_heard_s() * 1e6)

    @property
    def rejoining(self) -> bool:
        """Whether this member does not count yet."""
        return self._rejoin.active

    def match_index(self, peer: str) -> int:
        """Return the index that the peer is known to have; 0 while it is rejoining."""
        return self._leader_acks.match_index(peer) if self._core.leads else 0

    # --- entering and leaving --------------------------------------------------------------------

    def _enter(self, now_s: float) -> bool:
        shared = self._shared
        if self._closed or shared.stopped:
            return False
        assert not self._inside, "a replica was entered from inside one of its callbacks"
        self._inside = True
        shared.now_s = now_s
        seam.enter(self._context, now_s)
        return True

    def _leave(self) -> None:
        self._inside = False
        if self._durable_grew:
            self._on_durable()

    def _note_changes(self) -> None:
        """Notify the node of a new role, and check that no index or term decreases."""
        before, standing = self._standing, self._core.standing()
        if standing == before:
            return
        self._standing = standing
        state, leader, term, commit, applied = standing
        if (state, leader, term) != before[:3]:
            self._change_role(before, standing)
        assert term >= before[2], f"the term fell from {before[2]} to {term}"
        assert commit >= before[3], f"the commit index fell from {before[3]} to {commit}"
        assert applied >= before[4], f"the applied index fell from {before[4]} to {applied}"

    def _change_role(self, before: Standing, standing: Standing) -> None:
        led, leads = before[0] == LEADING, standing[0] == LEADING
        if led and not leads:
            self._elections.deposed()
        if led != leads or before[2] != standing[2]:
            self._leader_acks.begin_term()
            self._transport.resume_all()
            self._transfer.end()
        self._shared.due = True
        self._callbacks.role_changed()

    def _before_apply(self) -> None:
        """Send first, so that the other members and the disk work while this node applies."""
        core = self._core
        if core.commit > core.applied:
            self._callbacks.committed()
        core.send_appends()
        self._callbacks.flush()
        self._journal.flush(self._shared.now_s)
        self._applying_until_s = self._callbacks.now_s() + APPLY_SLICE_S

    def _apply(self, index: int, term: int, entry: bytes) -> None:
        self._callbacks.apply(index, term, entry)
        if self._callbacks.now_s() > self._applying_until_s:
            self._journal.end_slice()  # ends the caller's loop; the next turn applies the rest

    def _on_durable(self) -> None:
        if self._inside:
            self._durable_grew = True  # the disk answered synchronously; `_leave` handles it
            return
        self._durable_grew = False
        if not self._enter(self._callbacks.now_s()):
            return
        try:
            self._shared.release()
            self._follower_acks.durable_grew()
            self._leader_acks.durable_grew()
            self._journal.after_durable()
        except Exception as error:
            self._shared.crash("a finished write", error)
        self._leave()
        if self._alone:
            self._shared.due = True
        if self._shared.due:
            self._callbacks.wake()

    def _on_failure(self, error: OSError) -> None:
        self._shared.stop(f"the log could not be written: {told(error)}")
