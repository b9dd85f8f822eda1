"""The table of all jobs against a dict."""

import random

import pytest

from beanpole.core.jobs import store
from beanpole.core.jobs.job import Job, Tube
from beanpole.core.jobs.spaces import SPACES, Space
from beanpole.core.jobs.store import SHARD_JOBS, Jobs
from beanpole.events import BEANSTALK
from tests.unit.seeds import seeds

SPACE = Space(BEANSTALK, SPACES[BEANSTALK])


def job(job_id: int) -> Job:
    return Job(job_id, Tube(b"default", 1, SPACE), 0, 0, 1, b"", 0)


def table(*ids: int) -> Jobs:
    jobs = Jobs()
    for job_id in ids:
        jobs.add(job(job_id))
    return jobs


@pytest.mark.parametrize("seed", seeds(range(20), 4))
def test_it_is_as_good_as_a_dict(seed: int) -> None:
    dice = random.Random(seed)
    jobs, model, next_id = Jobs(), dict[int, Job](), 1
    stays = dice.choice((0.1, 0.5, 0.999))
    for _ in range(1500):
        next_id += dice.choice((1, 1, 1, 2, SHARD_JOBS, 1000)) if dice.random() < 0.1 else 1
        jobs.add(new := job(next_id))
        model[next_id] = new
        while model and dice.random() > stays:
            oldest = dice.random() < 0.8
            gone = next(iter(model)) if oldest else dice.choice(list(model))
            jobs.remove(gone)
            del model[gone]
            assert jobs.get(gone) is None
        assert len(jobs) == len(model)
        assert jobs.last_id() == max(model, default=0)
        assert jobs.get(next_id) is model.get(next_id)
    assert list(jobs.values()) == list(model.values())
    assert all(jobs[number] is found for number, found in model.items())
    assert jobs.get(next_id + 1) is jobs.get(next_id + SHARD_JOBS) is None
    found = list(jobs.ids_and_gaps())
    assert found == sorted(set(found)) and set(model) <= set(found)
    assert all(any(number ^ other < SHARD_JOBS for other in model) for number in found)


@pytest.mark.constants
@pytest.mark.parametrize("sparse_min", [0, store.SPARSE_MIN])
@pytest.mark.parametrize("seed", seeds(range(20), 4))
def test_ids_are_listed_from_any_of_them(
    seed: int, sparse_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SPARSE_MIN", sparse_min)
    dice = random.Random(seed)
    ids = sorted(dice.sample(range(1, dice.choice((50, 1000, 200_000))), 40))
    jobs = table(*ids)
    for after_id in (0, *dice.sample(ids, 5), ids[-1] - 1, ids[-1], ids[-1] + 1, 2**64 - 1):
        found = list(jobs.ids_behind(after_id))
        assert found == sorted(set(found)) and all(number > after_id for number in found)
        assert {number for number in ids if number > after_id} <= set(found)
        assert len(found) <= 40 * SHARD_JOBS + ids[-1] // SHARD_JOBS + 1
    going = jobs.ids_behind(0)
    next(going)
    jobs.remove(ids[-1])
    jobs.add(job(ids[-1] + 1))
    assert ids[-1] + 1 not in set(going), "it was not there when the list began"


def test_what_was_removed_leaves_nothing_behind() -> None:
    jobs = Jobs()
    for number in range(1, 10 * SHARD_JOBS):
        jobs.add(job(number))
        jobs.remove(number)
    assert len(jobs) == jobs.last_id() == 0
    assert not list(jobs.values()) and not list(jobs.ids_and_gaps())


def test_ids_are_those_of_the_beginning_while_jobs_come_and_go() -> None:
    jobs = table(1, 2, 70, 200)
    ids = jobs.ids_and_gaps()
    assert next(ids) <= 1
    for number in (1, 2, 70, 200):
        jobs.remove(number)
    jobs.add(job(201))
    rest = set(ids)
    assert {1, 2, 70, 200} <= rest and 201 not in rest
    assert not rest & set(range(2 * SHARD_JOBS, 3 * SHARD_JOBS)), "nobody was there"


def test_a_job_that_is_not_there_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="no job 3"):
        table(1, 2)[3]
