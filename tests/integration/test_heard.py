"""The judges of Workq's and Gearman's clients detect planted losses and repetitions."""

from collections.abc import Callable

import pytest

from beanpole.client.workq import Job, Result
from tests.integration.support import foreground
from tests.integration.support.gearmand import JOB_CREATED, WORK_COMPLETE, WORK_DATA, WORK_STATUS
from tests.integration.support.pending import Pending, payload, result

Heard = tuple[list[bytes], list[foreground.Seen]]


def heard() -> Heard:
    """A correct history of two jobs of two submitters."""
    seen: list[foreground.Seen] = [
        {
            name: [
                (JOB_CREATED, [handle]),
                (WORK_STATUS, [handle, b"1", b"2"]),
                (WORK_DATA, [handle, b"half of " + name]),
                (WORK_COMPLETE, [handle, b"all of " + name]),
            ]
        }
        for name, handle in ((b"a", b"H:1"), (b"b", b"H:2"))
    ]
    return [b"a", b"b"], seen


def twice_taken(found: Heard) -> None:
    found[0].append(b"a")


def never_taken(found: Heard) -> None:
    found[0].pop()


def twice_told(found: Heard) -> None:
    found[1][0][b"a"].append(found[1][0][b"a"][-1])


def data_lost(found: Heard) -> None:
    del found[1][1][b"b"][2]


def out_of_order(found: Heard) -> None:
    found[1][1][b"b"][1:3] = found[1][1][b"b"][2:0:-1]


def another_result(found: Heard) -> None:
    found[1][0][b"a"][-1] = (WORK_COMPLETE, [b"H:1", b"all of b"])


def never_told(found: Heard) -> None:
    found[1].pop()


def test_jobs_in_foreground_that_are_well() -> None:
    taken, seen = heard()
    foreground.check([b"a", b"b"], taken, seen)


@pytest.mark.parametrize(
    "plant",
    [twice_taken, never_taken, twice_told, data_lost, out_of_order, another_result, never_told],
)
def test_jobs_in_foreground_that_are_not(plant: Callable[[Heard], None]) -> None:
    found = heard()
    plant(found)
    with pytest.raises(AssertionError):
        foreground.check([b"a", b"b"], *found)


def pending() -> Pending:
    """A correct history of two jobs, each leased and completed once."""
    found = Pending(["nowhere:1"], 2, 1)
    found.leased = [Job(job, b"q", 1, payload(at)) for at, job in enumerate(found.jobs)]
    found.results = [(at, Result(True, result(payload(at)))) for at in range(2)]
    return found


def test_pending_jobs_that_are_well() -> None:
    pending().check()


@pytest.mark.parametrize(
    "plant",
    [
        lambda found: found.leased.append(found.leased[0]),
        lambda found: found.leased.pop(),
        lambda found: found.results.append(found.results[0]),
        lambda found: found.results.pop(),
        lambda found: found.results.__setitem__(0, (0, None)),
        lambda found: found.results.__setitem__(0, (0, Result(False, found.results[0][1].data))),
        lambda found: found.errors.append(ConnectionError()),
    ],
    ids=[
        "leased twice",
        "never leased",
        "told twice",
        "never told",
        "timed out",
        "failed",
        "error",
    ],
)
def test_pending_jobs_that_are_not(plant: Callable[[Pending], None]) -> None:
    found = pending()
    plant(found)
    with pytest.raises((AssertionError, TypeError)):
        found.check()
