"""Calls that equal an earlier one of the last minute are counted, and left out of the audit log.

This holds for calls that only read and for refused ones: a pipeline reads events several times a
second, and anybody can be refused any number of times; both would displace all other lines.
"""

import time
from collections.abc import Callable
from typing import Final

from beanpoled.audit.entry import Entry

ALIKE_S: Final = 60.0
# The limit of kinds of calls that are remembered; above it, all are forgotten.
ALIKE_MAX: Final = 1000
# Outcomes of gRPC without an effect, whatever the caller asked for.
REFUSED: Final = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
# The beginning of Gearman's refusals.
_ERROR: Final = "ERR "


class Alike:
    """The latest call of each kind: method, caller, certificate, user and outcome."""

    def __init__(self, add: Callable[[Entry], None]) -> None:
        """Begin without calls; `add` takes the entries that are to be recorded."""
        self._add = add
        # The time of the last record, and the number of calls that were left out since then.
        self._told: dict[tuple[str, ...], list[float]] = {}

    def add(self, entry: Entry) -> None:
        """Record a call, unless it reads or was refused as one of the last minute."""
        outcome = entry.outcome
        if not entry.reads and outcome not in REFUSED and not outcome.startswith(_ERROR):
            self._add(entry)
            return
        key = (entry.method, entry.caller, entry.certificate, entry.user, outcome)
        now_s = time.monotonic()
        last = self._told.get(key)
        if last is not None and now_s - last[0] < ALIKE_S:
            last[1] += 1
            return
        if len(self._told) >= ALIKE_MAX:
            self._told.clear()
        self._told[key] = [now_s, 0]
        self._add(entry._replace(alike=int(last[1]) if last else 0))
