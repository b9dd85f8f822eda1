"""Exercises of all commands of `beanpole`, in this process.

The output of the commands in every case is tested in tests/unit/beanpoled (test_cli,
test_job_commands).
"""

import argparse
import json
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, Final

from beanpole.client.blocking import NotFoundError
from beanpoled.cli import parser
from tests.integration.support.exercises import DONE_S, PATIENCE_S, Exercise, Open, Scene
from tests.integration.support.nodes import BEANPOLE
from tests.integration.support.program import Done, ran
from tests.integration.support.waiting import wait_until

_OPEN_STATUS: Final = 3
# Of a change that may be repeated: if the first answer was lost, the repeated call finds nothing to
# do, and the command says that (1), or that the lost node may have done it (3).
AGAIN: Final = (0, 1, 3)


def leaves(of: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the words of each command that can be run."""
    below = [one for one in of._actions if isinstance(one, argparse._SubParsersAction)]
    if words and not any(one.required for one in below):
        yield " ".join(words)
    for one in below:
        for name, found in one.choices.items():
            yield from leaves(found, (*words, name))


def commands() -> set[str]:
    """Return the words of all commands."""
    return set(leaves(parser()))


def grpc(scene: Scene, words: str, status: tuple[int, ...] = (0,)) -> str:
    """Run a command that speaks gRPC."""
    return _checked(ran(*words.split(), "--addr", ",".join(scene.grpc)), status)


def plain(scene: Scene, words: str) -> Any:
    """Run a command that speaks gRPC and answers in JSON."""
    # A dead node in the answer is no failure of the command.
    done = ran(*words.split(), "--json", "--addr", ",".join(scene.grpc))
    found = _checked(done, (0, 1))
    return json.loads(found) if found or not done.status else None  # there is no such thing


def beanstalk(scene: Scene, words: str, *, may_be_open: bool = False) -> str:
    """Run a command that speaks beanstalk."""
    done = ran(*words.split(), "--addr", ",".join(scene.beanstalk))
    if may_be_open and done.status == _OPEN_STATUS:
        raise Open(done.errors)
    return _checked(done, (0,))


def local(*words: object) -> str:
    """Run a command that contacts no node."""
    return _checked(ran(*words), (0,))


def _checked(found: Done, status: tuple[int, ...]) -> str:
    assert found.status in status, found
    return found.said


def state(scene: Scene, job: int) -> str:
    with scene.helper() as helper:
        try:
            return str(helper.stats_job(job)["state"])
        except NotFoundError:
            return "gone"


def put_job(scene: Scene, buried: bool = False) -> int:
    with scene.helper() as helper:
        return scene.bury(helper) if buried else helper.put("x")


# --- the cluster and its nodes --------------------------------------------------------------------


def version(scene: Scene) -> None:
    assert local("version").startswith("beanpole ")


def completion(scene: Scene) -> None:
    assert "beanpole" in local("completion", "bash")


def certs_dev(scene: Scene) -> None:
    local("certs", "dev", "--to", scene.place, "--nodes", "n0")
    context = ssl.create_default_context(cafile=scene.place / "ca.pem")
    context.load_cert_chain(scene.place / "n0.pem", scene.place / "n0.key")


def status(scene: Scene) -> None:
    assert [one["id"] for one in plain(scene, "status")["nodes"]] == names(scene)


def names(scene: Scene) -> list[str]:
    return sorted(one.id for one in scene.nodes)


def top(scene: Scene) -> None:
    assert plain(scene, "top")["node"] in names(scene)


def members(scene: Scene) -> None:
    assert [one["id"] for one in plain(scene, "cluster members")] == names(scene)


def cluster_status(scene: Scene) -> None:
    assert [one["id"] for one in plain(scene, "cluster status")["nodes"]] == names(scene)


def leader(scene: Scene) -> None:
    def find() -> bool:
        return plain(scene, "cluster leader")["leader"] in names(scene)

    wait_until(find, PATIENCE_S, "a leader")


def finalize(scene: Scene) -> None:
    known = [one["machine_version"] for one in plain(scene, "status")["nodes"] if one["reachable"]]
    found = plain(scene, f"cluster finalize --to {known[0]}")
    assert found == {"machine_version": known[0]}


def node_connections(scene: Scene) -> None:
    with scene.helper() as helper:
        job = helper.put("x")
        helper.reserve(timeout=5)
        found = [one for one in plain(scene, "node connections") if job in one["jobs_held"]]
    assert [one["queue_used"] for one in found] == [scene.queue]


def node_disconnect(scene: Scene) -> None:
    with scene.helper() as helper:
        job = helper.put("x")
        helper.reserve(timeout=5)
        found = [one for one in plain(scene, "node connections") if job in one["jobs_held"]]
        # 1: the connection has gone with its node since it was listed; its job comes back, too.
        grpc(scene, f"node disconnect {found[0]['connection']}", (0, 1))
        wait_until(lambda: state(scene, job) == "ready", PATIENCE_S, "that it is back")


def node_audit(scene: Scene) -> None:
    """Ask a node that stays, because calls are recorded by the node that receives them."""
    put_job(scene)
    place = ("--addr", scene.grpc[-1])
    _checked(ran("queue", "pause", scene.queue, "--for", "1s", *place), (0,))
    assert scene.queue in _checked(ran("node", "audit", "--json", *place), (0, 1))


def doctor(scene: Scene) -> None:
    found = {one["name"]: one["level"] for one in plain(scene, "doctor")}
    assert found["configurations"] == found["birth ids"] == found["replicas"] == "ok"


def node_settings(scene: Scene) -> None:
    assert plain(scene, "node settings")["settings"]["node_id"]["source"] == "file"


def node_reload(scene: Scene) -> None:
    assert plain(scene, "node reload --all")["reloaded"]


def snapshot(scene: Scene) -> None:
    """Name one node: the command asks every named node and ends at the first failure."""
    said = _checked(ran("snapshot", "--addr", scene.grpc[-1]), (0,))
    assert "snapshot at index" in said


# --- aliases and policies -------------------------------------------------------------------------


def alias(scene: Scene) -> None:
    other = f"gearman:{scene.queue}"
    grpc(scene, f"alias set {other} {scene.queue}")
    wait_until(
        lambda: plain(scene, "alias list").get(other) == scene.queue, PATIENCE_S, "its alias"
    )
    # 1: the first answer was lost, and the repeated call finds no alias to remove.
    grpc(scene, f"alias remove {other}", AGAIN)
    wait_until(lambda: other not in plain(scene, "alias list"), PATIENCE_S, "no alias")


def policy(scene: Scene) -> None:
    def found() -> list[int]:
        listed = plain(scene, f"policy list --queue {scene.queue}")
        return [one["attempts_max"] for one in listed]

    grpc(scene, f"policy set {scene.queue} --attempts 3")
    wait_until(lambda: found() == [3], PATIENCE_S, "its policy")
    shown = plain(scene, f"policy show {scene.queue}")
    assert shown is None or shown["pattern"] == scene.queue  # another node may be behind
    grpc(scene, f"policy drop {scene.queue}", AGAIN)
    wait_until(lambda: found() == [], PATIENCE_S, "no policy")


def user(scene: Scene) -> None:
    def tokens() -> list[str] | None:
        found = plain(scene, f"user show {scene.queue}")
        return None if found is None else found["token_ids"]

    limits = "--jobs-max 9 --bytes-max 1MiB --commands-per-second-max 1000"
    grpc(scene, f"user set {scene.queue} --right put,work={scene.queue}* {limits}")
    grpc(scene, f"user token {scene.queue}")
    wait_until(tokens, PATIENCE_S, "its token")
    assert scene.queue in [one["name"] for one in plain(scene, "user list")]
    assert plain(scene, "user whoami")["user"] == "anonymous"
    for token in tokens() or ():
        grpc(scene, f"user token {scene.queue} --drop {token}", AGAIN)
    grpc(scene, f"user drop {scene.queue}", AGAIN)
    wait_until(lambda: tokens() is None, PATIENCE_S, "no user")


# --- backups and events ---------------------------------------------------------------------------


def backup(scene: Scene) -> None:
    scene.place.mkdir(parents=True, exist_ok=True)
    file = scene.place / "backup"
    with scene.helper() as helper:
        helper.put("x")
    told = plain(scene, f"backup --to {file}")
    assert "right" in local("backup", "verify", file)
    assert json.loads(local("backup", "show", file, "--json"))["digest"] == told["digest"]


def events_range(scene: Scene) -> None:
    assert plain(scene, "events range")["cluster"] == "test"


def events_export(scene: Scene) -> None:
    """Run as a process, because the command handles signals."""
    target = scene.place / "export"
    addresses = ",".join(scene.grpc)
    done = subprocess.run(
        [*BEANPOLE, "events", "export", "--to", str(target), "--addr", addresses],
        capture_output=True,
        timeout=DONE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(target.rglob("*.parquet"))
    local("events", "compact", target)


# --- queues ---------------------------------------------------------------------------------------


def queue_list(scene: Scene) -> None:
    put_job(scene)
    assert scene.queue in {one["name"] for one in plain(scene, "queue list")}


def queue_show(scene: Scene) -> None:
    put_job(scene)
    assert plain(scene, f"queue show {scene.queue}")["ready"] == 1


def queue_clear(scene: Scene) -> None:
    job = put_job(scene)
    grpc(scene, f"queue clear {scene.queue} --yes")
    assert state(scene, job) == "gone"


def queue_kick(scene: Scene) -> None:
    job = put_job(scene, buried=True)
    grpc(scene, f"queue kick {scene.queue}")
    assert state(scene, job) == "ready"


def queue_pause(scene: Scene) -> None:
    put_job(scene)
    grpc(scene, f"queue pause {scene.queue} --for 100s")
    assert plain(scene, f"queue show {scene.queue}")["paused"]
    grpc(scene, f"queue resume {scene.queue}")
    assert not plain(scene, f"queue show {scene.queue}")["paused"]


# --- jobs, for administrators ---------------------------------------------------------------------


def job_list(scene: Scene) -> None:
    job = put_job(scene)
    assert [one["id"] for one in plain(scene, f"job list --queue {scene.queue}")] == [job]


def job_search(scene: Scene) -> None:
    job = put_job(scene)
    assert [one["id"] for one in plain(scene, f"job search x --queue {scene.queue}")] == [job]


def job_show(scene: Scene) -> None:
    job = put_job(scene)
    assert plain(scene, f"job show {job}")["queue"] == scene.queue


def job_delete(scene: Scene) -> None:
    job = put_job(scene)
    grpc(scene, f"job delete {job}", AGAIN)
    assert state(scene, job) == "gone"


def job_kick(scene: Scene) -> None:
    job = put_job(scene, buried=True)
    grpc(scene, f"job kick {job}", AGAIN)
    assert state(scene, job) == "ready"


def job_bury(scene: Scene) -> None:
    job = put_job(scene)
    grpc(scene, f"job bury {job}", AGAIN)
    assert state(scene, job) == "buried"


def job_change(scene: Scene) -> None:
    job = put_job(scene)
    grpc(scene, f"job change {job} --delay 100s")
    assert state(scene, job) == "delayed"


def job_move(scene: Scene) -> None:
    job = put_job(scene)
    grpc(scene, f"job move {job} --to {scene.queue}-other", AGAIN)
    assert plain(scene, f"job show {job}")["queue"] == f"{scene.queue}-other"


# --- jobs, by hand --------------------------------------------------------------------------------


def put(scene: Scene) -> None:
    said = beanstalk(scene, f"put x --tube {scene.queue}", may_be_open=True)
    assert state(scene, int(said.removeprefix("INSERTED "))) == "ready"


def reserve(scene: Scene) -> None:
    job = put_job(scene)
    said = beanstalk(scene, f"reserve --tube {scene.queue} --timeout 30")
    assert said == f"RESERVED {job} 1\nx\n"


def delete(scene: Scene) -> None:
    job = put_job(scene)
    assert beanstalk(scene, f"delete {job}", may_be_open=True) == "DELETED\n"
    assert state(scene, job) == "gone"


def release(scene: Scene) -> None:
    job = put_job(scene, buried=True)
    assert beanstalk(scene, f"release {job}", may_be_open=True) == "RELEASED\n"
    assert state(scene, job) == "ready"


def bury(scene: Scene) -> None:
    job = put_job(scene)
    assert beanstalk(scene, f"bury {job}", may_be_open=True) == "BURIED\n"
    assert state(scene, job) == "buried"


def kick(scene: Scene) -> None:
    job = put_job(scene, buried=True)
    assert beanstalk(scene, f"kick --tube {scene.queue}", may_be_open=True) == "KICKED 1\n"
    assert state(scene, job) == "ready"


def peek(scene: Scene) -> None:
    job = put_job(scene)
    assert beanstalk(scene, f"peek {job}") == f"FOUND {job} 1\nx\n"


def stats(scene: Scene) -> None:
    put_job(scene)
    assert "current-jobs-ready:" in beanstalk(scene, "stats")


def stats_tube(scene: Scene) -> None:
    put_job(scene)
    assert "current-jobs-ready: 1\n" in beanstalk(scene, f"stats-tube {scene.queue}")


def stats_job(scene: Scene) -> None:
    assert "state: ready\n" in beanstalk(scene, f"stats-job {put_job(scene)}")


def tubes(scene: Scene) -> None:
    with scene.helper() as helper:
        helper.put("x")
        assert scene.queue in beanstalk(scene, "tubes").splitlines()


def work(scene: Scene) -> None:
    """Run as a process, because the command handles signals."""
    job = put_job(scene)
    addresses = ",".join(scene.beanstalk)
    line = [*BEANPOLE, "work", "--addr", addresses, scene.queue, "--", "true"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: state(scene, job) == "gone", DONE_S, "that it is done")
        process.terminate()
        said, errors = process.communicate(timeout=DONE_S)
    assert process.returncode == 0, errors
    assert said == b"deleted=1 released=0 buried=0 lost=0\n"


EXERCISES: Final[Mapping[str, Exercise]] = {
    "version": version,
    "completion": completion,
    "certs dev": certs_dev,
    "status": status,
    "top": top,
    "cluster status": cluster_status,
    "cluster members": members,
    "cluster leader": leader,
    "cluster finalize": finalize,
    "node connections": node_connections,
    "node disconnect": node_disconnect,
    "doctor": doctor,
    "node audit": node_audit,
    "node settings": node_settings,
    "node reload": node_reload,
    "snapshot": snapshot,
    "alias set": alias,
    "policy set": policy,
    "user set": user,
    "backup": backup,
    "events range": events_range,
    "events export": events_export,
    "queue list": queue_list,
    "queue show": queue_show,
    "queue clear": queue_clear,
    "queue kick": queue_kick,
    "queue pause": queue_pause,
    "job list": job_list,
    "job search": job_search,
    "job show": job_show,
    "job delete": job_delete,
    "job kick": job_kick,
    "job bury": job_bury,
    "job change": job_change,
    "job move": job_move,
    "put": put,
    "reserve": reserve,
    "delete": delete,
    "release": release,
    "bury": bury,
    "kick": kick,
    "peek": peek,
    "stats": stats,
    "stats-tube": stats_tube,
    "stats-job": stats_job,
    "tubes": tubes,
    "work": work,
}
# Commands that are covered by another command's exercise.
WITH: Final[Mapping[str, str]] = {
    "alias list": "alias set",
    "alias remove": "alias set",
    "policy list": "policy set",
    "policy show": "policy set",
    "policy drop": "policy set",
    **{f"user {name}": "user set" for name in ("list", "show", "token", "drop", "whoami")},
    "backup verify": "backup",
    "backup show": "backup",
    "events compact": "events export",
    "queue resume": "queue pause",
}
# Commands that make clusters or need more than nodes, with the tests that cover them.
ELSEWHERE: Final[Mapping[str, str]] = {
    "user rules": "integration/test_users.py",
    "up": "integration/test_up.py",
    "restore": "integration/test_backup.py",
    "recover": "integration/test_recover.py",
    "inspect": "integration/test_recover.py",
    "import-qless": "qless/test_import.py",
    "pipeline report": "pipeline/test_cli.py",
    "pipeline job": "pipeline/test_cli.py",
    "pipeline audit": "pipeline/test_cli.py",
    "pipeline qless": "pipeline/test_qless.py",
    "pipeline stream": "pipeline/test_cli.py",
    "pipeline redrive": "pipeline/test_cli.py",
}
