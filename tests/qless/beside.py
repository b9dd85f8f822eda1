"""Compare the same calls at Redis, with the real programs, and at a node.

This module keeps the two sides in step, and shortens a walk that ends in a difference.
"""

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.integration.support.qless_scripts import Build, Player, Step
from tests.integration.support.raw import Address
from tests.integration.support.resp import evaluate
from tests.qless.seed_words import seed_line
from tests.qless.suites import Place
from tests.qless.walking import SEED, Walk, Words

# A set of Redis has no order, so an error may name any of several dependents.
_DEPENDENT: Final = re.compile(r"is a dependency of \S+ but")
# The spelling of the seed form; its times of failures have fractions in Redis.
_EXHAUSTED: Final = re.compile(r"exhuasted")
_FAILED: Final = re.compile(r'("failed":\d+)\.\d+')
_POPPED: Final = "json ["
MESSAGES: Final = "messages"

# A line, the reply of Redis, and the reply of the node.
Difference = tuple[str, str, str]
Next = Callable[["RedisSide"], str]


class RedisSide(Player):
    """Redis, with a fix for the one difference that would hide all others."""

    def ask(self, words: Sequence[str]) -> Any:
        """Make a call that is not a step of a walk; return the reply."""
        if self._dialect == SEED:
            name, _, *rest = words
            return evaluate(self._client, self._shas[name], [], rest)
        return evaluate(self._client, self._shas[self._dialect], [], words)

    def play(self, step: Step) -> str:
        """Do one step, and make the script announce a job's next lost lock.

        A script only announces the first ("Lost locks" in docs/protocols/qless.md).
        """
        reply = super().play(step)
        if self._dialect == SEED:
            reply = _FAILED.sub(r"\1", _EXHAUSTED.sub("exhausted", reply))
            return _DEPENDENT.sub("is a dependency of one but", reply)
        name, _, *rest = shlex.split(step.line)
        jids = [rest[0]] if name == "heartbeat" and reply.startswith("int ") else []
        if name == "pop" and reply.startswith(_POPPED):
            jids = [job["jid"] for job in json.loads(reply.removeprefix("json "))]
        for jid in jids:
            self._client.ask("HDEL", f"ql:j:{jid}", "grace")
        return _DEPENDENT.sub("is a dependency of one but", reply)


class NodeSide(Player):
    """A node, with the same normalization of replies."""

    def play(self, step: Step) -> str:
        """Do one step."""
        return _DEPENDENT.sub("is a dependency of one but", super().play(step))


class Sides:
    """Redis and a node, each empty at the beginning of a walk."""

    def __init__(self, redis: Address, place: Place, dialect: str, build: Build) -> None:
        self._redis = redis
        self._place = place
        self._dialect = dialect
        self._build = build

    def walk(self, seed: int, steps: int) -> tuple[list[str], Difference | None]:
        """Walk until a difference; return the lines, and the difference if there was one."""
        walk: Walk | None = None

        def following(redis: RedisSide) -> str:
            nonlocal walk
            if walk is None:
                walk = Walk(seed, self._dialect, redis.ask)
            line = self._line(walk.next())
            while line is None:
                line = self._line(walk.next())
            return line

        # The seed publishes on different channels.
        return self._compare(following, steps, listening=self._dialect != SEED)

    def again(self, lines: Sequence[str]) -> Difference | None:
        """Replay lines; return the first difference."""
        rest = iter(lines)
        return self._compare(lambda _: next(rest), len(lines), listening=False)[1]

    def shortened(self, lines: Sequence[str], last: str) -> list[str]:
        """Remove steps that the last difference does not need, in pieces of decreasing size.

        Differences of messages are not shortened: only a time-out detects a missing message.
        """
        kept = list(lines)
        size = 0 if last == MESSAGES else len(kept) // 2
        while size:
            place = 0
            while place < len(kept):
                fewer = kept[:place] + kept[place + size :]
                found = self.again(fewer) if fewer else None
                if found is not None and found[0] == last:
                    kept = fewer
                else:
                    place += size
            size //= 2
        return kept

    def _line(self, words: Words) -> str | None:
        return seed_line(words) if self._dialect == SEED else shlex.join(words)

    def _compare(
        self, following: Next, steps: int, *, listening: bool
    ) -> tuple[list[str], Difference | None]:
        lines: list[str] = []
        theirs = RedisSide(self._redis, self._redis, self._dialect, self._build)
        ours = NodeSide(*self._place, self._dialect, self._build)
        with contextlib.closing(theirs), contextlib.closing(ours):
            for _ in range(steps):
                lines.append(following(theirs))
                step = Step(lines[-1], "")
                wanted, found = theirs.play(step), ours.play(step)
                if wanted != found:
                    return lines, (lines[-1], wanted, found)
            if not listening:
                return lines, None
            told = theirs.messages(0)
            try:
                heard = ours.messages(len(told))
            except TimeoutError:
                return lines, (MESSAGES, f"{len(told)} messages", "fewer")
        return lines, None if told == heard else (MESSAGES, *_first_difference(told, heard))


def _first_difference(told: list[str], heard: list[str]) -> tuple[str, str]:
    for one, other in zip(told, heard, strict=False):
        if one != other:
            return one, other
    return f"{len(told)} messages", f"{len(heard)} messages"
