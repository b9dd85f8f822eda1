"""`beanpole top`: the picture drawn from nodes' replies, and wrong options."""

import asyncio
import io
import json
import os

import pytest

from beanpole.pb import admin_pb2, live_pb2, node_pb2
from beanpoled.cli import main, top
from beanpoled.cli.columns import duration_words
from beanpoled.cli.top import QUEUES_DEFAULT
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.live import LiveServicer
from beanpoled.rpc.peer import PeerClient
from beanpoled.view import Lately, Quantiles, QueueFigures
from tests.unit.beanpoled.fakes import FakeView, trust_of

MAIL = QueueFigures("beanstalk", "mail", 5, buried=2, ready_s=75.0)
RESIZE = QueueFigures(
    "gearman", "resize", 1, lately=Lately(2.0, 3.0, 4.0, Quantiles(0.001, 0.01, 0.1, 50))
)


def run(view: FakeView, *words: str) -> int:
    """Run `beanpole top` against one fake node; the other members are down."""

    async def both() -> int:
        peers = PeerClient({"n1": "127.0.0.1:1", "n2": "127.0.0.1:1"}, trust_of())
        server = RpcServer(view, peers, trust_of(), [LiveServicer(view).add_to])
        port = await server.start("127.0.0.1:0")
        # The first node is down, so the next one is asked.
        at = f"127.0.0.1:1,127.0.0.1:{port}"
        done = await asyncio.to_thread(main, ["top", *words, "--addr", at])
        await peers.close()
        await server.stop(0)
        return done

    return asyncio.run(both())


def a_view() -> FakeView:
    view = FakeView()
    view.numbers.queues = [MAIL, RESIZE]
    # This queue is also among the largest, and is shown once.
    view.busy = [RESIZE, QueueFigures("workq", "ping")]
    return view


def test_what_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(a_view()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cluster dev, leader n1, term 3, 1 of 3 nodes answer"
    assert lines[2].split()[:2] == ["n0", "follower"]
    assert lines[3].endswith("not reachable")
    names = [line.split()[0] for line in lines[7:]]
    assert names == ["mail", "gearman:resize", "workq:ping"]
    assert lines[7].split()[1:6] == ["5", "0", "0", "2", "1.25m"]
    assert lines[8].split()[6:] == ["2.0", "3.0", "4.0", "1ms", "100ms", "-", "-"]


def test_sorted_and_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(a_view(), "--sort", "wait", "--queues", "1", "--once") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[7].split()[0] == "gearman:resize"
    assert lines[8] == "... 2 more; --queues shows them"


class Terminal(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


@pytest.mark.constants
def test_a_terminal_that_moves_no_cursor_gets_one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr(top, "_watch", lambda *_: terminal.write("\x1b[H"))
    for name, moves in (("dumb", False), ("xterm", True)):
        monkeypatch.setenv("TERM", name)
        assert run(a_view()) == 0
        assert ("\x1b" in terminal.getvalue()) == moves
    assert terminal.getvalue().startswith("cluster dev, leader n1")


def test_json_has_all_queues_that_the_node_tells(capsys: pytest.CaptureFixture[str]) -> None:
    view = a_view()
    view.numbers.queues = [MAIL._replace(name=f"mail{n}") for n in range(QUEUES_DEFAULT + 1)]
    for words, count in (((), QUEUES_DEFAULT + 3), (("--queues", "4"), 4)):
        assert run(view, "--json", *words) == 0
        assert len(json.loads(capsys.readouterr().out)["queues"]) == count


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(a_view(), "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["cluster"], shown["node"], shown["lately_s"]) == ("dev", "n0", 90.0)
    assert shown["all"]["puts_per_s"] == 9.0
    mail, resize, _ = shown["queues"]
    assert (mail["jobs"]["buried"], mail["ready_age_s"], mail["wait"]) == (2, 75.0, None)
    assert resize["wait"] == {"p50_s": 0.001, "p90_s": 0.01, "p99_s": 0.1, "count": 50}
    assert [node["reachable"] for node in shown["nodes"]] == [True, False, False]
    assert [node["state"] for node in shown["nodes"]] == ["serving", None, None]


@pytest.mark.parametrize("line", [["--interval", "0.1"], ["--queues", "-1"], ["--interval", "nan"]])
def test_wrong_options(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", *line, "--addr", "127.0.0.1:1"]) == 2
    assert f"{line[0]} = {line[1]} is not allowed: it must be 0" in capsys.readouterr().err


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--addr", "127.0.0.1:1"]) == 3
    assert "no node answers: 127.0.0.1:1: UNAVAILABLE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "drawn"),
    [
        (80, ["0123456789\x1b[K", "cafe\u0301\x1b[K", "\u4e2d\u6587\u5b57\x1b[K"]),
        (10, ["0123456789", "cafe\u0301\x1b[K", "\u4e2d\u6587\u5b57\x1b[K"]),
        (5, ["01234", "cafe\u0301\x1b[K", "\u4e2d\u6587\x1b[K"]),
        (4, ["0123", "cafe\u0301", "\u4e2d\u6587"]),
    ],
)
def test_a_picture_fits_its_terminal(
    columns: int, drawn: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["0123456789", "cafe\u0301", "\u4e2d\u6587\u5b57", "the row of the cursor", "more"]
    top.draw(lines, os.terminal_size((columns, 4)))
    assert capsys.readouterr().out == "\x1b[H" + "".join(f"{one}\n" for one in drawn) + "\x1b[J"


def look(commands: int, at_s: float) -> top.Look:
    its = node_pb2.Protocol(name="beanstalk", commands_total=commands)
    node = node_pb2.Node(id="a", reachable=True, protocols=[its])
    return top.Look(admin_pb2.StatusReply(nodes=[node]), live_pb2.LiveReply(node="a"), at_s)


def test_rates_of_nodes_are_between_two_looks() -> None:
    lines = top.picture(look(300, 12.0), look(100, 10.0), "jobs", None, None)
    assert lines[2].split()[4] == "100"
    # A restarted node counts from 0.
    assert top.picture(look(5, 12.0), look(100, 10.0), "jobs", None, None)[2].split()[4] == "-"
    assert lines[-1] == "a keeps no events, so it knows no rates, waits and runs"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0, "0us"), (0.0005, "500us"), (0.0123, "12.3ms"), (0.9996, "1s"), (59.94, "59.9s")),
        *((60, "1m"), (5999, "100m"), (7200, "2h"), (864_000, "10d"), (1e9, "1.16e+04d")),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words
