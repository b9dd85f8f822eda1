"""Read the qless data of a Redis in pieces: jobs, templates, queues, options, throttles.

Nothing is written to the Redis. The layout is in `qless_layout`, the import in `qless_import`. No
other client should use the Redis meanwhile: the pieces are read at different times.
"""

from collections.abc import Iterator, Sequence
from math import isnan, nan
from typing import Final, NamedTuple

from beanpole import qless as q
from beanpole.client import qless_layout as layout
from beanpole.client.redis import AuthenticationFailed, Redis, words_of
from beanpole.errors import ClientError
from beanpole.protocol.resp.client import Reply
from beanpole.protocol.resp.values import Error

JOBS: Final = b"ql:j:"
TEMPLATES: Final = b"ql:r:"
THROTTLES: Final = b"ql:th:"
# Keys that Redis examines in one step of SCAN.
SCAN_COUNT: Final = b"1000"
# Steps of a walk: a thousand million keys, and a Redis that once had twenty times as many.
SCAN_STEPS_MAX: Final = 1_000_000
# Jobs that are read at a time: the data of each may have 1 MiB.
BATCH_JOBS: Final = 64
# The characters of a name that a message shows.
NAME_SHOWN: Final = 80
# Suffixes of the keys that belong to a job or a throttle.
_BEHIND: Final = (b"-history", b"-dependencies", b"-dependents", b"-locks", b"-pending")
_WRONG_TYPE: Final = b"WRONGTYPE"
# The TTL of a key that expires within half a second, or has expired since it was read. To set a
# throttle with 0 would be to set it for ever.
_ENDED: Final = (0, -2)


def shown(name: bytes) -> str:
    """Return a name for a message; Redis bounds none, so a long one is cut off."""
    text = name.decode(errors="replace")
    if len(text) <= NAME_SHOWN:
        return repr(text)
    return f"{text[:NAME_SHOWN]!r}... ({len(name)} bytes)"


class Throttle(NamedTuple):
    """A throttle; it expires after `seconds`, 0 for never."""

    name: bytes
    maximum: bytes
    seconds: int


class Found(NamedTuple):
    """A job or template: its state, and its arguments or the reason why it cannot be imported."""

    jid: bytes
    state: int
    arguments: tuple[object, ...] | str
    # The parts that cannot be read, in words: it is imported without them.
    lacks: Sequence[str] = ()


class Source:
    """The qless data in one database of a Redis."""

    def __init__(self, redis: Redis, now: float) -> None:
        self._redis = redis
        self._now = now

    # --- contents of the source -----------------------------------------------------------------

    def states(self) -> dict[bytes, int]:
        """Return the state of each job by its jid.

        Raises:
            ClientError: the Redis does not answer, or its data is not qless in a known layout.
        """
        found: dict[bytes, int] = {}
        for keys in self._walk(JOBS):
            asked = [(b"HMGET", key, b"jid", b"state") for key in keys]
            replies = self._ask(asked, allowed=_WRONG_TYPE)
            for words, key, reply in zip(asked, keys, replies, strict=True):
                if isinstance(reply, Error):
                    self._check_behind(key)
                    continue
                jid, state = _two(words, reply)
                number = layout.state_of(state or b"")
                # A hash without a jid is a remnant: the scripts of qless make such by mistake.
                if jid is None:
                    continue
                if number is None:
                    raise ClientError(
                        f"job {shown(jid)} has the state {shown(state or b'')}, which no version "
                        "of qless up to reqless 0.13.3 has: this Redis has a newer layout"
                    )
                found[key.removeprefix(JOBS)] = number
        return found

    def anything(self) -> bool:
        """Return whether there is any key of qless."""
        return any(keys for keys in self._walk(b"ql:"))

    def queues(self) -> list[tuple[bytes, float, bool]]:
        """Return the known queues: name, time of creation, and whether they are paused."""
        known = self._scores(b"ql:queues")
        paused = dict.fromkeys(self._names(b"SMEMBERS", b"ql:paused_queues"))
        queues = [(name, since, name in paused) for name, since in known]
        names = dict.fromkeys(name for name, _ in known)
        return queues + [(name, self._now, True) for name in paused if name not in names]

    def options(self) -> list[tuple[bytes, bytes]]:
        """Return the options that were set."""
        return list(self._hash(b"ql:config").items())

    def patterns(self) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Return the patterns of queues and those of priorities."""
        priorities = self._names(b"LRANGE", b"qmore:priority", b"0", b"-1")
        return self._hash(b"qmore:dynamic"), priorities

    def throttles(self) -> Iterator[Throttle]:
        """Yield the throttles."""
        for keys in self._walk(THROTTLES):
            asked = [(b"HGET", key, b"maximum") for key in keys]
            maxima = self._ask(asked, allowed=_WRONG_TYPE)
            lives = self._ask([(b"TTL", key) for key in keys])
            for key, reply, seconds in zip(keys, maxima, lives, strict=True):
                if isinstance(reply, Error):
                    self._check_behind(key)
                    continue
                maximum = _bulk((b"HGET", key), reply)
                if not isinstance(seconds, int):
                    raise _unexpected((b"TTL", key))
                if maximum is not None and seconds not in _ENDED:
                    yield Throttle(key.removeprefix(THROTTLES), maximum, max(0, seconds))

    def tracked(self) -> list[tuple[bytes, float]]:
        """Return the tracked jids, each with the time since when it is tracked."""
        return self._scores(b"ql:tracked")

    def templates(self) -> Iterator[Found]:
        """Yield the templates of recurring jobs."""
        for keys in self._walk(TEMPLATES):
            hashes = self._hashes(keys)
            places = [
                (b"ZSCORE", b"ql:q:%b-recur" % fields.get(b"queue", b""), key[len(TEMPLATES) :])
                for key, fields in zip(keys, hashes, strict=True)
            ]
            for key, fields, score in zip(keys, hashes, self._scores_of(places), strict=True):
                jid = key.removeprefix(TEMPLATES)
                yield _found(jid, q.RECURRING, layout.recurring(jid, fields, score))

    # --- jobs -----------------------------------------------------------------------------------

    def failed_order(self) -> list[bytes]:
        """Return the failed jobs, those of each group in the order in which they failed."""
        found: list[bytes] = []
        for group in self._names(b"SMEMBERS", b"ql:failures"):
            found += reversed(self._names(b"LRANGE", b"ql:f:" + group, b"0", b"-1"))
        return found

    def dependencies(self, jids: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        """Return the dependencies of each job."""
        found: dict[bytes, list[bytes]] = {}
        for start in range(0, len(jids), BATCH_JOBS):
            some = jids[start : start + BATCH_JOBS]
            asked = [(b"SMEMBERS", JOBS + jid + b"-dependencies") for jid in some]
            for jid, words, reply in zip(some, asked, self._ask(asked), strict=True):
                found[jid] = _list(words, reply)
        return found

    def jobs(self, jids: Sequence[bytes]) -> Iterator[list[Found]]:
        """Yield jobs in batches, without those that no longer exist."""
        for start in range(0, len(jids), BATCH_JOBS):
            yield self._jobs(jids[start : start + BATCH_JOBS])

    def _jobs(self, jids: Sequence[bytes]) -> list[Found]:
        hashes = self._hashes([JOBS + jid for jid in jids])
        jobs = [_partial(jid, fields) for jid, fields in zip(jids, hashes, strict=True)]
        jobs = [job for job in jobs if job.fields]
        asked = [request for job in jobs for request in job.requests()]
        replies = zip(asked, self._ask(asked), strict=True)
        found: list[Found] = []
        for jid, fields, state, places, tags in jobs:
            history, dependencies = _list(*next(replies)), _list(*next(replies))
            scores = [_score(*next(replies)) for _ in places]
            tagged_at = [_score(*next(replies)) for _ in tags]
            beside = layout.Beside(scores, history, dependencies, tagged_at)
            found.append(_found(jid, state, layout.job(jid, fields, beside, self._now)))
        return found

    # --- requests -------------------------------------------------------------------------------

    def _ask(self, requests: Sequence[Sequence[bytes]], allowed: bytes = b"-") -> list[Reply]:
        """Return the replies; raise if one is an error, unless it begins with `allowed`."""
        try:
            replies = self._redis.ask_all(requests)
        except AuthenticationFailed as error:
            raise ClientError(f"the Redis requires a password (--password-file): {error}") from None
        except ClientError as error:
            raise ClientError(f"the Redis cannot be read any more: {error}") from None
        for words, reply in zip(requests, replies, strict=True):
            if not isinstance(reply, Error) or reply.text.startswith(allowed):
                continue
            if reply.text.startswith(_WRONG_TYPE):
                raise _wrong_type(words[1])
            raise ClientError(f"the Redis refuses {words[0].decode()}: {words_of(reply)}")
        return replies

    def _walk(self, prefix: bytes) -> Iterator[list[bytes]]:
        """Yield all keys with a prefix in batches, each key once.

        Raises:
            ClientError: a reply is no step of a walk, or the walk does not end.
        """
        seen: dict[bytes, None] = {}
        cursors: set[bytes] = set()
        cursor = b"0"
        while True:
            words = (b"SCAN", cursor, b"MATCH", prefix + b"*", b"COUNT", SCAN_COUNT)
            (reply,) = self._ask([words])
            if not isinstance(reply, list) or len(reply) != 2 or not isinstance(reply[0], bytes):
                raise ClientError("the Redis has no SCAN: 2.8 or newer is needed")
            cursor = reply[0]
            keys = [key for key in dict.fromkeys(_list(words, reply[1])) if key not in seen]
            if any(not key.startswith(prefix) for key in keys):
                raise _unexpected(words)
            seen.update(dict.fromkeys(keys))
            if keys:
                yield keys
            if cursor == b"0":
                return
            # A Redis visits its buckets in one order, also while it makes more or fewer of them.
            if cursor in cursors or len(cursors) == SCAN_STEPS_MAX:
                raise ClientError(
                    f"the Redis does not end SCAN: after {len(cursors) + 1} steps its cursor is "
                    f"{shown(cursor)}"
                )
            cursors.add(cursor)

    def _check_behind(self, key: bytes) -> None:
        if not key.endswith(_BEHIND):
            raise _wrong_type(key)

    def _names(self, *words: bytes) -> list[bytes]:
        return _list(words, self._ask([words])[0])

    def _hash(self, key: bytes) -> dict[bytes, bytes]:
        return self._hashes([key])[0]

    def _hashes(self, keys: Sequence[bytes]) -> list[dict[bytes, bytes]]:
        asked = [(b"HGETALL", key) for key in keys]
        both = zip(asked, self._ask(asked), strict=True)
        return [dict(_pairs(words, reply)) for words, reply in both]

    def _scores(self, key: bytes) -> list[tuple[bytes, float]]:
        words = (b"ZRANGE", key, b"0", b"-1", b"WITHSCORES")
        found = _pairs(words, self._ask([words])[0])
        return [(name, _score(words, at) or 0.0) for name, at in found]

    def _scores_of(self, asked: Sequence[Sequence[bytes]]) -> list[float | None]:
        return [_score(words, reply) for words, reply in zip(asked, self._ask(asked), strict=True)]


class _Partial(NamedTuple):
    """A job of which only the hash is read.

    Attributes:
        jid: its id.
        fields: its hash; empty if there is no such job.
        state: its state; 0 if it is unknown.
        places: the keys of the sorted sets that may have it.
        tags: the keys of the sorted sets of its tags.
    """

    jid: bytes
    fields: dict[bytes, bytes]
    state: int
    places: Sequence[bytes]
    tags: Sequence[bytes]

    def requests(self) -> list[Sequence[bytes]]:
        """Return the requests for the rest: history, dependencies, `places`, `tags`."""
        key = JOBS + self.jid
        return [
            (b"LRANGE", key + b"-history", b"0", b"-1"),
            (b"SMEMBERS", key + b"-dependencies"),
            *[(b"ZSCORE", scores, self.jid) for scores in (*self.places, *self.tags)],
        ]


def _partial(jid: bytes, fields: dict[bytes, bytes]) -> _Partial:
    state = layout.state_of(fields.get(b"state", b"")) or 0
    places = layout.places(state, fields.get(b"queue", b""))
    tags = [b"ql:t:" + tag for tag in layout.names_in(fields.get(b"tags"))]
    return _Partial(jid, fields, state, places, tags)


def _found(jid: bytes, state: int, found: layout.Job | layout.Template | str) -> Found:
    if isinstance(found, str):
        return Found(jid, state, found)
    return Found(jid, state, found.arguments, found.lacks)


def _wrong_type(key: bytes) -> ClientError:
    return ClientError(
        f"the key {shown(key)} has another type than qless gives it: "
        "this is no data of qless, or has a newer layout"
    )


def _unexpected(words: Sequence[bytes]) -> ClientError:
    """Return the error for a reply that no Redis gives to a request."""
    return ClientError(
        f"the Redis does not answer {words[0].decode()} of {shown(words[1])} as a Redis does: "
        "this is another server, or one that is damaged"
    )


def _list(words: Sequence[bytes], reply: Reply) -> list[bytes]:
    found = [one for one in reply if isinstance(one, bytes)] if isinstance(reply, list) else []
    if not isinstance(reply, list) or len(found) != len(reply):
        raise _unexpected(words)
    return found


def _bulk(words: Sequence[bytes], reply: Reply) -> bytes | None:
    if reply is None or isinstance(reply, bytes):
        return reply
    raise _unexpected(words)


def _two(words: Sequence[bytes], reply: Reply) -> tuple[bytes | None, bytes | None]:
    if not isinstance(reply, list) or len(reply) != 2:
        raise _unexpected(words)
    return _bulk(words, reply[0]), _bulk(words, reply[1])


def _pairs(words: Sequence[bytes], reply: Reply) -> list[tuple[bytes, bytes]]:
    found = _list(words, reply)
    if len(found) % 2:
        raise _unexpected(words)
    return list(zip(found[::2], found[1::2], strict=True))


def _score(words: Sequence[bytes], reply: Reply) -> float | None:
    text = _bulk(words, reply)
    if text is None:
        return None
    try:
        score = float(text)
    except ValueError:
        score = nan
    if isnan(score):
        raise _unexpected(words)
    return score
