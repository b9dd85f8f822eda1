"""This node's side of an introduction: its hello, its verdicts, and the founding of its cluster.

The same code runs over sockets and in the simulator. `admission` makes the decisions and `link`
handles the bytes and proofs of a hello; this module acts on the decisions: it remembers and counts
them, and reports them to the operator.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from beanpole.storage.remedies import told
from beanpoled.disk.identity import FOUNDING, VOTER, WRITE_REFUSED, short
from beanpoled.host.seam import WARNING
from beanpoled.links import admission
from beanpoled.links.admission import REFUSE, TALK, Known, Verdict
from beanpoled.links.link import (
    MEMBERS,
    OLDER,
    VERSION_MAX,
    VERSION_MIN,
    VERSIONS,
    Hello,
)
from beanpoled.origin.outbox import Origin
from beanpoled.shared.context import Context
from beanpoled.trust.proofs import NONCE_BYTES

# A hello that was on its way while its node began an incarnation shows the previous incarnation, so
# a refusal counts only when it is the second in a row. Links are dialed again at once.
REFUSALS_MIN: Final = 2


class Introductions:
    """The members that this node talks to. `begin` is called once its disk knows its cluster."""

    def __init__(self, context: Context, origin: Origin) -> None:
        self._context = context
        self._disks = context.disks
        self._origin = origin
        self._others = frozenset(context.members) - {context.name}
        self.begin: Callable[[], None]
        self._met: dict[str, Hello] = {}  # connected members that were answered with WAIT
        self._refusals: Counter[str] = Counter()  # consecutive refusals for the same reason
        self._reasons: dict[str, str] = {}
        self._causes: dict[str, int] = {}  # the causes of the refusals that count
        self._kept: dict[str, int] = {}  # the log index that each peer's present disk reported
        self._logged: dict[str, str] = {}  # the last refusal of each peer that was logged

    def hello(self, nonce: bytes) -> Hello:
        """Build the hello of this node."""
        config, own = self._context.config, self._disks.own
        assert len(nonce) == NONCE_BYTES
        return Hello(
            version_min=VERSION_MIN,
            version_max=VERSION_MAX,
            cluster=config.cluster,
            node=config.node_id,
            config_hash=config.config_hash,
            nonce=nonce,
            disk_id=own.disk_id,
            birth=own.birth,
            standing=own.standing,
            replacement=own.replacement,
            incarnation=own.incarnation,
            last_index=self._context.replica.last_index,
            founders=own.founders,
        )

    def is_current(self, hello: Hello) -> bool:
        """Whether a hello of this node still describes its disk; if not, redo the link."""
        return hello.birth == self._disks.own.birth

    def meet(self, hello: Hello) -> Verdict:
        """Decide about a peer that has proved its identity, and store the consequences.

        This disk may be part of a cluster afterwards: check `is_current`, and send a new hello if
        needed.

        Raises:
            OSError: the decision cannot be stored; the link must not be used.
        """
        name = hello.node
        verdict = admission.judge(self._disks.own, hello, self._known(hello))
        if verdict.kind == REFUSE:
            self.refused(name, verdict.cause, verdict.reason, verdict.is_mutual)
            return verdict
        if verdict.kind == TALK:
            if self._disks.known(name)[:1] != (hello.disk_id,):
                self._kept.pop(name, None)
            self._disks.remember(name, hello.disk_id)
            self._met.pop(name, None)
        else:
            self._met[name] = hello
            if not self._disks.own.runs:
                self._settle()
        return verdict

    def parted(self, hello: Hello) -> None:
        """Note that a link that was answered with WAIT is gone."""
        if self._met.get(hello.node) is hello:
            del self._met[hello.node]

    def refused(self, name: str, cause: int, reason: str, is_mutual: bool = True) -> None:
        """Note that a member refuses this node, or that this node refuses it.

        A node that does not serve yet exits if it can never be part of a majority; otherwise it
        goes on without that member. It also goes on if only the member can be wrong (not
        `is_mutual`). A disk that has lost data of its node must not vote, even where its vote would
        count: one member that knows of the loss is enough, and ends even a node that serves.
        """
        context = self._context
        if name not in self._others:
            return  # not a member: the links themselves log bad hellos
        if self._reasons.get(name) != reason:
            self._reasons[name] = reason
            del self._refusals[name]
        self._refusals[name] += 1
        if self._refusals[name] < REFUSALS_MIN:
            return
        if self._logged.get(name) != reason:
            self._logged[name] = reason
            context.host.log(f"no link to {name}: {reason}{self._here(cause)}", WARNING)
        if cause == VERSIONS or not is_mutual:
            return
        self._causes[name] = cause
        if cause == OLDER:
            context.fatal(f"{'stopping' if self._origin.up else 'refusing to start'}: {reason}")
        elif not self._origin.up and admission.is_hopeless(self._disks.own, self._causes):
            context.fatal(f"refusing to start: {reason}{self._here(cause)}")

    def _here(self, cause: int) -> str:
        """The values of this node that a member's differ from; the member sends only a hash."""
        if cause != MEMBERS:
            return ""
        config = self._context.config
        members = ", ".join(sorted(config.members))
        return (
            f" (this node has node_id {config.node_id}, cluster {config.cluster}, "
            f"members {members}, durability {config.durability})"
        )

    def waiting_for(self) -> tuple[str, ...]:
        """The members that this disk waits for while it does not know its cluster."""
        return admission.awaited(self._disks.own, self._met)

    def without_data(self) -> tuple[str, ...]:
        """The members with an empty disk that waits to rejoin, perhaps this one among them."""
        return admission.without_data(self._disks.own, self._met)

    def refusal(self, name: str) -> str:
        """The reason of the last refusals of a member; empty if there is no such refusal."""
        return self._reasons[name] if self._refusals[name] >= REFUSALS_MIN else ""

    def _known(self, hello: Hello) -> Known:
        if hello.node not in self._others:
            return Known()
        context = self._context
        origin = context.machine.origins.get(context.index_of(hello.node))
        return Known(
            disks=self._disks.known(hello.node),
            incarnation=0 if origin is None else origin.incarnation,
            kept_index=self._kept.get(hello.node, 0),
        )

    def kept_index(self) -> int:
        """The index up to which this disk has the log permanently."""
        context = self._context
        if context.config.durability != "sync":
            return 0
        return min(context.replica.durable_index, context.replica.commit_index)

    def accepted(self, name: str, kept_index: int) -> None:
        """Note that a member sent a heartbeat on a link, which means it has accepted this node."""
        self._kept[name] = kept_index
        if name in self._refusals:
            del self._refusals[name]
            self._causes.pop(name, None)
            self._logged.pop(name, None)

    def _settle(self) -> None:
        """Become part of a cluster, if the members met so far determine which one."""
        context, own = self._context, self._disks.own
        found = admission.founding(own, self._met)
        if found is None:
            return
        birth, founders = found
        standing = VOTER if own.standing == FOUNDING else own.standing
        try:
            self._disks.change(birth=birth, founders=founders, standing=standing)
        except OSError as error:
            context.fatal(f"{WRITE_REFUSED}: {told(error)}")
            return
        self._met.clear()
        self._refusals.clear()
        self._causes.clear()
        context.host.log(f"part of the cluster with the birth id {short(birth)}")
        self.begin()
