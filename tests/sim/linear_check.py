"""Decide whether a history is linearizable: search for one order that explains every answer.

As Wing and Gong, and Lowe: take any command that was sent before the first answer among those that
are left, ask the model for its answer, continue with the next, and never visit a situation twice. A
session's commands take effect in the order in which they were sent, so a situation is the progress
of each session and the state of the queue. The search is bounded and reports when it gave up.

An unanswered command may take effect at any later time or never; then no later command of its
session does. A session whose connection ended may end at any time after its last answered command,
which returns its jobs.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.sim.linear_model import (
    FOREVER_S,
    READS,
    Call,
    State,
    end_session,
    holds,
    outcomes,
    wakes,
)

LINEARIZABLE: Final = "linearizable"
REFUSED: Final = "refused"
GAVE_UP: Final = "gave up"
SITUATIONS_MAX: Final = 200_000

# The number of commands of each session that have taken effect, and the queue then. The place of
# a session that has ended is behind its last command.
Situation = tuple[tuple[int, ...], State]


class Verdict(NamedTuple):
    """The result of a search."""

    word: str
    situations: int  # visited
    story: str = ""  # the progress of the deepest situation

    @property
    def good(self) -> bool:
        """Whether nothing is known to be wrong."""
        return self.word != REFUSED


class Search:
    """One search."""

    def __init__(self, calls: Sequence[Call], ended: frozenset[int], limit: int) -> None:
        numbers = sorted({call.session for call in calls})
        kept = [call for call in calls if call.answer is not None or call.kind not in READS]
        self.sessions = [[call for call in kept if call.session == one] for one in numbers]
        for session in self.sessions:
            answered = [call.answer is not None for call in session]
            assert answered == sorted(answered, reverse=True), "answered out of order"
        self.numbers = numbers
        self.ended = [one in ended for one in numbers]
        self.limit = limit
        # The first answer that a session waits for, by its progress.
        self.waits_s = [
            [*(call.done_s for call in session), FOREVER_S, FOREVER_S] for session in self.sessions
        ]
        self.bodies = _seen(kept)

    def run(self, start: State) -> Verdict:
        """Search until an order is found, all are refuted, or the limit is reached."""
        first: Situation = ((0,) * len(self.sessions), start)
        seen = {first}
        stack = [(first, self._next(first))]
        deepest, depth = first, -1
        while stack:
            situation, following = stack[-1]
            if self._until_s(situation[0]) == FOREVER_S:
                return Verdict(LINEARIZABLE, len(seen))
            if sum(situation[0]) > depth:
                deepest, depth = situation, sum(situation[0])
            for after in following:
                if after not in seen:
                    seen.add(after)
                    stack.append((after, self._next(after)))
                    break
            else:
                stack.pop()
            if len(seen) > self.limit:
                return Verdict(GAVE_UP, len(seen), self._story(deepest))
        return Verdict(REFUSED, len(seen), self._story(deepest))

    def _until_s(self, places: tuple[int, ...]) -> float:
        """Return the time of the first answer among the commands left; later commands follow it."""
        return min(
            (waits[place] for waits, place in zip(self.waits_s, places, strict=True)),
            default=FOREVER_S,
        )

    def _next(self, situation: Situation) -> Iterator[Situation]:
        """Yield the situations after one more step, the most likely ones first."""
        places, state = situation
        until_s = self._until_s(places)
        able = [
            (session[place].done_s, number)
            for number, (session, place) in enumerate(zip(self.sessions, places, strict=True))
            if place < len(session) and session[place].at_s <= until_s
        ]
        for _, number in sorted(able):
            call = self.sessions[number][places[number]]
            if call.kind == "put" and self.bodies.get(state.next_id, call.body) != call.body:
                continue  # a later answer shows another body under this id
            for after, answer in outcomes(state, call):
                if call.answer is None or answer == call.answer:
                    yield _moved(places, number, places[number] + 1), after
        for number, session in enumerate(self.sessions):
            over = self.waits_s[number][places[number]] == FOREVER_S
            if self.ended[number] and over and holds(state, self.numbers[number]):
                after = end_session(state, self.numbers[number])
                yield _moved(places, number, len(session) + 1), after
        for after in wakes(state, until_s):
            yield places, after

    def _story(self, situation: Situation) -> str:
        """Describe how far the search got: the queue there, and the commands that cannot follow."""
        places, state = situation
        until_s = self._until_s(places)
        left = [
            session[place]
            for session, place in zip(self.sessions, places, strict=True)
            if place < len(session) and session[place].at_s <= until_s
        ]
        return "\n".join(
            [
                f"after {sum(places)} commands: next id {state.next_id}, paused {state.paused}",
                *(f"  {job}" for job in state.jobs),
                "one of these should come next:",
                *(f"  {call}" for call in left),
            ]
        )


def check(
    calls: Sequence[Call],
    ended: frozenset[int] = frozenset(),
    start: State | None = None,
    limit: int = SITUATIONS_MAX,
) -> Verdict:
    """Judge a history: commands of each session in the order in which they were sent.

    Args:
        calls: the commands.
        ended: the sessions whose connections ended.
        start: the queue before the first command; empty by default.
        limit: the number of situations after which the search gives up.
    """
    return Search(calls, ended, limit).run(start or State())


def _seen(calls: Sequence[Call]) -> dict[int, bytes]:
    """Return the bodies of the jobs that any client was told of, by id.

    They decide which unanswered put made a job, which the search would learn much later.
    """
    bodies: dict[int, bytes] = {}
    for call in calls:
        if call.answer is not None and call.answer.word in (b"RESERVED", b"FOUND"):
            bodies[call.answer.number] = call.answer.body
        elif call.answer is not None and call.answer.word == b"INSERTED":
            bodies[call.answer.number] = call.body
    return bodies


def _moved(places: tuple[int, ...], number: int, to: int) -> tuple[int, ...]:
    return (*places[:number], to, *places[number + 1 :])
