"""Commands at several nodes: which refusals are final, and which send them to the next node."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import pytest

from beanpole.client.admin import Admin
from beanpole.client.rpc import ERROR_KEY
from beanpole.pb import (
    admin_pb2,
    admin_pb2_grpc,
    errors_pb2,
    live_pb2,
    live_pb2_grpc,
    node_admin_pb2_grpc,
    node_pb2,
    policies_pb2,
    policies_pb2_grpc,
    queue_pb2,
    queue_pb2_grpc,
)
from beanpoled.cli import exits, main, policy

Refusal = tuple[grpc.StatusCode, str]
FULL = grpc.StatusCode.RESOURCE_EXHAUSTED


class Queue(queue_pb2_grpc.QueueServicer):
    """A node that refuses every change, or has done what is asked."""

    def __init__(self, refusal: Refusal | None, words: str = "") -> None:
        self.refusal = refusal
        self.words = words
        self.asked = 0

    def SetAlias(self, request: queue_pb2.SetAliasRequest, context: Any) -> Any:
        """See `Queue` in queue.proto."""
        self.asked += 1
        refuse(context, self.refusal, self.words)
        return queue_pb2.SetAliasReply()


def refuse(context: Any, refusal: Refusal | None, words: str = "") -> None:
    if refusal is not None:
        code, reason = refusal
        detail = errors_pb2.ErrorDetail(reason=reason)
        context.set_trailing_metadata(((ERROR_KEY, detail.SerializeToString()),))
        context.abort(code, words or f"{reason} in words")


@contextmanager
def serving(*adds: Callable[[grpc.Server], None]) -> Iterator[str]:
    """Run a server for each service; yield their addresses, as --addr takes them."""
    servers = [grpc.server(ThreadPoolExecutor(2)) for _ in adds]
    found = []
    for server, add in zip(servers, adds, strict=True):
        add(server)
        found.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        server.start()
    try:
        yield ",".join(found)
    finally:
        for server in servers:
            server.stop(None).wait()


def on_aliases(*queues: Queue, words: Sequence[str] = ("set", "gearman:a", "b")) -> int:
    def adding(queue: Queue) -> Callable[[grpc.Server], None]:
        return lambda server: queue_pb2_grpc.add_QueueServicer_to_server(queue, server)

    with serving(*map(adding, queues)) as addresses:
        return main(["alias", *words, "--addr", addresses])


@pytest.mark.parametrize("queue", ["b", "caf\u00e9"])
def test_escapes_in_the_name_of_an_alias_do_not_reach_the_terminal(
    queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    alias, shown = "gearman:x\x1b[31m", "gearman:x\\x1b[31m"
    assert on_aliases(Queue(None), words=["set", alias, queue]) == 0
    assert on_aliases(Queue(None), words=["remove", alias]) == 0
    out = f"{shown} is {queue}\n{shown} is no alias any more\n"
    assert capsys.readouterr() == (out, "")
    absent = Queue((grpc.StatusCode.NOT_FOUND, "NO_ALIAS"), f"{alias} is no alias")
    assert on_aliases(absent, words=["remove", alias]) == exits.EXIT_NO
    assert capsys.readouterr() == (f"{shown} is no alias\n", "")
    refused = Queue((grpc.StatusCode.PERMISSION_DENIED, "NO_RIGHT"), f"not {alias}")
    assert on_aliases(refused, words=["remove", alias]) == exits.EXIT_NO_ANSWER
    assert capsys.readouterr() == ("", f"beanpole: not {shown}\n")


def test_escapes_in_the_name_of_a_queue_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, shown = "gearman:x\x1b[31m", "gearman:x\\x1b[31m"
    found = [policies_pb2.Policy(pattern="gearman:*", jobs_max=5)]
    monkeypatch.setattr(Admin, "ask", lambda *_: None)
    monkeypatch.setattr(policy, "_ask", lambda *_: policies_pb2.ListPoliciesReply(policies=found))
    assert main(["queue", "resume", queue, "--addr", "127.0.0.1:1"]) == 0
    assert main(["policy", "show", queue, "--addr", "127.0.0.1:1"]) == 0
    resumed, has, _ = capsys.readouterr().out.splitlines()
    assert (resumed, has) == (f"{shown} goes on", f"{shown} has the policy of gearman:*:")
    found.clear()
    assert main(["policy", "show", queue, "--addr", "127.0.0.1:1"]) == exits.EXIT_NO
    assert main(["policy", "drop", queue, "--addr", "127.0.0.1:1"]) == 0
    out = f"{shown} has no policy\n{shown} has no policy any more\n"
    assert capsys.readouterr().out == out


def has_no_node(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*words.split(), "--addr", "127.0.0.1:1"]) == exits.EXIT_NO_ANSWER
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        *("policy list", "policy show q", "alias list", "user list", "user show u"),
        *("user whoami", "user rules"),
    ],
)
def test_after_a_read_without_an_answer_there_is_nothing_to_look_at(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert has_no_node(words, capsys).startswith("beanpole: no answer: 127.0.0.1:1: UNAVAILABLE")


@pytest.mark.parametrize(
    ("words", "look"),
    [
        ("policy drop q", "policy list"),
        ("alias remove q", "alias list"),
        ("user token u", "user list"),
        ("user rules --set /dev/null", "user rules"),
    ],
)
def test_a_change_without_an_answer_names_where_to_look(
    words: str, look: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = has_no_node(words, capsys)
    assert told.startswith(f"beanpole: no answer, look at `beanpole {look}`: 127.0.0.1:1: ")


def test_a_lost_node_has_no_part_in_what_another_one_does_not_find(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A lost change may be the reason that another node finds nothing; a lost read is not."""

    class Policies(policies_pb2_grpc.PoliciesServicer):
        def __init__(self, code: grpc.StatusCode) -> None:
            self.code = code

        def List(self, request: Any, context: Any) -> Any:
            context.abort(self.code, "its words")

        Drop = List

    def adding(code: grpc.StatusCode) -> Callable[[grpc.Server], None]:
        return partial(policies_pb2_grpc.add_PoliciesServicer_to_server, Policies(code))

    codes = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND)
    with serving(*map(adding, codes)) as addresses:
        assert main(["policy", "drop", "q", "--addr", addresses]) == exits.EXIT_NO_ANSWER
        assert "a node that was lost may have done it" in capsys.readouterr().err
        assert main(["policy", "show", "q", "--addr", addresses]) == exits.EXIT_NO_ANSWER
        assert capsys.readouterr().err == "beanpole: its words\n"


@pytest.mark.parametrize("reason", ["TOO_MANY_CALLS", "OUTBOX_FULL", "TOO_MANY_CHECKS", "", "NEW"])
def test_another_node_is_asked_where_one_is_busy(reason: str) -> None:
    busy, free = Queue((FULL, reason)), Queue(None)
    assert on_aliases(busy, free) == 0
    assert (busy.asked, free.asked) == (1, 1)


@pytest.mark.parametrize(
    "reason",
    [
        *("TOO_MANY_USERS", "TOO_MANY_TOKENS", "TOO_MANY_POLICIES", "TOO_MANY_ALIASES"),
        "TOO_MANY_SESSIONS",
    ],
)
def test_a_limit_of_the_cluster_is_one_of_every_node(
    reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    full, other = Queue((FULL, reason)), Queue(None)
    assert on_aliases(full, other) == exits.EXIT_NO_ANSWER
    assert other.asked == 0
    assert capsys.readouterr().err == f"beanpole: {reason} in words\n"


def add_closed(server: grpc.Server) -> None:
    """Add a node that tells its members to all, and has no right for this caller."""

    class Admin(admin_pb2_grpc.AdminServicer):
        def Status(self, request: admin_pb2.StatusRequest, context: Any) -> admin_pb2.StatusReply:
            return admin_pb2.StatusReply(nodes=[node_pb2.Node(id=one) for one in ("n0", "n1")])

        def ListConnections(self, request: Any, context: Any) -> Any:
            refuse(context, (grpc.StatusCode.UNAUTHENTICATED, "UNKNOWN_TOKEN"))

        CloseConnection = ListConnections

    class NodeAdmin(node_admin_pb2_grpc.NodeAdminServicer):
        def ReadAudit(self, request: Any, context: Any) -> Any:
            refuse(context, (grpc.StatusCode.PERMISSION_DENIED, "NO_RIGHT"))

        Reload = ListSettings = ReadAudit

    class Live(live_pb2_grpc.LiveServicer):
        def Read(self, request: live_pb2.LiveRequest, context: Any) -> Any:
            refuse(context, (grpc.StatusCode.PERMISSION_DENIED, "NO_RIGHT"))

    live_pb2_grpc.add_LiveServicer_to_server(Live(), server)
    admin_pb2_grpc.add_AdminServicer_to_server(Admin(), server)
    node_admin_pb2_grpc.add_NodeAdminServicer_to_server(NodeAdmin(), server)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("node connections", "UNKNOWN_TOKEN"),
        ("node disconnect n0/1", "UNKNOWN_TOKEN"),
        ("node audit", "NO_RIGHT"),
        ("node reload --all", "NO_RIGHT"),
        ("node settings n0", "NO_RIGHT"),
    ],
)
def test_a_caller_without_the_right_is_refused(
    command: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was status 1, a node that does not answer, where the command asks each member."""
    with serving(add_closed, add_closed) as addresses:
        assert main([*command.split(), "--addr", addresses]) == exits.EXIT_NO_ANSWER
    first, _, _ = addresses.partition(",")
    assert capsys.readouterr() == ("", f"beanpole: {first}: {reason} in words\n")


@pytest.mark.parametrize("words", ["", "--once", "--json"])
def test_a_refused_top_says_only_why(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It said that no node answers, though one had."""
    with serving(add_closed, add_closed) as addresses:
        assert main(["top", *words.split(), "--addr", addresses]) == exits.EXIT_NO_ANSWER
    assert capsys.readouterr() == ("", "beanpole: NO_RIGHT in words\n")
