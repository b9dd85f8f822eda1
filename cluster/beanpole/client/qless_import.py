"""Import the qless data of a Redis into a cluster: the order of the items, and the outcome.

Items that exist in the cluster stay unchanged, so an import can be repeated. A job is imported
after the jobs that it depends on. Reading from Redis is in `qless_source`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Final, NamedTuple

import msgpack

from beanpole import qless as q
from beanpole.client.qless_outcome import Outcome
from beanpole.client.qless_source import Found, Source, Throttle, shown
from beanpole.client.redis import Redis, words_of
from beanpole.errors import ClientError
from beanpole.protocol.qless import cjson
from beanpole.protocol.resp.client import Reply
from beanpole.protocol.resp.parser import ARGUMENTS_MAX, BULK_MAX_BYTES, REQUEST_MAX_BYTES
from beanpole.protocol.resp.values import Error

# Items that are sent at a time.
BATCH: Final = 64
# Jobs between two reports of progress.
PROGRESS_JOBS: Final = 10_000

# A node recognises the dialect by this script; it is needed for all calls except imports.
SCRIPT: Final = b"""\
QlessAPI.put = function(now, me, queue, jid, klass, data, delay, ...)
QlessAPI.requeue = function(now, me, queue, jid, ...)
QlessAPI.pop = function(now, queue, worker, count)
QlessAPI.peek = function(now, queue, offset, count)
QlessAPI.get = function(now, jid)
QlessAPI.fail = function(now, jid, worker, group, message, data)
QlessAPI.track = function(now, command, jid)
QlessAPI['config.get'] = function(now, key)
QlessAPI['config.set'] = function(now, key, value)
QlessAPI['throttle.ttl'] = function(now, tid)
QlessAPI['throttle.set'] = function(now, tid, max, ...)
"""

_LARGE: Final = Error(b"ERR it is too large: %d bytes at most" % BULK_MAX_BYTES)
_MADE: Final = 1
_NOT_SET: Final = -2  # the TTL of a throttle that does not exist
_DEPENDS_AT: Final = 14  # the index of the dependencies in the arguments of `qless.IMPORT_JOB`
_UNKNOWN_COMMAND: Final = b"ERR unknown command"
# A node that drains makes no jobs, while the others do.
_DRAINING: Final = b"ERR this node is draining"
# Refusals that concern the node or the cluster, not the job.
_OF_THE_NODE: Final = (
    b"ERR no majority",
    b"ERR a limit of the cluster is reached",
)

# A queue or a template: its name, the time and the arguments of its import.
_Item = tuple[bytes, float, tuple[object, ...]]


class _Read(NamedTuple):
    """All of a Redis that is read as a whole, before anything is imported.

    So a key of another type ends the import before it begins, unless it is one that is read job by
    job: those of a job, and the sorted sets of queues, of tags and of completed jobs.

    Attributes:
        states: the state of each job by its jid.
        order: the jids in the order of their import.
        circles: the jids that cannot be imported, because they wait for each other.
    """

    states: Mapping[bytes, int]
    order: Sequence[bytes]
    circles: Sequence[bytes]
    queues: Sequence[tuple[bytes, float, bool]]
    options: Sequence[tuple[bytes, bytes]]
    throttles: Sequence[Throttle]
    templates: Sequence[Found]
    tracked: Sequence[tuple[bytes, float]]
    patterns: Mapping[bytes, bytes]
    priorities: Sequence[bytes]


def _read(source: Source) -> _Read:
    states = source.states()
    if not states and not source.anything():
        raise ClientError("this database of the Redis has no key of qless (ql:...)")
    failed = [jid for jid in source.failed_order() if states.get(jid) == q.FAILED]
    failed = list(dict.fromkeys(failed))
    in_groups = dict.fromkeys(failed)
    waiting = [jid for jid, state in states.items() if state == q.DEPENDS]
    first = [
        jid
        for jid, state in states.items()
        if state != q.DEPENDS and not (state == q.FAILED and jid in in_groups)
    ]
    last, circles = in_order(source.dependencies(waiting))
    return _Read(
        states,
        [*first, *failed, *last],
        circles,
        source.queues(),
        source.options(),
        list(source.throttles()),
        list(source.templates()),
        source.tracked(),
        *source.patterns(),
    )


def look(source: Source) -> Outcome:
    """Count the items that an import would send, without connecting to a cluster."""
    outcome = Outcome()
    read = _read(source)
    counts = Counter(read.states.values())
    for state, name in _names().items():
        outcome.found(name, counts[state])
    outcome.found("recurring", len(read.templates))
    outcome.found("queues", len(read.queues))
    outcome.found("options", len(read.options))
    outcome.found("throttles", len(read.throttles))
    outcome.found("tracked", len(read.tracked))
    outcome.found("patterns", len(read.patterns) + len(read.priorities))
    return outcome


def bring(
    source: Source,
    target: Redis,
    now: float,
    progress: Callable[[int, int], None],
    outcome: Outcome,
) -> None:
    """Import everything into a cluster.

    Args:
        source: the Redis.
        target: the nodes.
        now: the present time, in seconds since 1970.
        progress: the callback for the number of jobs sent and the number of all jobs.
        outcome: counts the items as they are imported, also of an import that fails.

    Raises:
        ClientError: a server does not answer, a key of the Redis has another type, or the node
            refuses all requests. Items imported until then stay; the caller can repeat the import.
    """
    _Import(source, target, now, progress, outcome).run()


class _Import:
    """An import in progress."""

    def __init__(
        self,
        source: Source,
        target: Redis,
        now: float,
        progress: Callable[[int, int], None],
        outcome: Outcome,
    ) -> None:
        self._source = source
        self._target = target
        self._now = b"%.6f" % now
        self._time = now
        self._progress = progress
        self._outcome = outcome
        self._refused: dict[bytes, None] = {}  # jids that other jobs may depend on

    def run(self) -> None:
        read = _read(self._source)
        for name in _names().values():
            self._outcome.note(name)
        # Limits come first, so that they apply to the jobs as they did in Redis.
        self._options(read.options)
        self._throttles(read.throttles)
        queues = [(name, since, (name, paused)) for name, since, paused in read.queues]
        self._imports("queues", b"queue", queues)
        self._templates(read.templates)
        self._jobs(read)
        self._tracked(read)
        self._patterns(read.patterns, read.priorities)

    # --- jobs -----------------------------------------------------------------------------------

    def _jobs(self, read: _Read) -> None:
        done = 0
        for found in self._source.jobs(read.order):
            self._batch(found)
            if (done + len(found)) // PROGRESS_JOBS > done // PROGRESS_JOBS:
                self._progress(done + len(found), len(read.states))
            done += len(found)
        for jid in read.circles:
            self._refuse(q.DEPENDS, jid, "it waits for itself, or for jobs that do")

    def _batch(self, jobs: Sequence[Found]) -> None:
        """Send jobs, except those that depend on a refused job."""
        sent: list[Found] = []
        for job in jobs:
            if isinstance(job.arguments, str):
                self._refuse(job.state, job.jid, job.arguments)
                continue
            if job.state == q.DEPENDS:
                waits = dict.fromkeys(_dependencies_of(job))
                if any(one.jid in waits for one in sent):  # it may be refused, so send it first
                    self._send(sent)
                    sent = []
                lacking = [jid for jid in waits if jid in self._refused]
                if lacking:
                    why = f"it waits for {shown(lacking[0])}, which was refused"
                    self._refuse(job.state, job.jid, why)
                    continue
            sent.append(job)
        self._send(sent)

    def _send(self, jobs: Sequence[Found]) -> None:
        requests = [_import(b"job", self._time, job.arguments) for job in jobs]
        replies = self._replies(requests)
        for job, reply in zip(jobs, replies, strict=True):
            if _is_of_the_node(reply):
                continue  # the import ends, once all that was made is counted
            if isinstance(reply, Error):
                self._refuse(job.state, job.jid, _words(reply))
            else:
                made = reply == _MADE
                name = q.STATE_NAMES[job.state].decode()
                self._outcome.note(name, brought=int(made), there=int(not made))
                if made:
                    self._outcome.lack(name, job.jid, job.lacks)
        self._check(replies)

    def _refuse(self, state: int, jid: bytes, why: str) -> None:
        self._refused[jid] = None
        self._outcome.refuse(q.STATE_NAMES[state].decode(), jid, why)

    # --- all else -------------------------------------------------------------------------------

    def _templates(self, templates: Iterable[Found]) -> None:
        items: list[_Item] = []
        lacks: dict[bytes, Sequence[str]] = {}
        for template in templates:
            if isinstance(template.arguments, str):
                self._outcome.refuse("recurring", template.jid, template.arguments)
            else:
                items.append((template.jid, self._time, template.arguments))
                lacks[template.jid] = template.lacks
        self._imports("recurring", b"recurring", items, lacks)

    def _imports(
        self,
        kind: str,
        what: bytes,
        items: Sequence[_Item],
        lacks: Mapping[bytes, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Import queues or templates, and name the parts that these lack."""
        self._outcome.note(kind)
        for start in range(0, len(items), BATCH):
            some = items[start : start + BATCH]
            requests = [_import(what, at, arguments) for _, at, arguments in some]
            replies = self._replies(requests)
            for (name, _, _), reply in zip(some, replies, strict=True):
                if not _is_of_the_node(reply) and self._take(kind, name, reply):
                    self._outcome.lack(kind, name, lacks.get(name, ()))
            self._check(replies)

    def _options(self, options: Iterable[tuple[bytes, bytes]]) -> None:
        """Set options, unless the cluster has a value other than the default."""
        self._outcome.note("options")
        known = cjson.decode(_bulk(self._call(b"config.get")))
        assert isinstance(known, dict), known
        for option, value in options:
            if _is_not_finite(value):
                why = f"its value {shown(value)} is not finite"
                self._outcome.refuse("options", option, why)
                continue
            told = known.get(option.decode(errors="surrogateescape"))
            present = b"%.14g" % told if isinstance(told, float) else _bytes(told)
            if present is not None and present != q.CONFIG_DEFAULTS.get(option):
                if present == value:
                    self._outcome.note("options", there=1)
                else:
                    why = f"the cluster has {shown(present)} and keeps it"
                    self._outcome.refuse("options", option, why)
            elif present == value:
                self._outcome.note("options", there=1)
            else:
                self._take("options", option, self._call(b"config.set", option, value))

    def _throttles(self, throttles: Iterable[Throttle]) -> None:
        """Set throttles that do not exist in the cluster."""
        self._outcome.note("throttles")
        for throttle in throttles:
            reply = self._call(b"throttle.ttl", throttle.name)
            if reply == _NOT_SET:
                seconds = b"%d" % throttle.seconds
                reply = self._call(b"throttle.set", throttle.name, throttle.maximum, seconds)
            elif not isinstance(reply, Error):
                self._outcome.note("throttles", there=1)
                continue
            self._take("throttles", throttle.name, reply)

    def _tracked(self, read: _Read) -> None:
        """Track the imported jobs that are tracked in Redis, with the same time."""
        self._outcome.note("tracked")
        for jid, since in read.tracked:
            if jid not in read.states or jid in self._refused:
                continue
            words = (b"EVAL", SCRIPT, b"0", b"track", b"%.6f" % since, b"track", jid)
            self._take("tracked", jid, self._ask([words])[0])

    def _patterns(self, named: Mapping[bytes, bytes], priorities: Sequence[bytes]) -> None:
        """Set the patterns of reqless, unless the cluster has some."""
        self._outcome.note("patterns")
        key = b"qmore:dynamic"
        words = [word for pair in named.items() for word in pair]
        self._patterns_of(len(named), (b"HGETALL", key), [(b"HSET", key, *words)])
        key = b"qmore:priority"
        have = (b"LRANGE", key, b"0", b"-1")
        push = (b"RPUSH", key, *priorities)
        # If the reply is lost, all is repeated: without the DEL, each pattern would come twice.
        put = [(b"MULTI",), (b"DEL", key), push, (b"EXEC",)]
        self._patterns_of(len(priorities), have, put)

    def _patterns_of(
        self, count: int, have: Sequence[bytes], put: Sequence[Sequence[bytes]]
    ) -> None:
        """Set patterns by the requests `put`, unless the reply to `have` has some."""
        if not count:
            return
        (reply,) = self._ask([have])
        if reply and not isinstance(reply, Error):
            self._outcome.note("patterns", there=count)
            return
        if not reply:
            replies = self._ask(put)
            # In a transaction the first error has the reason, that of EXEC has not.
            reply = next((one for one in replies if isinstance(one, Error)), None)
        if isinstance(reply, Error):
            self._outcome.refuse("patterns", have[1], _words(reply))
        else:
            self._outcome.note("patterns", brought=count)

    def _take(self, kind: str, name: bytes, reply: Reply) -> bool:
        """Count the reply of a node, and return whether it made the item.

        0 and "0" mean that the item existed already.
        """
        if isinstance(reply, Error):
            self._outcome.refuse(kind, name, _words(reply))
            return False
        made = reply not in (0, b"0")
        self._outcome.note(kind, brought=int(made), there=int(not made))
        return made

    # --- requests -------------------------------------------------------------------------------

    def _call(self, *words: bytes) -> Reply:
        name, *arguments = words
        return self._ask([(b"EVAL", SCRIPT, b"0", name, self._now, *arguments)])[0]

    def _ask(self, requests: Sequence[Sequence[bytes]]) -> list[Reply]:
        """Return the replies of a node, none of which refuses more than its request.

        Raises:
            ClientError: the node or the cluster takes no more.
        """
        replies = self._replies(requests)
        self._check(replies)
        return replies

    def _replies(self, requests: Sequence[Sequence[bytes]]) -> list[Reply]:
        """Return the replies of a node; a request that is too large is not sent and gets `_LARGE`.

        The node would close the connection.
        """
        fitting = [words for words in requests if _fits(words)]
        answers = iter(self._answers(fitting))
        return [next(answers) if _fits(words) else _LARGE for words in requests]

    def _check(self, replies: Iterable[Reply]) -> None:
        """Raise ClientError at a reply that refuses more than its request."""
        for reply in replies:
            if isinstance(reply, Error):
                if reply.text.startswith(_UNKNOWN_COMMAND):
                    raise ClientError(f"{self._target.address} is no node of this release")
                if _is_of_the_node(reply):
                    words = f"{self._target.address} takes no more: {_words(reply)}"
                    raise ClientError(words)

    def _answers(self, requests: Sequence[Sequence[bytes]]) -> list[Reply]:
        """Return the replies of the first node that does not drain.

        A node may begin to drain between two requests. The next one gets all of them, which is
        harmless, but what the node before has done counts as it said: it would be there already.
        """
        replies = self._target.ask_all(requests)
        draining: list[str] = []
        while any(map(_is_draining, replies)):
            draining.append(self._target.address)
            # Above it, where a host did not accept meanwhile.
            if len(draining) >= self._target.address_count:
                nodes = ", ".join(dict.fromkeys(draining))
                words = f"every node that answers is draining, and makes no jobs ({nodes})"
                raise ClientError(f"{words}: name others, or end that by SIGUSR2")
            self._target.pass_over()
            again = self._target.ask_all(requests)
            both = zip(replies, again, strict=True)
            replies = [new if _is_draining(old) else old for old, new in both]
        return replies


def in_order(dependencies: Mapping[bytes, Iterable[bytes]]) -> tuple[list[bytes], list[bytes]]:
    """Sort jobs topologically: dependencies first.

    Returns:
        The sorted jobs, and the jobs that cannot be sorted because of a cycle.
    """
    left = {
        jid: len({one for one in waits if one in dependencies})
        for jid, waits in dependencies.items()
    }
    dependents: dict[bytes, list[bytes]] = {}
    for jid, waits in dependencies.items():
        for one in dict.fromkeys(waits):
            if one in dependencies:
                dependents.setdefault(one, []).append(jid)
    ready = [jid for jid, count in left.items() if not count]
    for jid in ready:  # grows during the loop
        for other in dependents.get(jid, ()):
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    return ready, [jid for jid, count in left.items() if count]


def _is_not_finite(value: bytes) -> bool:
    """Whether Lua reads a value as infinity or NaN, such as a heartbeat that would never end."""
    try:
        return not isfinite(float(value))
    except ValueError:
        return False


def _names() -> dict[int, str]:
    return {state: name.decode() for state, name in q.STATE_NAMES.items() if state != q.RECURRING}


def _dependencies_of(job: Found) -> Iterable[bytes]:
    found = job.arguments[_DEPENDS_AT]
    assert isinstance(found, tuple), found
    return found


def _import(what: bytes, now: float, arguments: object) -> Sequence[bytes]:
    packed = msgpack.packb((now, arguments), use_bin_type=True)
    assert isinstance(packed, bytes)
    return (b"BEANPOLE.IMPORT", what, packed)


def _fits(words: Sequence[bytes]) -> bool:
    sizes = [len(word) for word in words]
    fits = max(sizes) <= BULK_MAX_BYTES and sum(sizes) <= REQUEST_MAX_BYTES
    return fits and len(words) <= ARGUMENTS_MAX


def _is_of_the_node(reply: Reply) -> bool:
    return isinstance(reply, Error) and reply.text.startswith(_OF_THE_NODE)


def _is_draining(reply: Reply) -> bool:
    return isinstance(reply, Error) and reply.text.startswith(_DRAINING)


def _words(reply: Error) -> str:
    return words_of(Error(reply.text.removeprefix(b"ERR ")))


def _bytes(value: object) -> bytes | None:
    return value.encode(errors="surrogateescape") if isinstance(value, str) else None


def _bulk(reply: Reply) -> bytes:
    if not isinstance(reply, bytes):
        words = _words(reply) if isinstance(reply, Error) else repr(reply)
        raise ClientError(f"a node answers what is not expected: {words}")
    return reply
