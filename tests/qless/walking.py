"""Random walks through the calls of a dialect, in words as clients send them.

This module chooses the next call, with arguments that share jobs, queues, workers, tags and
throttles. A walk queries Redis (`ask`) for existing jobs, and avoids the documented differences
from the scripts (docs/protocols/qless.md); each such place has a comment.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

SEED: Final = "seed"
UNIFIED: Final = "unified"
THROTTLES: Final = "throttles"
QUEUES: Final = ("q", "r", "s")
WORKERS: Final = ("w", "v", "u")
TAGS: Final = ("red", "green", "blue")
GROUPS: Final = ("g", "h")
LIMITED: Final = ("t", "k", "ql:q:q")
JIDS: Final = 14
DATA: Final = ("{}", '{"a": 1}', "[]", '"text/slash"', "17", '{"deep": [1.5, null, true, "é"]}')
# Seconds between calls, so that locks, grace periods, delays and days end now and then.
PASSED: Final = (0, 0, 0.25, 1, 1, 3, 11, 30, 61)
DAY_S: Final = 86_400

Ask = Callable[[Sequence[str]], Any]
Words = list[str]


class Walk:
    """A random walk, with the clock of its calls.

    Attributes:
        dialect: `seed`, `unified` or `throttles`. Calls of the seed use the words of unified.
        timing_out: whether the walk times jobs out. Scripts leave these in the list of their
            worker, so such a walk does not read these lists.
        forgetting: whether the walk forgets queues, and so does not compare their statistics.
    """

    def __init__(self, seed: int, dialect: str, ask: Ask) -> None:
        self.dice = random.Random(seed)
        self.dialect = dialect
        self.timing_out = self.dice.random() < 0.5
        self.forgetting = self.dice.random() < 0.3
        self._ask = ask
        self._now = 1000.0
        self._templates: dict[str, str] = {}
        self._made = 0
        # Jobs with both a delay and dependencies: the next put drops the delay.
        self._delayed: set[str] = set()
        self._kinds: dict[Callable[[], Words | None], int] = {
            self._put: 8,
            self._pop: 8,
            self._complete: 6,
            self._fail: 2,
            self._retry: 3,
            self._heartbeat: 2,
            self._change: 6,
            self._recur: 3,
            self._option: 2,
            self._list: 5,
        }
        if dialect == THROTTLES:
            self._kinds[self._throttle] = 4

    def next(self) -> Words:
        """Return the name of a call, `now`, and its arguments."""
        self._now += self.dice.choice(PASSED)
        if self.dice.random() < 0.01:
            self._now += DAY_S
        found = None
        while found is None:
            found = self.dice.choices(list(self._kinds), list(self._kinds.values()))[0]()
        name, *rest = found
        return [name, _number(self._now), *rest]

    def job(self, jid: str) -> Any:
        """Return a job as Redis reports it."""
        text = self._ask(["get", _number(self._now), jid])
        return None if text is None else json.loads(text)

    def _one(self) -> str:
        return f"j{self.dice.randrange(JIDS):02}"

    def _some(self, of: Sequence[str], most: int = 3) -> Words:
        return self.dice.sample(of, self.dice.randint(0, min(most, len(of))))

    def _jids(self, most: int) -> Words:
        return self._some([f"j{number:02}" for number in range(JIDS)], most)

    def _before(self, jid: str) -> Words:
        """Return jobs with smaller numbers, which a job may depend on without a cycle."""
        return [one for one in self._jids(3) if one < jid]

    def _cancelable(self, jids: Words) -> Words:
        """Drop failed jobs: qless-py's script fails for those without attempts left."""
        if self.dialect != UNIFIED:
            return jids
        found = [(jid, self.job(jid)) for jid in jids]
        spent = [jid for jid, job in found if job and job["state"] == "failed"]
        return [jid for jid in jids if jid not in spent] or ["unknown"]

    def _owned(self) -> tuple[str, str, str]:
        """Return a job, its worker and its queue; often of a running job."""
        dice = self.dice
        if dice.random() < 0.85:
            for _ in range(6):
                found = self.job(self._one())
                if found and found["state"] == "running":
                    return found["jid"], found["worker"], found["queue"]
        jid = self._one()
        there = self.job(jid)
        # Use only the job's own queue: with another one scripts leave the job between both.
        queue = there["queue"] if there else ""
        return jid, dice.choice(WORKERS), queue or dice.choice(QUEUES)

    def _put(self) -> Words | None:
        dice = self.dice
        jid, queue = self._one(), dice.choice(QUEUES)
        there = self.job(jid)
        if jid in self._delayed and there and there["state"] == "depends":
            return None
        if there and self.dialect == THROTTLES and there["state"] in ("running", "throttled"):
            return None  # a script never releases the throttles' locks of such a job
        words = [queue, jid, dice.choice(("Klass", "Other")), dice.choice(DATA)]
        delay = dice.choice(("0", "0", "0", "0.5", "5", "100"))
        depends = self._before(jid) if dice.random() < 0.3 else []
        if depends and delay != "0" and self.dialect != THROTTLES:
            delay = "0"  # the two options exclude each other
        if depends and delay != "0":
            self._delayed.add(jid)
        if there and there["dependencies"] and self.dialect != THROTTLES:
            delay = "0"  # a delay would let the job run before its dependencies
        words.append(delay)
        if depends:
            words += ["depends", json.dumps(depends)]
        if dice.random() < 0.4:
            words += ["priority", dice.choice(("-1", "0", "1", "2.5"))]
        if self.dialect == SEED and there:
            # Its script adds to existing tags and dependencies.
            if there["dependencies"] and depends:
                return None
            if there["tags"]:
                return ["put", *words]
        if dice.random() < 0.4:
            words += ["tags", json.dumps(self._some(TAGS))]
        if dice.random() < 0.4:
            words += ["retries", dice.choice(("0", "1", "3"))]
        if self.dialect != THROTTLES:
            return ["put", *words]
        if dice.random() < 0.5:
            words += ["throttles", json.dumps(self._some(("t", "k")))]
        name = "requeue" if dice.random() < 0.15 else "put"
        return [name, dice.choice(WORKERS), *words]

    def _pop(self) -> Words:
        dice = self.dice
        queue, count = dice.choice(QUEUES), str(dice.randint(1, 4))
        if dice.random() < 0.8:
            return ["pop", queue, dice.choice(WORKERS), count]
        if self.dialect == THROTTLES:
            return ["peek", queue, str(dice.randint(0, 2)), count]
        return ["peek", queue, count]

    def _complete(self) -> Words:
        dice = self.dice
        jid, worker, queue = self._owned()
        words = ["complete", jid, worker, queue, dice.choice(DATA)]
        if self.dialect == THROTTLES and dice.random() < 0.1:
            words[3] = dice.choice(QUEUES)
        if dice.random() < 0.4:
            words += ["next", dice.choice(QUEUES)]
            # No delay: with one the state is `scheduled` here, and `waiting` in a script.
            if dice.random() < 0.3 and (before := self._before(jid)):
                words += ["depends", json.dumps(before)]
        elif dice.random() < 0.05:
            words += dice.choice((["delay", "3"], ["depends", "[]"]))
        return words

    def _fail(self) -> Words:
        jid, worker, _ = self._owned()
        there = self.job(jid)
        if self.dialect != THROTTLES and there and there["state"] == "running":
            worker = there["worker"]  # for any other, a script leaves the job in this worker's list
        data = [self.dice.choice(DATA)] if self.dice.random() < 0.5 else []
        return ["fail", jid, worker, self.dice.choice(GROUPS), "a message", *data]

    def _retry(self) -> Words:
        dice = self.dice
        jid, worker, queue = self._owned()
        words = ["retry", jid, queue, worker, dice.choice(("0", "0", "3"))]
        if dice.random() < 0.4:
            words += [dice.choice(GROUPS), "why"]
        return words

    def _heartbeat(self) -> Words | None:
        jid, worker, _ = self._owned()
        there = self.job(jid)
        if self.dialect == SEED and there and there["state"] != "running":
            return None  # a script accepts a job that waits after a retry
        data = [self.dice.choice(DATA)] if self.dice.random() < 0.5 else []
        return ["heartbeat", jid, worker, *data]

    def _change(self) -> Words | None:
        dice = self.dice
        jid = self._one()
        there = self.job(jid)
        kind = dice.choice(
            (
                *("cancel", "cancel", "on", "off", "priority", "unfail", "add", "remove"),
                *("log", "track", "untrack", "timeout", "pause", "unpause", "unpause", "forget"),
            )
        )
        if kind == "cancel":
            return ["cancel", *self._cancelable(self._jids(3) or [jid])]
        if kind == "on":
            return ["depends", jid, "on", *self._before(jid)]
        if kind == "off":
            if jid in self._delayed:
                return None
            return ["depends", jid, "off", *dice.choice((["all"], self._jids(3)))]
        if kind == "priority":
            # For an unknown job the error is Redis' own, without a text of the script.
            return ["priority", jid, dice.choice(("-2", "0", "7.5"))] if there else None
        if kind == "unfail" and self.dialect == SEED:
            return None  # its script always fails
        if kind == "unfail":
            return ["unfail", dice.choice(QUEUES), dice.choice((*GROUPS, "failed-retries-q")), "2"]
        if kind in ("add", "remove"):
            # A script counts existing tags again, and decrements the counts of missing ones.
            tags = set(there["tags"]) if there else set()
            fits = [tag for tag in self._some(TAGS) if (tag in tags) == (kind == "remove")]
            return ["tag", kind, jid, *fits]
        if kind == "log":
            return ["log", jid, "said", *dice.choice(([], ['{"x": 1}'], ['{"y": "z"}']))]
        if kind in ("track", "untrack"):
            return ["track", kind, jid]
        if kind == "timeout":
            return ["timeout", self._owned()[0]] if self.timing_out else None
        if kind == "forget":
            return ["queue.forget", dice.choice(QUEUES)] if self.forgetting else None
        return [kind, dice.choice(QUEUES)]

    def _recur(self) -> Words | None:
        """Use one template per queue: of several, a script makes a pop's count of jobs each."""
        dice = self.dice
        queue = dice.choice(QUEUES)
        jid = self._templates.get(queue)
        if jid is None:
            # Never reuse a jid: its numbers would begin at 1 again, and those jobs may exist.
            self._made += 1
            jid = self._templates[queue] = f"t{self._made}"
            words = ["recur", queue, jid, "K", "{}", "interval"]
            words += [dice.choice(("7", "20", "60")), dice.choice(("0", "5"))]
            words += ["priority", "1", "tags", json.dumps(self._some(TAGS))]
            words += ["retries", dice.choice(("0", "2")), "backlog", dice.choice(("0", "0", "2"))]
            if self.dialect == THROTTLES and dice.random() < 0.5:
                words += ["throttles", json.dumps(self._some(("t", "k")))]
            return words
        kind = dice.choice(("get", "get", "update", "tag", "untag", "off"))
        if kind == "off":
            del self._templates[queue]
            return ["unrecur", jid]
        if kind == "get":
            return ["recur.get", jid]
        if kind == "update":
            pairs = (["priority", "3"], ["interval", "30"], ["retries", "1"], ["klass", "L"])
            return ["recur.update", jid, *dice.choice((*pairs, ["data", '{"b":2}']))]
        return [f"recur.{kind}", jid, *self._some(TAGS, 2)]

    def _option(self) -> Words:
        dice = self.dice
        name, values = dice.choice(
            (
                ("heartbeat", ("10", "20", "60")),
                ("q-heartbeat", ("5", "40")),
                ("grace-period", ("0", "10", "-1")),
                ("jobs-history-count", ("2", "5", "50000")),
                ("jobs-history", ("50", "604800")),
                *([("r-max-concurrency", ("1", "2", "0"))] if self.dialect != THROTTLES else []),
                *([("max-pop-retry", ("1", "3"))] if self.dialect == THROTTLES else []),
            )
        )
        kind = dice.random()
        if kind < 0.6:
            return ["config.set", name, dice.choice(values)]
        return ["config.unset", name] if kind < 0.8 else ["config.get", name]

    def _list(self) -> Words | None:
        dice = self.dice
        queue = dice.choice(QUEUES)
        states = ["running", "stalled", "scheduled", "depends", "recurring"]
        states += ["throttled"] if self.dialect == THROTTLES else []
        kind = dice.choice(
            (
                *("get", "multiget", "jobs", "complete", "queues", "queue", "length", "track"),
                *("tag", "top", "failed", "group", "workers", "worker", "deregister"),
                *("stats", "stats"),
            )
        )
        plain = {
            "complete": ["jobs", "complete"],
            "queues": ["queues"],
            "queue": ["queues", queue],
            "length": ["length", queue],
            "track": ["track"],
            "tag": ["tag", "get", dice.choice(TAGS), "0", "5"],
            "top": ["tag", "top", "0", "5"],
            "failed": ["failed"],
            "group": ["failed", dice.choice((*GROUPS, "failed-retries-q")), "0", "5"],
            "get": ["get", self._one()],
            "multiget": ["multiget", *self._jids(5)],
            "jobs": ["jobs", dice.choice(states), queue, "0", dice.choice(("2", "25"))],
        }
        if kind == "top" and self.dialect == SEED:
            return None  # its script counts tags again at each put
        if kind in plain:
            return plain[kind]
        if kind == "stats":
            day = int(self._now) - dice.choice((0, 0, DAY_S))
            return None if self.forgetting else ["stats", queue, str(max(0, day))]
        if self.timing_out:
            return None
        if kind == "worker":
            return ["workers", dice.choice(WORKERS)]
        return ["workers"] if kind == "workers" else ["worker.deregister", dice.choice(WORKERS)]

    def _throttle(self) -> Words | None:
        dice = self.dice
        name = dice.choice(LIMITED)
        kind = dice.choice(("set", "set", "get", "locks", "pending", "delete", "release"))
        if kind == "set":
            if name.startswith("ql:q:") and dice.random() < 0.5:
                return ["queue.throttle.set", "q", str(dice.randint(0, 3))]
            return ["throttle.set", name, str(dice.randint(0, 3))]
        if kind == "release":
            # Only running jobs: a script would lose a job that waits for the throttle.
            jid = self._one()
            there = self.job(jid)
            if there is None or there["state"] != "running":
                return None
            return ["throttle.release", name, jid]
        return [f"throttle.{kind}", name]


def _number(value: float) -> str:
    return f"{value:.2f}"
