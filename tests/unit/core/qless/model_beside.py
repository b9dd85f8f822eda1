"""A naive model of qless, from its documentation: tags, queues, options, templates, throttles.

Calls that do not change the life cycle of jobs belong here.
"""

from math import floor
from typing import Any

from beanpole import qless as q
from tests.unit.core.qless.model_tables import THROTTLED, Job, Tables, Template

Names = tuple[bytes, ...]


class Beside(Tables):
    """Everything outside the life cycle of jobs."""

    def remember(self, job: Job, now: float, what: int, *said: bytes) -> None:
        first, second = (*said, b"", b"")[:2]
        job.history.append((float(floor(now)), what, first, second))

    def pause(self, _now: float, queues: Names) -> q.Result:
        self.paused |= set(queues)
        return q.OK, None

    def unpause(self, _now: float, queues: Names) -> q.Result:
        self.paused -= set(queues)
        return q.OK, None

    def forget_workers(self, _now: float, names: Names) -> q.Result:
        for name in names:
            self.workers.pop(name, None)
        return q.OK, None

    def config_set(self, _now: float, option: bytes, value: bytes) -> q.Result:
        self.options[option] = value
        self.say(b"log", {b"event": b"config_set", b"option": option, b"value": value})
        return q.OK, None

    def config_unset(self, _now: float, option: bytes) -> q.Result:
        self.options.pop(option, None)
        self.say(b"log", {b"event": b"config_unset", b"option": option})
        return q.OK, None

    def recur(self, now: float, queue: bytes, jid: bytes, *args: Any) -> q.Result:
        klass, data, interval, offset, priority, tags, retries, backlog, throttles = args
        before = self.templates.get(jid)
        old = b"" if before is None else b"ql:q:" + before.queue
        names = [name for name in throttles or () if name != old]
        if self.flavour in THROTTLED:
            names.append(b"ql:q:" + queue)
        one = Template(
            jid,
            queue,
            klass,
            data,
            interval,
            now + offset,
            priority,
            (),
            retries,
            backlog,
            tuple(dict.fromkeys(names)),
        )
        one.tags = tuple(dict.fromkeys(tags))
        one.count = 0 if before is None else before.count
        self.templates[jid] = one
        self.known.setdefault(queue, now)
        return q.OK, jid

    def unrecur(self, _now: float, jid: bytes) -> q.Result:
        self.templates.pop(jid, None)
        return q.OK, True

    def recur_update(
        self, now: float, jid: bytes, pairs: tuple[tuple[bytes, Any], ...]
    ) -> q.Result:
        one = self.templates.get(jid)
        if one is None:
            return q.NO_RECURRING, (jid,)
        for key, value in pairs:
            if key == b"interval":
                one.next += value - one.interval
            if key == b"queue":
                names = [name for name in one.throttles if name != b"ql:q:" + one.queue]
                if self.flavour in THROTTLED:
                    one.throttles = (*names, b"ql:q:" + value)
                self.known.setdefault(value, now)
            is_set = key == b"throttles"  # a template names each throttle once
            setattr(one, key.decode(), tuple(dict.fromkeys(value)) if is_set else value)
        return q.OK, True

    def recur_tag(self, _now: float, jid: bytes, tags: Names) -> q.Result:
        one = self.templates.get(jid)
        if one is None:
            return q.NO_RECURRING, (jid,)
        one.tags = tuple(dict.fromkeys((*one.tags, *tags)))
        return q.OK, one.tags

    def recur_untag(self, _now: float, jid: bytes, tags: Names) -> q.Result:
        one = self.templates.get(jid)
        if one is None:
            return q.NO_RECURRING, (jid,)
        one.tags = tuple(tag for tag in one.tags if tag not in tags)
        return q.OK, one.tags

    def throttle_set(self, _now: float, name: bytes, maximum: int, _seconds: int) -> q.Result:
        self.maxima[name] = maximum
        return q.OK, None

    def throttle_delete(self, _now: float, name: bytes) -> q.Result:
        self.maxima.pop(name, None)
        return q.OK, None

    def throttle_release(self, now: float, name: bytes, jids: Names) -> q.Result:
        for jid in jids:
            if jid in self.locked[name]:
                self.locked[name].remove(jid)
            elif self.pending[name].pop(jid, None) is not None:
                self.let_wait(self.jobs[jid], now)
            self.let_go_on(name, now)
        return q.OK, None

    def has_room(self, name: bytes) -> bool:
        maximum = self.maxima.get(name, 0)
        return maximum == 0 or len(self.locked[name]) < maximum

    def let_go_on(self, name: bytes, now: float) -> None:
        maximum = self.maxima.get(name, 0)
        room = 10 if maximum == 0 else max(0, maximum - len(self.locked[name]))
        for jid in self.waiting_for(now, name)[1][:room]:
            del self.pending[name][jid]
            self.let_wait(self.jobs[jid], now)

    def track(self, now: float, jid: bytes) -> q.Result:
        if jid not in self.jobs:
            return q.NO_JOB, (jid,)
        self.say(b"track", jid)
        is_new = jid not in self.tracked
        self.tracked[jid] = now
        return q.OK, is_new

    def untrack(self, _now: float, jid: bytes) -> q.Result:
        if jid not in self.jobs:
            return q.NO_JOB, (jid,)
        self.say(b"untrack", jid)
        return q.OK, self.tracked.pop(jid, None) is not None

    def tag_add(self, now: float, jid: bytes, tags: Names) -> q.Result:
        if jid not in self.jobs:
            return q.NO_JOB, (jid,)
        self.jobs[jid].tags.update(dict.fromkeys(tags, now))
        return q.OK, tuple(self.jobs[jid].tags)

    def tag_remove(self, _now: float, jid: bytes, tags: Names) -> q.Result:
        if jid not in self.jobs:
            return q.NO_JOB, (jid,)
        for tag in tags:
            self.jobs[jid].tags.pop(tag, None)
        return q.OK, tuple(self.jobs[jid].tags)

    def note(self, now: float, jid: bytes, message: bytes, data: bytes) -> q.Result:
        if jid not in self.jobs:
            return q.NO_JOB, (jid,)
        self.remember(self.jobs[jid], now, q.HAS_LOGGED, message, data)
        return q.OK, None
