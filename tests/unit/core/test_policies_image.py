"""Rules of queues in an image: what cannot be is damage.

The rules are policies, with notes, rates, retained jobs and equal puts, and the limits of queues.
That an image has them as they were belongs in the tests of their commands.
"""

from typing import Any

import pytest

from beanpole.constants import JOB_ID_MAX, SECOND_US, U32_MAX
from beanpole.core.equal_puts import EQUAL_KEY_BYTES
from beanpole.core.image import policies
from beanpole.core.image.restore import load
from beanpole.core.jobs.job import READY
from beanpole.core.jobs.policies import Policy
from beanpole.core.jobs.rates import RATE_MAX, RATE_PERIOD_MAX_US, RATE_PERIOD_MIN_US
from beanpole.errors import Damaged
from tests.unit.core.cluster import changed, image_of, with_chunk
from tests.unit.core.guests import Guests

WORK, OTHER = b"work", b"other"
PERIOD_US = RATE_PERIOD_MIN_US
# A record of each kind that is valid in a machine with one job.
VALID: dict[str, list[Any]] = {
    policies.POLICY: [WORK, *Policy(3, b"dead", rate=2, rate_period_us=PERIOD_US)],
    policies.NOTES: [1, 0, WORK, 2],
    policies.RATES: [WORK, 2, PERIOD_US, PERIOD_US, 0],
    policies.GENERATIONS: [0, SECOND_US],
    policies.EQUALS: [1, bytes(EQUAL_KEY_BYTES), 0, 1],
}
SINGLE = (policies.POLICY, policies.GENERATIONS)


def read(*records: tuple[str, list[Any]]) -> Guests:
    """Read an image with a policy that has a rate, and then these records."""
    cluster = Guests()
    cluster.put()
    for kind, record in ((policies.POLICY, VALID[policies.POLICY]), *records):
        value = [kind, record if kind in SINGLE else [record]]
        cluster.machine = load(with_chunk(cluster.machine, "policies", value))
    return cluster


def test_what_is_valid_is_read() -> None:
    records = [(kind, VALID[kind]) for kind in VALID if kind != policies.POLICY]
    machine = read(*records).machine
    assert len(machine.queue.policies.notes) == len(machine.queue.rates.buckets) == 1
    assert machine.equal_puts.find(bytes(EQUAL_KEY_BYTES))
    assert image_of(load(image_of(machine))) == image_of(machine)


RULE = {name: 1 + place for place, name in enumerate(Policy._fields)}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        *((policies.POLICY, 0, pattern) for pattern in (b"", b"a*b", b"\x07q", "text", 5)),
        *((policies.POLICY, RULE["attempts_max"], value) for value in (True, 3.0, -1, 0)),
        *((policies.POLICY, RULE["dead"], value) for value in ("dead", b"*", 5)),
        (policies.POLICY, RULE["when_full"], 2),
        (policies.POLICY, RULE["ttr_s"], U32_MAX + 1),
        (policies.POLICY, RULE["rate"], 0),
        *((policies.NOTES, 0, job) for job in (0, 2, -1)),
        *((policies.NOTES, 1, reason) for reason in (-1, U32_MAX)),
        *((policies.NOTES, 2, queue) for queue in ("work", 5, None)),
        *((policies.NOTES, 3, reserves) for reserves in (-1, U32_MAX + 1)),
        *((policies.RATES, 0, name) for name in ("work", 5, OTHER)),
        *((policies.RATES, 1, rate) for rate in (0, 3, RATE_MAX + 1)),
        *((policies.RATES, 2, us) for us in (PERIOD_US - 1, PERIOD_US + 1, RATE_PERIOD_MAX_US + 1)),
        *((policies.RATES, 3, used) for used in (0, 2 * PERIOD_US + 1)),
        *((policies.RATES, 4, at_us) for at_us in (-1, 2**50)),
        *((policies.GENERATIONS, 0, us) for us in (-1, SECOND_US + 1)),
        (policies.GENERATIONS, 1, -1),
        *((policies.EQUALS, 0, age) for age in (-1, 2)),
        *((policies.EQUALS, 1, key) for key in (b"", bytes(EQUAL_KEY_BYTES + 1))),
        *((policies.EQUALS, 1, key) for key in ("x" * EQUAL_KEY_BYTES, 5)),
        *((policies.EQUALS, 2, put_us) for put_us in (-1, 2**50)),
        *((policies.EQUALS, 3, job) for job in (0, -1, 2, JOB_ID_MAX + 1)),
    ],
)
def test_a_record_that_cannot_be_is_damage(kind: str, field: int, value: Any) -> None:
    record = list(VALID[kind])
    if kind == policies.POLICY:
        record[0] = OTHER
    assert record[field] != value or type(record[field]) is not type(value)
    record[field] = value
    with pytest.raises(Damaged):
        read((kind, record))


@pytest.mark.parametrize("kind", [kind for kind in VALID if kind != policies.GENERATIONS])
def test_a_record_that_stands_twice_is_damage(kind: str) -> None:
    with pytest.raises(Damaged):
        read((kind, VALID[kind]), (kind, VALID[kind]))


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        (policies.POLICY, "POLICIES_MAX"),
        (policies.NOTES, "NOTES_MAX"),
        (policies.RATES, "BUCKETS_MAX"),
    ],
)
@pytest.mark.constants
def test_more_records_than_a_machine_has_are_damage(
    monkeypatch: pytest.MonkeyPatch, kind: str, bound: str
) -> None:
    records = [] if kind == policies.POLICY else [(kind, VALID[kind])]
    monkeypatch.setattr(policies, bound, 1)
    read(*records)
    monkeypatch.setattr(policies, bound, 0)
    with pytest.raises(Damaged):
        read(*records)


def test_a_kind_that_is_none_is_damage() -> None:
    with pytest.raises(Damaged):
        read(("else", []))


def test_a_ready_job_that_a_policy_will_delete_is_damage() -> None:
    """Only a delayed job has the negative order of such jobs."""
    cluster = Guests()
    cluster.put()

    def change(jobs: list[Any]) -> None:
        assert (jobs[0][6], jobs[0][8]) == (READY, 0)
        jobs[0][8] = -1

    with pytest.raises(Damaged, match="has the order -1"):
        load(changed(cluster.machine, "jobs", change))


@pytest.mark.parametrize("limits", [[-1, 0, 0], [0, 0, -1], [U32_MAX + 1, 0, 0], [0, 0, 2**40]])
def test_limits_of_a_queue_that_cannot_be_are_damage(limits: list[int]) -> None:
    cluster = Guests()
    cluster.put()

    def change(tubes: list[Any]) -> None:
        assert tubes[0][-1] == [0, 0, 0]
        tubes[0][-1] = limits

    with pytest.raises(Damaged, match="has the limits"):
        load(changed(cluster.machine, "tubes", change))
