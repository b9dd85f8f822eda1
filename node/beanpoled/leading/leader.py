"""The leading half of a node, put together: the begin and end of a term, and of a link.

All state here is volatile: a node that loses leadership forgets it, and origins resend what the
next leader needs. The machine decides the effects of an entry; the leader only proposes. The term
is in `term`, entries are in `proposing`, clients that wait for jobs in `dispatching`.
"""

from beanpoled.leading.dispatching import Dispatcher
from beanpoled.leading.proposing import Proposer
from beanpoled.leading.saved_clock import SavedClock
from beanpoled.leading.term import Term
from beanpoled.leading.unwaits import Unwaits
from beanpoled.leading.versions import Versions
from beanpoled.leading.waiting import WaitingLine
from beanpoled.origin.outbox import Origin
from beanpoled.peers.agreement import Agreement
from beanpoled.peers.digest import Digest
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context


class Leader:
    """The parts of a leader. `begin` and `end` bracket a term of leadership."""

    def __init__(
        self,
        context: Context,
        origin: Origin,
        peers: Peers,
        agreement: Agreement,
        digest: Digest,
    ) -> None:
        self.term = term = Term(context)
        self.versions = Versions(context, peers, term)
        self.saved_clock = SavedClock(context, peers)
        self.line = WaitingLine()
        self.unwaits = Unwaits(context, term, self.line, origin)
        self.dispatcher = Dispatcher(context, term, self.line, self.unwaits)
        self.proposer = Proposer(
            context,
            term,
            origin,
            peers,
            agreement,
            digest,
            self.dispatcher,
            self.unwaits,
            self.versions,
            self.saved_clock,
        )

    def begin(self, term: int) -> None:
        """Begin a term after the election of this node."""
        self.end()
        self.term.begin(term)

    def end(self) -> None:
        """Forget everything of an earlier term: leadership is lost, or not yet won."""
        self.term.end()
        self.dispatcher.clear()
        self.unwaits.clear()
        self.proposer.clear()

    def epoch_applied(self, term: int) -> None:
        """Begin to serve as the leader if the applied EPOCH is our own."""
        if term == self.term.number:
            self.term.serve()
            self.proposer.serve()

    def forget_link(self, origin: int) -> None:
        """Forget the batches and waits of an origin whose link ended: they come again."""
        self.proposer.inbox.forget(origin)
        self.dispatcher.forget_link(origin)
