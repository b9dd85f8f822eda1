"""The commands about a cluster and its nodes; those about jobs are in `test_job_commands`."""

import asyncio
import json
from pathlib import Path

import pytest

from beanpole.pb import jobs_pb2
from beanpoled.cli import cluster, job, layout, main, parser
from beanpoled.rpc import admin
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.peer import PeerClient
from beanpoled.view import ClientFigures, ConnectionFigures, SpaceFigures
from tests.unit.beanpoled.fakes import FakeView, trust_of


def status(view: FakeView, *line: str) -> int:
    """Run `beanpole status` against one fake node; the other members are down."""
    return command(view, "status", *line)


def command(view: FakeView, *words: str) -> int:
    """Run a command against one fake node; the other members are down."""

    async def run() -> int:
        peers = PeerClient({"n1": "127.0.0.1:1", "n2": "127.0.0.1:1"}, trust_of())
        server = RpcServer(view, peers, trust_of())
        port = await server.start("127.0.0.1:0")
        done = await asyncio.to_thread(main, [*words, "--addr", f"127.0.0.1:{port}"])
        await peers.close()
        await server.stop(0)
        return done

    return asyncio.run(run())


def test_status_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(FakeView(), "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["cluster"], shown["leader"], shown["term"]) == ("dev", "n1", 3)
    assert [node["id"] for node in shown["nodes"]] == ["n0", "n1", "n2"]
    first, second, _ = shown["nodes"]
    assert (first["role"], first["reachable"]) == ("follower", True)
    assert (first["commit_index"], first["applied_index"]) == (9, 8)
    assert first["jobs"] == {"ready": 1, "reserved": 2, "delayed": 3, "buried": 4}
    versions = (first["version"], first["machine_version"], first["machine_version_known"])
    assert versions == ("0.1.0", 2, 3)
    assert first["upgrade_finalize"] == "auto"
    assert second == {"id": "n1", "role": "unknown", "reachable": False}


def test_status_shows_each_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    """Clients are those of all nodes, jobs those of the cluster."""
    view = FakeView(members=("n0",))
    view.numbers.clients = {
        "beanstalk": ClientFigures(4, 9, 1, 2, {"put": 3, "use": 4}),
        "gearman": ClientFigures(1, 1),
    }
    view.numbers.spaces = {
        "beanstalk": SpaceFigures(1, 2, 3, 4, 0, 5, 60, 7, 0),
        "workq": SpaceFigures(kept=8, queues=2),
        "gearman": SpaceFigures(reserved=1, queues=1),
    }
    assert status(view) == 0
    table = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[-4:]]
    titles, *lines = table
    clients, jobs = "connections waiting commands", "ready reserved delayed buried kept"
    assert titles == f"protocol {clients} queues {jobs}"
    assert lines == [
        "beanstalk 4 2 7 5 1 2 3 4 0",
        "gearman 1 0 0 1 0 1 0 0 0",
        "workq 0 0 0 2 0 0 0 0 8",
    ]
    assert status(view, "--json") == 0
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert list(node["protocols"]) == ["beanstalk", "gearman", "workq"]
    assert node["protocols"]["beanstalk"] == {
        "connections": 4,
        "connections_total": 9,
        "waiting": 2,
        "commands_total": 7,
        "jobs": {"ready": 1, "reserved": 2, "delayed": 3, "buried": 4, "kept": 0},
        "queues": 5,
    }


def test_status_shows_the_life_of_the_cluster_and_the_members_a_node_waits_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = FakeView(members=("n0",))
    assert status(view) == 0
    assert "cluster dev, birth 89abcdef, leader" in capsys.readouterr().out
    view.birth, view.absent = "", ("n1", "n2")
    assert status(view) == 0
    shown = capsys.readouterr().out
    assert "birth none" in shown and "waiting for n1, n2 to found the cluster" in shown
    assert status(view, "--json") == 0
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["birth"], node["waiting_for"]) == (None, ["n1", "n2"])


def test_status_without_a_leader(capsys: pytest.CaptureFixture[str]) -> None:
    view = FakeView()
    view.leader = None
    view.serving = False
    view.state, view.awaited = "cut off", "waiting for a majority: n1 refused"
    view.draining = True
    view.durability = "memory"
    assert status(view) == 0
    shown = capsys.readouterr().out
    assert "leader none" in shown
    assert "cut off, waiting for a majority: n1 refused, draining, durability memory" in shown
    assert "not reachable" in shown
    assert status(view, "--json") == 0
    assert json.loads(capsys.readouterr().out)["leader"] is None


def test_status_shows_the_versions(capsys: pytest.CaptureFixture[str]) -> None:
    """During an upgrade: each node's version, the cluster's, and the possible one."""
    view = FakeView()
    assert status(view) == 0
    titles, line = capsys.readouterr().out.splitlines()[1:3]
    assert "version  machine" in titles
    assert "0.1.0    2 (knows 3)" in line
    view.machine_version = 3
    assert status(view) == 0
    assert "0.1.0    3  " in capsys.readouterr().out


def test_status_says_when_an_operator_may_end_an_upgrade(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def last_line() -> str:
        assert status(view) == 0
        return capsys.readouterr().out.splitlines()[-1]

    view = FakeView(members=("n0",))
    view.role = "leader"
    assert "finalize" not in last_line(), "the leader does it by itself"
    view.upgrade_finalize = "manual"
    assert last_line().startswith("every node knows machine version 3: `beanpole cluster finalize`")
    view.members = ("n0", "n1")
    assert "finalize" not in last_line(), "one is away"
    view.members = ("n0",)
    view.machine_version = 3
    assert "finalize" not in last_line(), "it is done"


def test_finalize(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "FINALIZE_PATIENCE_S", 0.0)
    view = FakeView()
    view.role = "leader"
    assert command(view, "cluster", "finalize") == 0
    assert command(view, "cluster", "finalize", "--to", "3") == 0
    assert capsys.readouterr().out == "the cluster works at machine version 3\n" * 2
    assert command(view, "cluster", "finalize", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"machine_version": 3}
    view.finalize_refusal = "n2 is away"
    view.machine_version = 2
    assert command(view, "cluster", "finalize") == 3
    words = "FAILED_PRECONDITION: nothing is raised to machine version 3: n2 is away"
    assert words in capsys.readouterr().err
    assert command(view, "cluster", "finalize", "--to", "256") == 2
    assert "--to = 256 is not allowed: it must be 1 to 255" in capsys.readouterr().err
    # A variable that is 0 is no wish for the newest one: it cannot be undone.
    assert command(view, "cluster", "finalize", "--to", "0") == 2
    assert "--to = 0 is not allowed: it must be 1 to 255" in capsys.readouterr().err


def test_members_are_all_there_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    view = FakeView(members=("n0",))
    assert command(view, "cluster", "members") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["node", "role", "version", "state"], ["n0", "follower", "0.1.0", "serving"]]
    assert command(FakeView(members=("n0", "n1")), "cluster", "members", "--json") == 1
    first, second = json.loads(capsys.readouterr().out)
    assert (first["id"], first["reachable"], first["role"]) == ("n0", True, "follower")
    assert (first["version"], first["state"], first["serving"]) == ("0.1.0", "serving", True)
    assert (second["id"], second["reachable"], second["state"]) == ("n1", False, None)
    view.serving, view.state = False, "starting"
    assert command(view, "cluster", "members") == 1
    assert not capsys.readouterr().err
    # JSON has what the table says of a node.
    view.awaited, view.draining, view.durability = "waiting for a majority", True, "memory"
    assert command(view, "cluster", "members", "--json") == 1
    (node,) = json.loads(capsys.readouterr().out)
    told = (node["waits"], node["draining"], node["durability"])
    assert told == ("waiting for a majority", True, "memory")


def test_the_leader_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(FakeView(), "cluster", "leader") == 0
    assert command(FakeView(), "cluster", "leader", "--json") == 0
    assert capsys.readouterr().out == 'n1\n{"leader": "n1"}\n'
    electing = FakeView()
    electing.leader = None
    assert command(electing, "cluster", "leader") == 1
    assert command(electing, "cluster", "leader", "--json") == 1
    assert capsys.readouterr().out == 'there is no leader now\n{"leader": null}\n'


def leading(to: str | None) -> FakeView:
    view = FakeView()
    view.role, view.leader, view.transfer_to = "leader", "n0", to
    return view


def test_leadership_is_handed_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = leading("n2")
    assert command(view, "cluster", "leader", "--transfer") == 0
    assert view.transfers == [None, None]
    assert command(leading("n2"), "cluster", "leader", "--transfer", "n2", "--json") == 0
    assert capsys.readouterr().out == 'n2\n{"leader": "n2"}\n'

    assert command(leading("n1"), "cluster", "leader", "--transfer", "n2") == 1
    assert "n1 leads, not n2: ask again" in capsys.readouterr().err

    # Only now: the others are to succeed, however slow the machine is.
    monkeypatch.setattr(admin, "TRANSFER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(cluster, "LEADER_PATIENCE_S", 0.1)
    assert command(leading(None), "cluster", "leader", "--transfer", "n2") == 3
    words = "leadership stayed at n0: n2 does not answer or is not far enough"
    assert words in capsys.readouterr().err
    assert command(leading(None), "cluster", "leader", "--transfer") == 3
    words = "leadership stayed at n0: no other member answers and is far enough"
    assert words in capsys.readouterr().err
    assert command(leading(None), "cluster", "leader", "--transfer", "n9") == 2
    assert "to = 'n9' is not one of the members: n0, n1, n2" in capsys.readouterr().err
    assert command(FakeView(), "cluster", "leader", "--transfer") == 3
    assert "no leader answers" in capsys.readouterr().err, "the leader is down"


def test_connections_come_in_pages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "CONNECTIONS_MAX", 2)
    view = FakeView(members=("n0",))
    assert command(view, "node", "connections") == 0
    assert capsys.readouterr().out == "no connections\n"
    watched = ["a", "b", "c"]
    view.clients = [
        ConnectionFigures(1, "beanstalk", "10.0.0.7", 61.0, True, "a", watched, 9, [5, 6], 2),
        *(ConnectionFigures(number, "qless", "", 0.5, False) for number in (2, 3, 5)),
    ]
    assert command(view, "node", "connections") == 0
    _, *lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert " ".join(lines[0]) == "n0/1 beanstalk 10.0.0.7 1.02m yes 2 a a, b, c and 6 more"
    assert lines[3] == ["n0/5", "qless", "-", "500ms", "-", "0", "-", "-"]
    assert command(view, "node", "disconnect", "n0/3") == 0
    assert command(view, "node", "disconnect", "n0/3") == 1
    assert capsys.readouterr().out == "closed n0/3\nn0 has no connection 3\n"
    assert command(view, "node", "disconnect", "n0/5", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"closed": "n0/5"}
    assert command(view, "node", "disconnect", "n0/5", "--json") == 1
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "n0 has no connection 5\n")
    assert command(view, "node", "connections", "--json", "--node", "n0") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["connection"] for one in found] == ["n0/1", "n0/2"]
    assert (found[0]["jobs_held"], found[0]["queues_watched_total"]) == ([5, 6], 9)


def test_connections_of_a_node_that_is_down_or_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(FakeView(), "node", "connections", "--node", "n2") == 1
    assert "no answer of n2: " in capsys.readouterr().err
    assert command(FakeView(), "node", "connections", "--node", "n9") == 2
    assert "node = 'n9' is not one of the members: n0, n1, n2" in capsys.readouterr().err
    for wrong in ("3", "n0/", "/3", "n0/x", "n0/-1"):
        assert command(FakeView(), "node", "disconnect", wrong) == 2
        assert f"{wrong!r} is no connection: it must be NODE/ID" in capsys.readouterr().err


def test_a_reload_of_no_node_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "reload", "", "--addr", "127.0.0.1:1"]) == 2
    assert "NODE is empty; give a member, or --all" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        ["node", "connections", "--node", ""],
        ["node", "audit", "--node", ""],
        ["node", "settings", ""],
    ],
)
def test_an_empty_member_does_not_mean_any(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As that of a variable that is not set."""
    with pytest.raises(SystemExit) as ended:
        main([*line, "--addr", "127.0.0.1:1"])
    assert ended.value.code == 2
    assert "NODE is empty" in capsys.readouterr().err


def test_leadership_is_not_handed_over_to_an_empty_member(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["cluster", "leader", "--transfer", "", "--addr", "127.0.0.1:1"]) == 2
    assert "--transfer: NODE is empty" in capsys.readouterr().err


def test_a_job_that_is_given_twice_is_changed_once() -> None:
    words = ["job", "delete", "7", "8", "7"]
    arguments = parser().parse_args(words)
    assert list(job._request(arguments, jobs_pb2.JOB_ACTION_DELETE).job_ids) == [7, 8]


def test_finalize_of_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "LEADER_PATIENCE_S", 0.1)
    layout.write_cluster(tmp_path, layout.plan(tmp_path, 2, 1), {"n0": 1, "n1": 1})
    assert main(["cluster", "finalize", "--dir", str(tmp_path)]) == 3
    shown = capsys.readouterr().err
    assert "no leader answers, look at `beanpole status`: 127.0.0.1:21: UNAVAILABLE" in shown
    assert "127.0.0.1:22: UNAVAILABLE" in shown


def test_status_of_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout.write_cluster(tmp_path, layout.plan(tmp_path, 1, 1), {"n0": 1})
    assert main(["status", "--dir", str(tmp_path)]) == 3
    assert "no node answers: 127.0.0.1:21: UNAVAILABLE" in capsys.readouterr().err
    assert main(["status", "--addr", "nowhere"]) == 2
    assert "--addr = 'nowhere' is not allowed" in capsys.readouterr().err
