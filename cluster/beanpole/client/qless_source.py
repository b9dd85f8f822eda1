"""Read the qless data of a Redis in pieces: jobs, templates, queues, options, throttles.

Nothing is written to the Redis. The layout is in `qless_layout`, the import in `qless_import`. No
other client should use the Redis meanwhile: the pieces are read at different times.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from beanpole import qless as q
from beanpole.client import qless_layout as layout
from beanpole.client.redis import AuthenticationFailed, Redis
from beanpole.errors import ClientError
from beanpole.protocol.resp.client import Reply
from beanpole.protocol.resp.values import Error

JOBS: Final = b"ql:j:"
TEMPLATES: Final = b"ql:r:"
THROTTLES: Final = b"ql:th:"
# Keys that Redis examines in one step of SCAN.
SCAN_COUNT: Final = b"1000"
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
            for key, reply in zip(keys, self._ask(asked, allowed=_WRONG_TYPE), strict=True):
                if isinstance(reply, Error):
                    self._check_behind(key)
                    continue
                jid, state = _bulks(reply)
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
        (reply,) = self._ask([(b"HGETALL", b"ql:config")])
        return list(_pairs(reply).items())

    def patterns(self) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Return the patterns of queues and those of priorities."""
        (reply,) = self._ask([(b"HGETALL", b"qmore:dynamic")])
        return _pairs(reply), self._names(b"LRANGE", b"qmore:priority", b"0", b"-1")

    def throttles(self) -> Iterator[Throttle]:
        """Yield the throttles."""
        for keys in self._walk(THROTTLES):
            asked = [(b"HGET", key, b"maximum") for key in keys]
            maxima = self._ask(asked, allowed=_WRONG_TYPE)
            lives = self._ask([(b"TTL", key) for key in keys])
            for key, maximum, seconds in zip(keys, maxima, lives, strict=True):
                if isinstance(maximum, Error):
                    self._check_behind(key)
                elif (
                    isinstance(maximum, bytes)
                    and isinstance(seconds, int)
                    and seconds not in _ENDED
                ):
                    yield Throttle(key.removeprefix(THROTTLES), maximum, max(0, seconds))

    def tracked(self) -> list[tuple[bytes, float]]:
        """Return the tracked jids, each with the time since when it is tracked."""
        return self._scores(b"ql:tracked")

    def templates(self) -> Iterator[Found]:
        """Yield the templates of recurring jobs."""
        for keys in self._walk(TEMPLATES):
            hashes = [_pairs(one) for one in self._ask([(b"HGETALL", key) for key in keys])]
            places = [
                (b"ZSCORE", b"ql:q:%b-recur" % fields.get(b"queue", b""), key[len(TEMPLATES) :])
                for key, fields in zip(keys, hashes, strict=True)
            ]
            for key, fields, score in zip(keys, hashes, self._ask(places), strict=True):
                jid = key.removeprefix(TEMPLATES)
                yield Found(jid, q.RECURRING, layout.recurring(jid, fields, _score(score)))

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
            for jid, reply in zip(some, self._ask(asked), strict=True):
                found[jid] = _list(reply)
        return found

    def jobs(self, jids: Sequence[bytes]) -> Iterator[list[Found]]:
        """Yield jobs in batches, without those that no longer exist."""
        for start in range(0, len(jids), BATCH_JOBS):
            yield self._jobs(jids[start : start + BATCH_JOBS])

    def _jobs(self, jids: Sequence[bytes]) -> list[Found]:
        hashes = self._ask([(b"HGETALL", JOBS + jid) for jid in jids])
        jobs = [_partial(jid, _pairs(reply)) for jid, reply in zip(jids, hashes, strict=True)]
        jobs = [job for job in jobs if job.fields]
        replies = iter(self._ask([request for job in jobs for request in job.requests()]))
        found: list[Found] = []
        for jid, fields, state, places, tags in jobs:
            history, dependencies = _list(next(replies)), _list(next(replies))
            scores = [_score(next(replies)) for _ in places]
            tagged_at = [_score(next(replies)) for _ in tags]
            beside = layout.Beside(scores, history, dependencies, tagged_at)
            job = layout.job(jid, fields, beside, self._now)
            found.append(Found(jid, state, job if isinstance(job, str) else job.arguments))
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
            raise ClientError(
                f"the Redis refuses {words[0].decode()}: {reply.text.decode(errors='replace')}"
            )
        return replies

    def _walk(self, prefix: bytes) -> Iterator[list[bytes]]:
        """Yield all keys with a prefix in batches, each key once."""
        seen: dict[bytes, None] = {}
        cursor = b"0"
        while True:
            (reply,) = self._ask([(b"SCAN", cursor, b"MATCH", prefix + b"*", b"COUNT", SCAN_COUNT)])
            if not isinstance(reply, list) or len(reply) != 2 or not isinstance(reply[0], bytes):
                raise ClientError("the Redis has no SCAN: 2.8 or newer is needed")
            keys = [key for key in _list(reply[1]) if key not in seen]
            seen.update(dict.fromkeys(keys))
            if keys:
                yield list(dict.fromkeys(keys))
            cursor = reply[0]
            if cursor == b"0":
                return

    def _check_behind(self, key: bytes) -> None:
        if not key.endswith(_BEHIND):
            raise _wrong_type(key)

    def _names(self, *words: bytes) -> list[bytes]:
        return _list(self._ask([words])[0])

    def _scores(self, key: bytes) -> list[tuple[bytes, float]]:
        found = self._names(b"ZRANGE", key, b"0", b"-1", b"WITHSCORES")
        return [(name, _score(at) or 0.0) for name, at in zip(found[::2], found[1::2], strict=True)]


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


def _wrong_type(key: bytes) -> ClientError:
    return ClientError(
        f"the key {shown(key)} has another type than qless gives it: "
        "this is no data of qless, or has a newer layout"
    )


def _list(reply: Reply) -> list[bytes]:
    return [one for one in reply if isinstance(one, bytes)] if isinstance(reply, list) else []


def _bulks(reply: Reply) -> list[bytes | None]:
    assert isinstance(reply, list), reply
    return [one if isinstance(one, bytes) else None for one in reply]


def _pairs(reply: Reply) -> dict[bytes, bytes]:
    found = _list(reply)
    return dict(zip(found[::2], found[1::2], strict=True))


def _score(reply: Reply) -> float | None:
    return float(reply) if isinstance(reply, bytes) else None
