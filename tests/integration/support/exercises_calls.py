"""Exercises of all gRPC calls, by their full names.

As with our commands, a call that a node does not answer goes to the next node.
"""

import hashlib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import grpc

import beanpole.pb
from beanpole.client.rpc import Nodes
from beanpole.pb import (
    admin_pb2,
    backup_pb2,
    events_pb2,
    jobs_pb2,
    live_pb2,
    node_admin_pb2,
    peer_pb2,
    policies_pb2,
    queue_pb2,
    users_pb2,
)
from tests.integration.support.exercises import PATIENCE_S, Exercise, Scene, connections
from tests.integration.support.waiting import wait_until

T = TypeVar("T")


def services() -> Iterator[tuple[str, Any]]:
    """Yield the full name of each service, and the class of its stub."""
    for module in pkgutil.iter_modules(beanpole.pb.__path__):
        if not module.name.endswith("_pb2"):
            continue
        found = importlib.import_module(f"beanpole.pb.{module.name}").DESCRIPTOR
        for name, service in found.services_by_name.items():
            stubs = importlib.import_module(f"beanpole.pb.{module.name}_grpc")
            yield service.full_name, getattr(stubs, f"{name}Stub")


STUBS: Final = dict(services())


def calls() -> set[str]:
    """Return the full names of all calls."""
    return {
        f"{service.full_name}/{method.name}"
        for module in pkgutil.iter_modules(beanpole.pb.__path__)
        if module.name.endswith("_pb2")
        for service in importlib.import_module(
            f"beanpole.pb.{module.name}"
        ).DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def ask(scene: Scene, service: str, act: Callable[[Any], T]) -> T:
    """Call `act` with a stub of the first node that answers."""
    with Nodes(scene.grpc, PATIENCE_S) as nodes:
        return nodes.first_answer(lambda channel: act(STUBS[f"beanpole.v1.{service}"](channel)))


def gone(scene: Scene, service: str, remove: Callable[[Any], object]) -> None:
    """Remove something; a call repeated after a lost answer may find nothing."""

    def act(stub: Any) -> None:
        try:
            remove(stub)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise

    ask(scene, service, act)


# --- Admin ----------------------------------------------------------------------------------------


def status(scene: Scene) -> None:
    request = admin_pb2.StatusRequest()
    reply = ask(scene, "Admin", lambda stub: stub.Status(request, timeout=PATIENCE_S))
    assert [one.id for one in reply.nodes] == sorted(one.id for one in scene.nodes)


def take_snapshot(scene: Scene) -> None:
    request = admin_pb2.TakeSnapshotRequest()
    reply = ask(scene, "Admin", lambda stub: stub.TakeSnapshot(request, timeout=PATIENCE_S))
    assert reply.index > 0


def list_settings(scene: Scene) -> None:
    request = node_admin_pb2.ListSettingsRequest()
    reply = ask(scene, "NodeAdmin", lambda stub: stub.ListSettings(request, timeout=PATIENCE_S))
    found = {one.name: (one.value_json, one.source) for one in reply.settings}
    assert found["node_id"] == (f'"{reply.node}"', "file")


def examine(scene: Scene) -> None:
    request = node_admin_pb2.ExamineRequest()
    reply = ask(scene, "NodeAdmin", lambda stub: stub.Examine(request, timeout=PATIENCE_S))
    assert {"serving", "disk room", "snapshot"} <= {one.name for one in reply.findings}


def reload(scene: Scene) -> None:
    request = node_admin_pb2.ReloadRequest()
    reply = ask(scene, "NodeAdmin", lambda stub: stub.Reload(request, timeout=PATIENCE_S))
    assert reply.node and not reply.waiting


def finalize(scene: Scene) -> None:
    """The cluster works at this version already, so an absent member is no obstacle."""
    status = ask(
        scene,
        "Admin",
        lambda stub: stub.Status(admin_pb2.StatusRequest(local=True), timeout=PATIENCE_S),
    )
    version = status.nodes[0].machine_version
    request = admin_pb2.FinalizeRequest(to=version)
    reply = ask(scene, "Admin", lambda stub: stub.Finalize(request, timeout=PATIENCE_S))
    assert reply.machine_version >= version


def list_connections(scene: Scene) -> None:
    with scene.helper() as helper:
        job = helper.put("x")
        helper.reserve(timeout=5)
        last = scene.nodes[-1].id
        found = ask(scene, "Admin", lambda stub: connections(stub, last))
        (one,) = (one for one in found if job in one.jobs_held)
        assert (one.queue_used, one.protocol) == (scene.queue, "beanstalk")


def close_connection(scene: Scene) -> None:
    with scene.helper() as helper, scene.helper() as other:
        job = helper.put("x")
        helper.reserve(timeout=5)
        scene.disconnect(job)
        wait_until(lambda: other.stats_job(job)["state"] == "ready", PATIENCE_S, "that it is back")


def read_audit(scene: Scene) -> None:
    """Calls are recorded by the node that receives them."""

    def act(channel: Any) -> bool:
        policy = policies_pb2.Policy(pattern=scene.queue, attempts_max=3)
        request = policies_pb2.SetPolicyRequest(policy=policy)
        STUBS["beanpole.v1.Policies"](channel).Set(request, timeout=PATIENCE_S)
        STUBS["beanpole.v1.Policies"](channel).Drop(
            policies_pb2.DropPolicyRequest(pattern=scene.queue), timeout=PATIENCE_S
        )
        reply = STUBS["beanpole.v1.NodeAdmin"](channel).ReadAudit(
            node_admin_pb2.ReadAuditRequest(), timeout=PATIENCE_S
        )
        return any(scene.queue in line for line in reply.lines)

    with Nodes(scene.grpc, PATIENCE_S) as nodes:
        assert nodes.first_answer(act)


# --- Backup, Events, Live, Peer -------------------------------------------------------------------


def take(scene: Scene) -> None:
    replies = ask(scene, "Backup", lambda stub: list(stub.Take(backup_pb2.TakeRequest())))
    assert replies[0].about.members == [one.id for one in sorted(scene.nodes)]
    assert replies[-1].end.chunks == len(replies) - 2 > 0


def event_range(scene: Scene) -> None:
    with scene.helper() as helper:
        helper.put("x")
    request = events_pb2.EventRangeRequest()

    def end() -> int:
        reply = ask(scene, "Events", lambda stub: stub.EventRange(request, timeout=PATIENCE_S))
        assert [span.end for span in reply.spans[-1:]] in ([], [reply.end])
        return int(reply.end)

    wait_until(end, PATIENCE_S, "events")


def read_events(scene: Scene) -> None:
    with scene.helper() as helper:
        helper.put("x")
    request = events_pb2.ReadEventsRequest()

    def read(stub: Any) -> bool:
        return any(batch.rows for batch in stub.ReadEvents(request, timeout=PATIENCE_S))

    wait_until(lambda: ask(scene, "Events", read), PATIENCE_S, "events")


def read_live(scene: Scene) -> None:
    with scene.helper() as helper:
        # More jobs than other queues have, because only the largest queues are reported.
        helper.put_many(["x"] * 20)
    request = live_pb2.LiveRequest()

    def read(stub: Any) -> bool:
        reply = stub.Read(request, timeout=PATIENCE_S)
        assert reply.node in {one.id for one in scene.nodes}
        return scene.queue in {queue.name for queue in reply.queues}

    wait_until(lambda: ask(scene, "Live", read), PATIENCE_S, "its queue")


def challenge(scene: Scene) -> None:
    """Without a shared secret the proof proves nothing, and the answer is empty, too."""
    request = peer_pb2.ChallengeRequest(caller="n1", nonce=bytes(16))
    reply = ask(scene, "Peer", lambda stub: stub.Challenge(request, timeout=PATIENCE_S))
    assert reply.node in {one.id for one in scene.nodes}


def node_info(scene: Scene) -> None:
    request = peer_pb2.NodeInfoRequest()
    reply = ask(scene, "Peer", lambda stub: stub.NodeInfo(request, timeout=PATIENCE_S))
    assert reply.id in {one.id for one in scene.nodes}


def fetch_snapshot(scene: Scene) -> None:
    """Take it and fetch it at one node, because the others may have none if that is killed."""

    def act(channel: Any) -> list[Any]:
        taken, wanted = admin_pb2.TakeSnapshotRequest(), peer_pb2.FetchSnapshotRequest()
        STUBS["beanpole.v1.Admin"](channel).TakeSnapshot(taken, timeout=PATIENCE_S)
        # A newer snapshot may remove the file meanwhile, which is no answer: it is done again.
        return list(STUBS["beanpole.v1.Peer"](channel).FetchSnapshot(wanted, timeout=PATIENCE_S))

    with Nodes(scene.grpc, PATIENCE_S) as nodes:
        first, *others = nodes.first_answer(act)
    assert first.index > 0 and not first.data
    assert others and all(one.data for one in others)


# --- JobAdmin -------------------------------------------------------------------------------------


def list_queues(scene: Scene) -> None:
    with scene.helper() as helper:
        helper.put("x")
    request = jobs_pb2.ListQueuesRequest(queue=scene.queue)
    reply = ask(scene, "JobAdmin", lambda stub: stub.ListQueues(request, timeout=PATIENCE_S))
    (found,) = reply.queues
    assert (found.name, found.ready) == (scene.queue, 1)


def pause_queue(scene: Scene) -> None:
    with scene.helper() as helper:
        helper.put("x")
        request = jobs_pb2.PauseQueueRequest(queue=scene.queue, seconds=100)
        ask(scene, "JobAdmin", lambda stub: stub.PauseQueue(request, timeout=PATIENCE_S))
        assert helper.stats_tube(scene.queue)["pause"] == 100


def list_jobs(scene: Scene) -> None:
    with scene.helper() as helper:
        jobs = helper.put_many(["a", "b"])
    request = jobs_pb2.ListJobsRequest(filter=jobs_pb2.JobFilter(queue=scene.queue))
    reply = ask(scene, "JobAdmin", lambda stub: stub.ListJobs(request, timeout=PATIENCE_S))
    assert [one.id for one in reply.jobs] == jobs and reply.complete


def get_job(scene: Scene) -> None:
    with scene.helper() as helper:
        job = helper.put("body")
    request = jobs_pb2.GetJobRequest(id=job)
    reply = ask(scene, "JobAdmin", lambda stub: stub.GetJob(request, timeout=PATIENCE_S))
    assert (reply.queue, reply.body) == (scene.queue, b"body")


def change(scene: Scene) -> None:
    """The answer may be lost; a repeated call finds nothing left to do."""
    request = jobs_pb2.ChangeRequest(
        action=jobs_pb2.JOB_ACTION_BURY, filter=jobs_pb2.JobFilter(queue=scene.queue)
    )
    with scene.helper() as helper:
        jobs = helper.put_many(["a", "b"])
        told = ask(
            scene, "JobAdmin", lambda stub: list(stub.Change(request, timeout=PATIENCE_S))[-1]
        )
        assert told.complete
        assert {helper.stats_job(job)["state"] for job in jobs} == {"buried"}


# --- Policies -------------------------------------------------------------------------------------


def set_policy(scene: Scene) -> None:
    policy = policies_pb2.Policy(pattern=scene.queue, attempts_max=3)
    request = policies_pb2.SetPolicyRequest(policy=policy)
    ask(scene, "Policies", lambda stub: stub.Set(request, timeout=PATIENCE_S))
    # At the node that took the call; another node may be behind.
    wait_until(lambda: policies_of(scene) == [scene.queue], PATIENCE_S, "its policy")


def drop_policy(scene: Scene) -> None:
    set_policy(scene)
    request = policies_pb2.DropPolicyRequest(pattern=scene.queue)

    gone(scene, "Policies", lambda stub: stub.Drop(request, timeout=PATIENCE_S))
    wait_until(lambda: policies_of(scene) == [], PATIENCE_S, "no policy")


def policies_of(scene: Scene) -> list[str]:
    request = policies_pb2.ListPoliciesRequest(queue=scene.queue)
    reply = ask(scene, "Policies", lambda stub: stub.List(request, timeout=PATIENCE_S))
    return [one.pattern for one in reply.policies]


# --- Queue ----------------------------------------------------------------------------------------


def put(scene: Scene) -> None:
    key = scene.queue.encode()
    jobs = [queue_pb2.PutJob(tube=scene.queue, body=b"%d" % n, key=key + b"%d" % n) for n in (0, 1)]
    request = queue_pb2.PutRequest(jobs=jobs)
    reply = ask(scene, "Queue", lambda stub: stub.Put(request, timeout=PATIENCE_S))
    with scene.helper() as helper:
        assert [helper.peek(one.job_id).body for one in reply.results] == ["0", "1"]
        assert helper.stats_tube(scene.queue)["total-jobs"] == 2


def kick(scene: Scene) -> None:
    with scene.helper() as helper:
        job = scene.bury(helper)
        request = queue_pb2.KickRequest(job_ids=[job])
        ask(scene, "Queue", lambda stub: stub.Kick(request, timeout=PATIENCE_S))
        assert helper.stats_job(job)["state"] == "ready"


def set_alias(scene: Scene) -> None:
    other = f"gearman:{scene.queue}"
    request = queue_pb2.SetAliasRequest(alias=other, queue=scene.queue)
    ask(scene, "Queue", lambda stub: stub.SetAlias(request, timeout=PATIENCE_S))
    wait_until(lambda: aliases(scene).get(other) == scene.queue, PATIENCE_S, "its alias")
    request = queue_pb2.SetAliasRequest(alias=other)
    gone(scene, "Queue", lambda stub: stub.SetAlias(request, timeout=PATIENCE_S))
    wait_until(lambda: other not in aliases(scene), PATIENCE_S, "no alias")


def aliases(scene: Scene) -> dict[str, str]:
    request = queue_pb2.ListAliasesRequest()
    reply = ask(scene, "Queue", lambda stub: stub.ListAliases(request, timeout=PATIENCE_S))
    return {one.alias: one.queue for one in reply.aliases}


# --- Users ----------------------------------------------------------------------------------------


def users(scene: Scene) -> None:
    """A user with a token, from creation to removal."""
    name, token = scene.queue, hashlib.sha256(scene.queue.encode()).digest()
    rights = [users_pb2.Rights(pattern=f"{name}*", rights=[users_pb2.RIGHT_PUT])]

    def found() -> list[users_pb2.User]:
        request = users_pb2.ListUsersRequest(name=name)
        reply = ask(scene, "Users", lambda stub: stub.List(request, timeout=PATIENCE_S))
        return list(reply.users)

    made = users_pb2.SetUserRequest(name=name, rights=rights)
    ask(scene, "Users", lambda stub: stub.Set(made, timeout=PATIENCE_S))
    added = users_pb2.AddTokenRequest(user=name, digest=token)
    ask(scene, "Users", lambda stub: stub.AddToken(added, timeout=PATIENCE_S))
    wait_until(lambda: found() and found()[0].token_ids, PATIENCE_S, "its token")
    assert list(found()[0].rights) == rights
    who = users_pb2.WhoAmIRequest()
    reply = ask(scene, "Users", lambda stub: stub.WhoAmI(who, timeout=PATIENCE_S))
    assert (reply.user, reply.has_users) == ("anonymous", True)
    dropped = users_pb2.DropTokenRequest(user=name, token_id=token.hex()[:16])
    gone(scene, "Users", lambda stub: stub.DropToken(dropped, timeout=PATIENCE_S))
    ended = users_pb2.DropUserRequest(name=name)
    gone(scene, "Users", lambda stub: stub.Drop(ended, timeout=PATIENCE_S))
    wait_until(lambda: not found(), PATIENCE_S, "no user")


EXERCISES: Final[Mapping[str, Exercise]] = {
    f"beanpole.v1.{name}": exercise
    for name, exercise in {
        "Admin/Status": status,
        "Admin/TakeSnapshot": take_snapshot,
        "Admin/Finalize": finalize,
        "Admin/ListConnections": list_connections,
        "Admin/CloseConnection": close_connection,
        "Backup/Take": take,
        "Events/EventRange": event_range,
        "Events/ReadEvents": read_events,
        "JobAdmin/ListQueues": list_queues,
        "JobAdmin/PauseQueue": pause_queue,
        "JobAdmin/ListJobs": list_jobs,
        "JobAdmin/GetJob": get_job,
        "JobAdmin/Change": change,
        "Live/Read": read_live,
        "NodeAdmin/ReadAudit": read_audit,
        "NodeAdmin/ListSettings": list_settings,
        "NodeAdmin/Reload": reload,
        "NodeAdmin/Examine": examine,
        "Peer/Challenge": challenge,
        "Peer/NodeInfo": node_info,
        "Peer/FetchSnapshot": fetch_snapshot,
        "Policies/Set": set_policy,
        "Policies/Drop": drop_policy,
        "Policies/List": set_policy,
        "Queue/Put": put,
        "Queue/Kick": kick,
        "Queue/SetAlias": set_alias,
        "Queue/ListAliases": set_alias,
        **{
            f"Users/{name}": users
            for name in ("Set", "Drop", "List", "AddToken", "DropToken", "WhoAmI")
        },
    }.items()
}
# Calls that are exercised elsewhere, with the test.
ELSEWHERE: Final[Mapping[str, str]] = {
    # It would move the leader away from the node that is killed.
    "beanpole.v1.Admin/TransferLeader": "integration/test_cluster_commands.py",
    # There is one list of rules, which concurrent exercises would replace.
    "beanpole.v1.Users/SetRules": "integration/test_users.py",
    "beanpole.v1.Users/ListRules": "integration/test_users.py",
}
