"""Translate calls of the unified dialect into the seed form, which has a script for each call.

This module knows the order of arguments of qless-py 0.9.4, and the features that its scripts lack.
"""

import shlex
from collections.abc import Callable
from typing import Final

Words = list[str]


def seed_line(words: Words) -> str | None:
    """Return a call's line in a transcript, or None if the seed form has no such call."""
    name, now, *rest = words
    written = _WRITTEN.get(name)
    return None if written is None else shlex.join(written(now, rest))


def _put(now: str, rest: Words) -> Words:
    queue, jid, klass, data, _, *options = rest
    # Without delay, because these scripts order scheduled jobs differently.
    return ["put", queue, "--", jid, klass, data, now, "0", *options]


def _recur(now: str, rest: Words) -> Words:
    at = rest.index("backlog")  # these scripts have no backlog
    return ["recur", "on", *rest[:4], now, *rest[4:at], *rest[at + 2 :]]


def _tag(now: str, rest: Words) -> Words:
    return ["tag", *rest] if rest[0] in ("get", "top") else ["tag", *rest[:2], now, *rest[2:]]


def _jobs(now: str, rest: Words) -> Words:
    return ["jobs", *rest] if rest[0] == "complete" else ["jobs", rest[0], now, *rest[1:]]


def _with_now(name: str, at: int, most: int = 9) -> Callable[[str, Words], Words]:
    """Return the translation of a call with `now` at index `at` and at most `most` arguments."""
    return lambda now, rest: [name, *rest[:at], now, *rest[at:most]]


def _without_now(*names: str, most: int = 9) -> Callable[[str, Words], Words]:
    return lambda _, rest: [*names, *rest[:most]]


_WRITTEN: Final[dict[str, Callable[[str, Words], Words]]] = {
    "put": _put,
    "pop": lambda now, rest: ["pop", rest[0], "--", *rest[1:], now],
    "peek": lambda now, rest: ["peek", rest[0], "--", *rest[1:], now],
    "complete": _with_now("complete", 3),
    "fail": _with_now("fail", 4),
    "retry": _with_now("retry", 3, 3),
    "heartbeat": _with_now("heartbeat", 2),
    "cancel": _without_now("cancel", most=1),
    "get": _without_now("get"),
    "priority": _without_now("priority"),
    "depends": _without_now("depends"),
    "track": lambda now, rest: ["track", *rest, *([now] if rest else [])],
    "jobs": _jobs,
    "failed": _without_now("failed"),
    "queues": _with_now("queues", 0),
    "workers": _with_now("workers", 0),
    "stats": _without_now("stats"),
    "tag": _tag,
    "config.set": _without_now("config", "set"),
    "config.get": _without_now("config", "get"),
    "config.unset": _without_now("config", "unset"),
    "recur": _recur,
    "unrecur": _without_now("recur", "off"),
    "recur.get": _without_now("recur", "get"),
    "recur.update": _without_now("recur", "update"),
    "recur.tag": _without_now("recur", "tag"),
    "recur.untag": _without_now("recur", "untag"),
}
