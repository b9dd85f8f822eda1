"""Judge what clients of qless saw against the calls that were committed, in the order of the log.

Every check is named after a guarantee. `QlessJudge` compares replies and messages with what was
committed; `Following` follows the jobs through the calls by independent rules.
"""

import json
from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

import msgpack

from beanpole import qless as q
from beanpole.protocol.resp.values import Error
from tests.sim.calls import Made, Session
from tests.sim.cluster import Violation
from tests.sim.following import Following
from tests.sim.qless import NO_JOBS, Heard, Notes, Request
from tests.sim.stories import FOREVER_S
from tests.sim.witness import Witness

_FLOAT: Final = Struct("<d")
_BITS: Final = Struct("<Q")
# Refusals of the client's node: the call is certainly not done.
NOT_CALLED: Final = (b"no majority of the nodes", b"this node is draining")
# May come from the client's node, like these, or from the machine.
NO_ROOM: Final = b"a limit of the cluster is reached"
# `verdicts_user_puts` judges those that come from the node.
NO_RIGHT: Final = (b"NOPERM ", b"NOAUTH ")
PUTS: Final = frozenset({b"put", b"recur"})
READS: Final = frozenset({b"get"})
PREFIX: Final = b"ql:"


class QlessJudge:
    """The checks of one run.

    Attributes:
        refused: the puts that a node refused by itself, for a right that its client has not.
    """

    def __init__(
        self,
        notes: Notes,
        witness: Witness,
        loads: dict[str, list[float]],
        leaves: dict[tuple[int, int], float],
    ) -> None:
        self.notes = notes
        self.witness = witness
        self.loads = loads
        # By place and incarnation: the time from which a stopping node hands out no job.
        self.leaves = leaves
        self.made: dict[tuple[Session, int], Made] = {}
        self.following = Following()
        self.refused: list[Request] = []

    def all(self) -> None:
        """Check everything; raises Violation."""
        self.no_call_is_made_twice()
        self.what_is_answered_was_made()
        for made in self.witness.calls.made:
            self.following.call(made, *_decoded(made))
        self.following.is_state_of(self.witness.machine.qless)
        self.what_is_read_was_so()
        for heard in self.notes.heard:
            self.messages_come_once_and_in_order(heard)

    # --- replies ----------------------------------------------------------------------------------

    def no_call_is_made_twice(self) -> None:
        """A call is in the log once, and only if a client made it."""
        asked = {request.bits for request in self.notes.requests}
        for made in self.witness.calls.made:
            key = (made.session, made.bits)
            if key in self.made:
                raise Violation(f"a call is made twice: {made}")
            if made.bits not in asked:
                raise Violation(f"nobody made this call: {made}")
            self.made[key] = made

    def what_is_answered_was_made(self) -> None:
        """A reply has the result of its call, which was committed between request and reply."""
        for request in self.notes.requests:
            if request.done_s is None or request.name in READS:
                continue
            visit = request.visit
            made = self.made.get(((visit.place, visit.incarnation, visit.number), request.bits))
            if isinstance(request.reply, Error):
                text = request.reply.text
                if any(words in text for words in NOT_CALLED):
                    if made is not None:
                        raise Violation(f"refused and done: {request!r} {made}")
                    continue
                if NO_ROOM in text and made is None:
                    continue
                if text.startswith(NO_RIGHT) and made is None and request.name in PUTS:
                    self.refused.append(request)
                    continue
            leaves_s = self.leaves.get((visit.place, visit.incarnation), FOREVER_S)
            if made is None and request.reply in NO_JOBS and request.done_s >= leaves_s:
                continue
            if made is None:
                raise Violation(f"answered, but not done: {request!r}")
            if not request.at_s <= made.at_s <= request.done_s:
                raise Violation(f"answered before it was done: {request!r} {made}")
            if not _says(request, made):
                raise Violation(f"answered otherwise: {request!r} {made}")

    def what_is_read_was_so(self) -> None:
        """Linearizable: `get` finds a job that exists during the whole call, and no other."""
        for request in self.notes.requests:
            if request.name != b"get" or request.done_s is None:
                continue
            if isinstance(request.reply, Error):
                continue
            spans = self.following.spans(request.args[0])
            at_s, done_s = request.at_s, request.done_s
            if request.reply is None:
                if any(since_s <= at_s and done_s < to_s for since_s, to_s in spans):
                    raise Violation(f"it was there: {request!r}")
            elif not any(since_s <= done_s and at_s <= to_s for since_s, to_s in spans):
                raise Violation(f"it was not there: {request!r}")

    # --- messages ---------------------------------------------------------------------------------

    def messages_come_once_and_in_order(self, heard: Heard) -> None:
        """A connection hears every message, in the order of the log, from some moment on.

        It may miss some while its node loads a snapshot.
        """
        published = self.witness.calls.messages
        told = [(channel, _content(what)) for _, channel, what in heard.messages]
        log = [(PREFIX + channel, _plain(what)) for _, (channel, what) in published]
        loads = [at_s for at_s in self.loads[heard.visit.node] if at_s >= heard.at_s]
        # Messages committed before the subscription need not be heard, all later ones must be.
        since_s = max([heard.at_s, *loads])
        before = sum(at_s <= since_s for at_s, _ in published) if heard.at_s else len(log)
        ends = [
            end
            for start in range(min(before, len(log) - len(told)) + 1)
            if (end := _match(log, start, told, bool(loads))) is not None
        ]
        if not ends:
            raise Violation(
                f"client {heard.visit.client} at {heard.visit.node} was told other messages than "
                f"were published: {told}"
            )
        if not heard.is_open or not heard.at_s:
            return
        for at_s, (channel, what) in published[max(ends) :]:
            if at_s > since_s:
                raise Violation(f"client {heard.visit.client} was not told {channel!r} {what!r}")


def _match(
    log: list[tuple[bytes, Any]], start: int, told: list[tuple[bytes, Any]], jumps: bool
) -> int | None:
    """Return the end of messages that begin at a place of the log; None if they differ."""
    place = start
    for message in told:
        while jumps and place > start and place < len(log) and log[place] != message:
            place += 1
        if place >= len(log) or log[place] != message:
            return None
        place += 1
    return place


def _plain(what: "bytes | Iterable[tuple[bytes, bytes | None]]") -> Any:
    """Return a message of the log in comparable form: text, or a dictionary."""
    if isinstance(what, bytes):
        return what.decode()
    return {key.decode(): False if value is None else value.decode() for key, value in what}


def _content(what: bytes) -> Any:
    """Return a received message in comparable form."""
    return json.loads(what) if what[:1] == b"{" else what.decode()


def _decoded(made: Made) -> tuple[float, tuple[Any, ...]]:
    """Return the client's time and the arguments of a call."""
    now: float = _FLOAT.unpack(_BITS.pack(made.bits))[0]
    return now, msgpack.unpackb(made.args, use_list=False)


def _says(request: Request, made: Made) -> bool:
    """Whether a reply has the result of a call."""
    code, value = made.result
    reply: Any = request.reply
    if code != q.OK or isinstance(reply, Error):
        return code != q.OK and isinstance(reply, Error)
    match request.name:
        case b"put" | b"fail" | b"recur":
            return bool(reply == value)
        case b"pop":
            shown = [
                (job["jid"], job["worker"], job["state"], job["remaining"], job["expires"])
                for job in json.loads(reply)
            ]
            return shown == [
                (
                    *(view.jid.decode(), view.worker.decode()),
                    *(q.STATE_NAMES[view.state].decode(), view.remaining, _whole(view.expires)),
                )
                for view in value
            ]
        case b"complete":
            return bool(reply == q.STATE_NAMES[value])
        case b"heartbeat" | b"retry" | b"unfail":
            return bool(reply == int(value))
        case b"cancel" | b"track" | b"timeout" | b"config.set" | b"throttle.set":
            return True
    raise AssertionError(request.name)


def _whole(number: float) -> float:
    """Return a number as JSON shows it, with 14 digits."""
    return float(f"{number:.14g}")
