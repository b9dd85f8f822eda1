"""Policies of queues on real nodes: the handling of a dead letter, and a killed leader."""

import time
from functools import partial
from typing import Any

import greenstalk
import pytest

from beanpole.addresses import split_address
from tests.integration.support.commands import Commands, ended
from tests.integration.support.gearmand import (
    CAN_DO,
    GRAB_JOB,
    JOB_ASSIGN,
    JOB_CREATED,
    SUBMIT_JOB,
    WORK_FAIL,
    Packets,
)
from tests.integration.support.nodes import Cluster
from tests.integration.support.waiting import wait_until

ATTEMPTS = 3


def fail(client: Any, times: int) -> int:
    """Let a worker reserve and release a job the given number of times; return the job's id."""
    taken = set()
    for _ in range(times):
        job = client.reserve(timeout=5)
        taken.add(job.id)
        client.release(job)
    (found,) = taken
    return int(found)


def without_policies(run: Commands) -> None:
    """Drop the policies of earlier tests."""
    for one in run.json("policy list"):
        run(f"policy drop {one['pattern']}")


def test_a_dead_letter_is_found_fixed_and_brought_back(quick: Cluster) -> None:
    """All commands go through a follower, and the leader is killed before the last attempt ends."""
    leader, (follower, other) = quick.roles()
    run = Commands(quick.nodes[follower].grpc)
    without_policies(run)
    said = run(f"policy set mail --attempts {ATTEMPTS} --dead mail-dead")
    assert said == "mail: after 3 attempts a job moves to mail-dead\n"
    with greenstalk.Client(split_address(quick.nodes[other].beanstalk), use="mail") as client:
        client.watch("mail")
        job = client.put('{"to": "ann"}', priority=7)
        assert fail(client, ATTEMPTS - 1) == job
        last = client.reserve(timeout=5)
        assert last.id == job
        quick.kill(leader)
        client.release(last, priority=7)
        # Workers of the queue no longer get the job; any node lists it with its reason.
        assert client.stats_tube("mail")["current-jobs-ready"] == 0
        assert [one["id"] for one in run.json("job list --queue mail-dead")] == [job]
        shown = run.json(f"job show {job}")
        assert (shown["queue"], shown["state"]) == ("mail-dead", "ready")
        assert (shown["ended_in"], shown["ended_by"]) == ("mail", "released")
        assert [one["id"] for one in run.json("job search ann --queue mail-dead")] == [job]
        # The cause is fixed, and the job returns with all its attempts, before the others.
        assert run(f"job change {job} --priority 0") == f"job {job} changed\n"
        assert run("job move --from mail-dead --to mail") == "1 job moved to mail\n"
        assert client.stats_job(job)["pri"] == 0
        assert fail(client, ATTEMPTS - 1) == job
        client.delete(client.reserve(timeout=5))
    assert run.json("job list --queue mail-dead") == []


def test_it_holds_while_the_leader_dies_and_after_a_restart(quick: Cluster) -> None:
    leader, (follower, other) = quick.roles()
    nodes = quick.nodes
    run = Commands(nodes[leader].grpc, nodes[follower].grpc)
    without_policies(run)
    run("policy set * --attempts 2")
    run("policy set mail* --attempts 9 --dead dead")
    assert run("policy drop mail*") == "mail* has no policy any more\n"
    run("policy drop mail*", status=1)
    assert run.json("policy set bulk* --jobs-max 9")["jobs_max"] == 9
    assert run.json("policy drop bulk*") == {"dropped": "bulk*"}
    with greenstalk.Client(split_address(nodes[other].beanstalk), use="q") as client:
        client.watch("q")
        lost = client.put("x", ttr=60)
        with greenstalk.Client(split_address(nodes[leader].beanstalk), watch="q") as worker:
            assert fail(worker, 1) == lost
            assert worker.reserve(timeout=5).id == lost
            changing = run.begin("policy set late --attempts 4 --dead dead")
            quick.kill(leader)
        # The worker's node is killed, which ends the job's second attempt.
        until_s = time.monotonic() + 30
        while client.stats_job(lost)["state"] != "buried":
            assert time.monotonic() < until_s
        shown = run.json(f"job show {lost}")
        assert (shown["ended_in"], shown["ended_by"]) == ("q", "node_down")
        assert ended(changing) == "late: after 4 attempts a job moves to dead\n"
        # A kick gives it new attempts.
        client.kick_job(lost)
        assert fail(client, 1) == lost
        assert client.stats_job(lost)["state"] == "ready"
    run = Commands(nodes[follower].grpc)
    run(f"snapshot --addr {nodes[follower].grpc}")
    quick.kill(follower)
    quick.start(leader)
    quick.start(follower)
    quick.wait_until_serving(follower)
    assert [one["pattern"] for one in run.json("policy list")] == ["*", "late"]
    late = run.json("policy show late")
    assert {name for name, value in late.items() if value} == {"pattern", "attempts_max", "dead"}
    assert run.json("policy list --queue late") == [late]


def test_the_rules_hold_through_a_follower_and_a_change_of_leader(quick: Cluster) -> None:
    leader, (follower, other) = quick.roles()
    nodes = quick.nodes
    run = Commands(nodes[follower].grpc, nodes[other].grpc)
    without_policies(run)
    run("policy set full --jobs-max 2")
    run("policy set newest --jobs-max 2 --full drop-oldest --default-ttr 5m --unique 10m")
    run("policy set slow --rate 1/5s")
    run("policy set kept --retain-buried 4s --retain-delayed 4s")
    address = split_address(nodes[other].beanstalk)
    with greenstalk.Client(address, watch="slow") as client:
        client.use("full")
        client.put("1"), client.put("2", delay=60)
        with pytest.raises(greenstalk.OutOfMemoryError):
            client.put("3")
        client.use("newest")
        first = client.put("1", ttr=0)
        assert client.stats_job(first)["ttr"] == 300
        second = client.put("2")
        assert client.put("2") == second
        client.use("kept")
        late = client.put("late", delay=60)
        buried = client.put("buried")
        client.bury(client.reserve_job(buried))
        client.use("slow")
        jobs = [client.put(str(number)) for number in range(2)]
        assert client.reserve(timeout=5).id == jobs[0]
        with pytest.raises(greenstalk.TimedOutError):
            client.reserve(timeout=0)
        assert client.stats_tube("slow")["current-jobs-ready"] == 1
        # The policy's state is in the log, so the next leader continues with it.
        quick.kill(leader)
        assert client.reserve(timeout=60).id == jobs[1]
        client.use("newest")
        assert client.put("2") == second
        client.put("3")
        until_s = time.monotonic() + 60
        for gone in (first, late, buried):
            while is_there(client, gone):
                assert time.monotonic() < until_s
    said = run("policy show full").splitlines()
    assert said == ["full has the policy of full:", "  at most 2 jobs, then a put is refused"]
    assert run("policy show none", status=1) == "none has no policy\n"


def is_assigned(worker: Packets) -> bool:
    return worker.ask(GRAB_JOB)[0] == JOB_ASSIGN


def test_a_job_of_gearman_fails_after_the_attempts_of_its_queue(shared: Cluster) -> None:
    run = Commands(shared.nodes[0].grpc)
    said = run("policy set gearman:poison --attempts 2")
    assert said == "gearman:poison: after 2 attempts a job fails\n"
    client = Packets(shared.nodes[0].speaks("gearman"))
    kind, (handle,) = client.ask(SUBMIT_JOB, b"poison", b"", b"data")
    assert kind == JOB_CREATED
    for number in (1, 2):
        worker = Packets(shared.nodes[number].speaks("gearman"))
        worker.send(CAN_DO, b"poison")
        wait_until(partial(is_assigned, worker), 60, "the job is assigned")
        worker.close()
    assert client.receive() == (WORK_FAIL, [handle])
    client.close()
    run("policy drop gearman:poison")


def is_there(client: Any, job: int) -> bool:
    try:
        client.peek(job)
    except greenstalk.NotFoundError:
        return False
    return True


def test_what_is_wrong_is_said(shared: Cluster) -> None:
    run = Commands(shared.nodes[0].grpc)
    for words, said in (
        ("policy set a*b --attempts 1", "'a*b' is no name of a tube"),
        ("policy set a", "give at least one rule, or --none and no rule"),
        (
            "policy set a --jobs-max 4294967296",
            "--jobs-max: '4294967296' is not a whole number from 1 to 4294967295",
        ),
        ("policy set workq:a --attempts 1", "--attempts has no effect on queues of workq"),
        ("policy set gearman:a --attempts 1 --dead b", "--dead is for tubes of beanstalk only"),
        ("policy set a --attempts 1 --dead b*", "--dead 'b*' is no name of a tube"),
        ("policy drop qless:turn", "'qless:turn' is a queue of qless, which has no policies"),
    ):
        assert said in run(words, status=2)
