"""The results of one log entry, for the node that applied it. This module decides nothing."""

from typing import Any, Final

from beanpole.core.jobs.effects import Effect
from beanpole.core.jobs.job import Job
from beanpole.qless import Message

# Outcomes of a GRANT.
LATER: Final = 2  # the entry's budget of tubes to look at is spent; the leader tries again
GRANTED: Final = 1
NONE_READY: Final = 0  # the leader keeps the waiter
VOID: Final = -1  # the waiter is gone, or has got its job already


class Applied:
    """The results of one log entry, for the node that applied it.

    Attributes:
        results: (incarnation, number, results of each command) of each applied batch of `own`.
        grants: (origin, incarnation, session, request, outcome, job or None) of each GRANT.
        gaps: origins with a batch that came before its predecessor.
        downs: (origin, incarnation) of each NODE_DOWN that took effect.
        ups: (origin, incarnation) of each incarnation that began.
        effects: (job id, kind, data) of each change of a job that clients of this node listen to,
            in the order of the log; see `core.jobs.effects`.
        messages: messages that calls of qless published and clients of this node listen to, in the
            same order.
        epoch: the term of the EPOCH in this entry, or 0.
        digest: whether this entry contains a DIGEST.
        raised: whether the machine's version rose in this entry.
    """

    __slots__ = (
        "digest",
        "downs",
        "effects",
        "epoch",
        "gaps",
        "grants",
        "messages",
        "raised",
        "results",
        "ups",
    )

    def __init__(self) -> None:
        self.results: list[tuple[int, int, list[Any]]] = []
        self.grants: list[tuple[int, int, int, int, int, Job | None]] = []
        self.effects: list[Effect] = []
        self.messages: list[Message] = []
        self.gaps: list[int] = []
        self.downs: list[tuple[int, int]] = []
        self.ups: list[tuple[int, int]] = []
        self.epoch = 0
        self.digest = False
        self.raised = False
