"""Calls that equal an earlier one of the last minute are counted, and left out of the audit log.

This holds for calls that only read and for refused ones: a pipeline reads events several times a
second, and anybody can be refused any number of times, in more than one way; both would displace
all other lines.
"""

import time
from collections.abc import Callable
from typing import Final

from beanpole.addresses import network_of_host
from beanpoled.audit.entry import Entry

ALIKE_S: Final = 60.0
# Kinds of such calls that are recorded within `ALIKE_S`; more are only counted. A file of the log
# holds the refusals of eight minutes, so that it takes an hour, and as many addresses, to displace
# all other lines.
KINDS_MAX: Final = 1000
# The least time between two searches for kinds that are to be forgotten.
FORGET_PERIOD_S: Final = 1.0


class Alike:
    """Limits the calls that read, and those that were refused, each kind of them by itself."""

    def __init__(self, add: Callable[[Entry], None]) -> None:
        """Begin without calls; `add` takes the entries that are to be recorded."""
        self._add = add
        # Two, so that refusals do not keep the reads of those who have the right out of the log.
        self._of_readers = _Kinds(add)
        self._of_refused = _Kinds(add)

    def add(self, entry: Entry) -> None:
        """Record a call, unless it reads or was refused as one of the last minute."""
        if entry.refused:
            self._of_refused.add(entry)
        elif entry.reads:
            self._of_readers.add(entry)
        else:
            self._add(entry)


class _Kinds:
    """The latest call of each kind: method, caller, certificate, user and outcome."""

    def __init__(self, add: Callable[[Entry], None]) -> None:
        self._add = add
        # The time of the last record, and the number of calls that were left out since then.
        self._told: dict[tuple[str, ...], list[float]] = {}
        self._uncounted = 0  # calls that were left out and belong to no kind in `_told`
        self._looked_s = -1e9  # for kinds that are to be forgotten

    def add(self, entry: Entry) -> None:
        network = network_of_host(entry.caller.encode()).hex()
        key = (entry.method, network, entry.certificate, entry.user, entry.outcome)
        now_s = time.monotonic()
        last = self._told.get(key)
        if last is not None and now_s - last[0] < ALIKE_S:
            last[1] += 1
            return
        if last is not None:
            self._uncounted += int(last[1])
            del self._told[key]
        elif len(self._told) >= KINDS_MAX and not self._forget_old(now_s):
            self._uncounted += 1
            return
        alike, self._uncounted = self._uncounted, 0
        self._told[key] = [now_s, 0]
        self._add(entry._replace(alike=alike))

    def _forget_old(self, now_s: float) -> bool:
        """Make room by forgetting the kinds that were recorded long ago; False if there is none."""
        if now_s - self._looked_s < FORGET_PERIOD_S:
            return False
        self._looked_s = now_s
        old = [key for key, (told_s, _) in self._told.items() if now_s - told_s >= ALIKE_S]
        for key in old:
            self._uncounted += int(self._told.pop(key)[1])
        return bool(old)
