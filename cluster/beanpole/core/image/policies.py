"""The part of an image with policies, notes, unique puts and rates: writing, reading, validation.

The place of the part in an image is in `core.image.parts`; the meaning of its values is in
`core.jobs.policies` and `core.jobs.rates`.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from beanpole.constants import JOB_ID_MAX, U32_MAX
from beanpole.core.equal_puts import EQUAL_KEY_BYTES, joined, parted
from beanpole.core.jobs.job import RATE_SPENT
from beanpole.core.jobs.policies import NOTES_MAX, POLICIES_MAX, Note, Policy
from beanpole.core.jobs.rates import (
    BUCKETS_MAX,
    RATE_MAX,
    RATE_PERIOD_MAX_US,
    RATE_PERIOD_MIN_US,
    Bucket,
)
from beanpole.core.keys import Slice
from beanpole.core.operations.policies import fits, space_of
from beanpole.core.state import MachineState

# The first item of a chunk is one of these.
POLICY: Final = "policy"
NOTES: Final = "notes"
RATES: Final = "rates"
GENERATIONS: Final = "generations"  # the start times of both generations of equal puts
EQUALS: Final = "equals"
# Items of one chunk: slices take a millisecond at most.
CHUNK_NOTES: Final = 512
CHUNK_RATES: Final = 512
CHUNK_EQUALS: Final = 4096


def write(machine: MachineState) -> Iterable[Any]:
    """Return the chunks: policies in the order of their patterns, then notes, rates, equal puts."""
    queue = machine.queue
    policies = queue.policies
    rows = [[POLICY, [pattern, *policy]] for pattern, policy in sorted(policies.rows.items())]
    buckets = [
        [name, bucket.rate, bucket.period_us, bucket.used, bucket.at_us]
        for name, bucket in sorted(queue.rates.buckets.items())
    ]
    equals = machine.equal_puts
    began_us = [equals.older.began_us, equals.younger.began_us]
    slices = equals.slices(CHUNK_EQUALS)
    return _chunks(rows, list(policies.notes.items()), buckets, began_us, slices)


def _chunks(
    rows: list[Any],
    notes: list[tuple[int, Note]],
    buckets: list[Any],
    began_us: list[int],
    slices: list[Slice],
) -> Iterator[Any]:
    yield from rows
    for first in range(0, len(notes), CHUNK_NOTES):
        part = notes[first : first + CHUNK_NOTES]
        yield [NOTES, [[job_id, *note] for job_id, note in part]]
    for first in range(0, len(buckets), CHUNK_RATES):
        yield [RATES, buckets[first : first + CHUNK_RATES]]
    if not slices and not any(began_us):
        return
    yield [GENERATIONS, began_us]
    for age, _, shard, start, stop in slices:
        items = islice(shard.items(), start, stop)
        yield [EQUALS, [[age, key, *parted(value)] for key, value in items]]


def read(machine: MachineState, value: Any) -> None:
    """Load one chunk into a machine."""
    kind, rows = value
    if kind == POLICY:
        _add_policy(machine, *rows)
    elif kind == NOTES:
        for row in rows:
            _add_note(machine, *row)
    elif kind == RATES:
        for row in rows:
            _add_bucket(machine, *row)
    elif kind == GENERATIONS:
        equals = machine.equal_puts
        equals.older.began_us, equals.younger.began_us = rows
        if not 0 <= equals.older.began_us <= equals.younger.began_us:
            raise ValueError(f"equal puts began at {rows}")
    elif kind == EQUALS:
        for row in rows:
            _add_equal(machine, *row)
    else:
        raise ValueError(f"policies have no {kind!r}")


def end(machine: MachineState) -> None:
    """Check that the rate of each bucket is that of its queue's policy."""
    queue = machine.queue
    for name, bucket in queue.rates.buckets.items():
        if not queue.has_rate(name, bucket):
            raise ValueError(f"the rate of {name!r} is {bucket.rate}")


def _add_policy(machine: MachineState, pattern: bytes, *fields: Any) -> None:
    policies = machine.queue.policies
    policy = Policy(*fields)
    types: list[type] = [int] * len(fields)
    types[Policy._fields.index("dead")] = bytes
    space = space_of(machine, pattern)
    if (
        list(map(type, fields)) != types
        or space is None
        or not fits(policy, space)
        or pattern in policies.rows
        or len(policies.rows) >= POLICIES_MAX
    ):
        raise ValueError(f"the policy {pattern!r}")
    policies.put(pattern, policy)


def _add_note(machine: MachineState, job_id: int, reason: int, queue: bytes, reserves: int) -> None:
    notes = machine.queue.policies.notes
    if (
        not 0 < job_id < machine.queue.next_id
        or job_id in notes
        or type(queue) is not bytes
        or not 0 <= reason < U32_MAX
        or not 0 <= reserves <= U32_MAX
        or len(notes) >= NOTES_MAX
    ):
        raise ValueError(f"the note on job {job_id}")
    notes[job_id] = Note(reason, queue, reserves)


def _add_bucket(
    machine: MachineState, name: bytes, rate: int, period_us: int, used: int, at_us: int
) -> None:
    queue = machine.queue
    if (
        name in queue.rates.buckets
        or type(name) is not bytes
        or not 1 <= rate <= RATE_MAX
        or not RATE_PERIOD_MIN_US <= period_us <= RATE_PERIOD_MAX_US
        or not 0 < used <= rate * period_us
        or not 0 <= at_us <= queue.now_us
        or len(queue.rates.buckets) >= BUCKETS_MAX
    ):
        raise ValueError(f"the rate of {name!r}")
    queue.rates.add(name, Bucket(rate, period_us, used, at_us))
    tube = queue.tubes.get(name)
    if tube is not None and queue.rates.is_spent(name):
        tube.closed |= RATE_SPENT


def _add_equal(machine: MachineState, age: int, key: bytes, put_us: int, job_id: int) -> None:
    queue = machine.queue
    equals = machine.equal_puts
    if (
        age not in (0, 1)
        or type(key) is not bytes
        or len(key) != EQUAL_KEY_BYTES
        or equals.find(key)
        or not 0 <= put_us <= queue.now_us
        or not 0 < job_id < min(queue.next_id, JOB_ID_MAX + 1)
    ):
        raise ValueError(f"the put of job {job_id}")
    (equals.older, equals.younger)[age].add(key, joined(put_us, job_id))
