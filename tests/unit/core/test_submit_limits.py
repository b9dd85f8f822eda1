"""Limits of submissions: of memory, of the clients of a job, and of the jobs of a client."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole.core.accounts import JOB_BYTES, memory_bytes
from beanpole.core.jobs.extension import ATTACHMENT_BYTES
from beanpole.core.operations import extended
from tests.unit.core.cluster import image_of
from tests.unit.core.guests import Guests


def refused(cluster: Guests, *fields: Any, **more: Any) -> bool:
    """Submit, and return whether it was refused, which must change nothing."""
    before = image_of(cluster.machine)[1:]
    if cluster.submit(*fields, **more) != c.OUT_OF_MEMORY:
        return False
    assert image_of(cluster.machine)[1:] == before
    return True


@pytest.mark.constants
def test_a_client_waits_for_so_many_jobs_at_most(
    monkeypatch: pytest.MonkeyPatch, guests: Guests
) -> None:
    monkeypatch.setattr(extended, "ATTACHED_MAX", 2)
    guests.submitted(3, b"another's")
    jobs = [guests.submitted(2, b"one"), guests.submitted(2, b"two")]
    assert refused(guests, 2, b"three")
    assert refused(guests, 2, b"another's")
    assert guests.submit(2, b"one") == (jobs[0], 1), "the client has this place already"
    assert guests.submit(2, b"another's", foreground=0)[1] == 1, "it does not wait for this one"
    guests.submitted(2, b"three", foreground=0)
    assert guests.submit(3, b"two") == (jobs[1], 1), "another client has places of its own"
    guests.do(c.DELETE, 4, jobs[0])
    guests.submitted(2, b"one")


@pytest.mark.constants
def test_a_job_has_so_many_clients_at_most(monkeypatch: pytest.MonkeyPatch, guests: Guests) -> None:
    monkeypatch.setattr(extended, "CLIENTS_OF_JOB_MAX", 2)
    job = guests.submitted(2, b"one")
    assert guests.submit(3, b"one") == (job, 1)
    assert refused(guests, 4, b"one")
    assert guests.submit(4, b"one", foreground=0) == (job, 1)
    assert guests.submit(3, b"one") == (job, 1)
    guests.close(3)
    assert guests.submit(4, b"one") == (job, 1)


def test_a_submission_and_a_client_more_count_against_the_limit_of_bytes(guests: Guests) -> None:
    machine = guests.machine
    before = memory_bytes(machine)
    job = guests.submitted(2, b"one", body=b"")
    size = memory_bytes(machine) - before
    assert size > JOB_BYTES + ATTACHMENT_BYTES
    machine.queue_bytes_max = memory_bytes(machine) + size - 1
    assert refused(guests, 2, b"two", body=b"")
    machine.queue_bytes_max += 1
    other = guests.submitted(2, b"two", body=b"")
    assert memory_bytes(machine) == machine.queue_bytes_max
    assert refused(guests, 3, b"two")
    machine.queue_bytes_max += ATTACHMENT_BYTES - 1
    assert refused(guests, 3, b"two")
    machine.queue_bytes_max += 1
    assert guests.submit(3, b"two") == (other, 1)
    assert guests.submit(3, b"one", foreground=0) == (job, 1), "it takes no memory"


def test_a_submission_is_refused_when_puts_are(guests: Guests) -> None:
    submit = (c.SUBMIT, 2, b"\x02turn", 0, 0, b"", 0, 1, b"", b"")
    assert guests.batch(submit, flags=c.FLAG_PUTS_REFUSED) == [c.OUT_OF_MEMORY]
