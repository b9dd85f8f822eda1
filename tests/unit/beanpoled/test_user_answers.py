"""`beanpole user` against the gRPC service: exit statuses, and what it prints; and rules."""

import asyncio
import io
import json

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.users import Rule, User, Users
from beanpole.events import BEANSTALK, GRPC
from beanpole.pb import users_pb2
from beanpoled.cli import main
from beanpoled.origin.opening import either_case
from beanpoled.rpc import user_shapes as shapes
from beanpoled.rpc.caller import read
from beanpoled.rpc.server import CallRefused
from tests.unit.beanpoled.test_users_rpc import ADMIN, PUT, ROOT, Guarded, bearer, digest, may, run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEANPOLE_TOKEN", ROOT)


async def status(it: Guarded, *words: str) -> int:
    line = ["user", *words, "--addr", f"127.0.0.1:{it.port}"]
    found = await it.ask(asyncio.to_thread(main, line))
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize(
    ("line", "wanted", "words"),
    [
        ("token nobody", 1, "there is no user 'nobody'"),
        ("token lee --drop zz", 1, "no token of 'lee' begins with 'zz'"),
        ("token nobody --drop zz", 1, "there is no user 'nobody'"),
        ("token lee --drop=", 2, "--drop '' is not allowed: it must be an id"),
        ("drop nobody", 1, "there is no user 'nobody'"),
        ("rules --set -", 1, "there is no user 'nobody'"),
        ("drop anonymous", 2, "without it, everybody may do everything"),
        ("drop root", 3, "nobody could change users any more"),
        ("drop root", 3, "any more: no user would have admin in all:* and a token; first give"),
        ("drop root", 3, "first give another user both: beanpole user set NAME --right all="),
    ],
)
def test_status_and_words(
    line: str, wanted: int, words: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("- - - nobody\n"))

    async def test(it: Guarded) -> None:
        it.lock()
        assert await status(it, *line.split()) == wanted
        told = capsys.readouterr()
        assert words in (told.out if wanted == 1 else told.err)
        assert b"anonymous" in it.stage.node.context.machine.users.rows

    run(test)


@pytest.mark.parametrize("line", ["token nobody", "token nobody --drop zz", "show nobody"])
def test_json_has_nothing_of_a_user_that_is_not_there(line: str, capsys: Capture) -> None:
    async def test(it: Guarded) -> None:
        it.lock()
        assert await status(it, *line.split(), "--json") == 1
        told = capsys.readouterr()
        assert (told.out, told.err) == ("", "there is no user 'nobody'\n")

    run(test)


def test_changes_print_json(capsys: Capture) -> None:
    async def test(it: Guarded) -> None:
        it.lock()
        line = "set lee --right put,work=mail* --jobs-max 9 --json"
        assert await status(it, *line.split()) == 0
        assert json.loads(capsys.readouterr().out) == {
            "name": "lee",
            "rights": [{"pattern": "mail*", "rights": ["put", "work"]}],
            "limits": {"jobs_max": 9, "bytes_max": 0, "commands_per_second_max": 0},
        }
        assert await status(it, "drop", "lee", "--json") == 0
        assert json.loads(capsys.readouterr().out) == {"dropped": "lee"}

    run(test)


def test_what_several_tokens_begin_with_is_refused(capsys: Capture) -> None:
    async def test(it: Guarded) -> None:
        it.lock()
        names = (str(number) for number in range(1000))
        others = [digest(name) for name in names if digest(name).hex().startswith("a")]
        it.apply(*((c.SET_TOKEN, 1, b"lee", other, 1) for other in others[:2]))
        assert await status(it, "token", "lee", "--drop", "a") == 2
        assert "tokens of 'lee' begin with 'a'" in capsys.readouterr().err

    run(test)


def test_a_token_is_drawn_and_dropped_in_json(capsys: Capture) -> None:
    async def test(it: Guarded) -> None:
        it.lock()
        assert await status(it, "token", "lee", "--json") == 0
        token = json.loads(capsys.readouterr().out)["token"]
        drop = digest(token).hex()[:8]
        assert await status(it, "token", "lee", "--drop", drop, "--json") == 0
        assert json.loads(capsys.readouterr().out) == {"user": "lee", "dropped": drop}

    run(test)


def test_who_drops_anonymous_on_purpose_is_told_what_that_means(capsys: Capture) -> None:
    async def test(it: Guarded) -> None:
        it.lock()
        assert await status(it, "drop", "anonymous", "--yes") == 0
        assert "from now on everybody may do everything" in capsys.readouterr().out
        assert await status(it, "drop", "anonymous", "--yes") == 1

    run(test)


def test_a_pattern_forges_no_line(capsys: Capture) -> None:
    async def test(it: Guarded) -> None:
        it.lock()
        pattern = b"\x02ev\x1b[31m\nroot: put=all"
        it.apply((c.SET_USER, 1, b"lee", msgpack.packb([(pattern, 1)]), 0, 0, 0))
        for line, count in (("list", 3), ("show lee", 3), ("whoami", 1)):
            assert await status(it, *line.split()) == 0
            told = capsys.readouterr().out
            assert "\x1b" not in told and len(told.splitlines()) == count
            assert line == "whoami" or r"gearman:ev\x1b[31m\nroot: put=all" in told

    run(test)


@pytest.mark.parametrize("text", ["q" * 201, "q" * 201 + "*", "a b"])
def test_the_refusal_of_a_tube_names_the_limit_of_tubes(text: str) -> None:
    with pytest.raises(CallRefused, match="is no name of a tube: 1 to 200 of A-Z") as refused:
        shapes.read_pattern(text, "x")
    assert "512" not in str(refused.value)
    assert shapes.read_pattern("q" * 200 + "*", "x") == b"q" * 200 + b"*"


def test_the_refusal_of_another_queue_names_the_limit_of_its_name() -> None:
    with pytest.raises(CallRefused, match="at most 512 bytes are behind the colon"):
        shapes.read_pattern("gearman:" + "q" * 513, "x")
    assert shapes.read_pattern("gearman:" + "q" * 512, "x")[1:] == b"q" * 512


# --- rules ----------------------------------------------------------------------------------------


def test_rules_do_not_lock_out_callers_without_a_token() -> None:
    """The only protection was of the rights of `anonymous`, whom such a rule replaces."""

    async def test(it: Guarded) -> None:
        users = it.users
        await it.ask(it.set_user("lee", "", may("mail", PUT)))
        for protocol, network in (("grpc", ""), ("", ""), ("", "127.0.0.0/8")):
            rule = users_pb2.Rule(protocol=protocol, network=network, user="lee")
            request = users_pb2.SetRulesRequest(rules=[rule])
            assert await it.reason(users.SetRules(request)) == "FAILED_PRECONDITION LOCKED_OUT"
        await it.ask(it.set_user("root", "", may("all:*", ADMIN)))
        await it.ask(users.AddToken(users_pb2.AddTokenRequest(user="root", digest=digest(ROOT))))
        await it.ask(users.SetRules(request))
        assert await it.reason(it.set_user("x", "")) == "PERMISSION_DENIED NO_RIGHT"
        root, token_id = bearer(ROOT), digest(ROOT).hex()[:8]
        last = users_pb2.DropTokenRequest(user="root", token_id=token_id)
        for call in (
            users.Drop(users_pb2.DropUserRequest(name="root"), metadata=root),
            users.DropToken(last, metadata=root),
            it.set_user("root", ROOT, may("all:*", PUT)),
        ):
            assert await it.reason(call) == "FAILED_PRECONDITION LOCKED_OUT"
        await it.ask(users.SetRules(users_pb2.SetRulesRequest(), metadata=root))
        await it.ask(users.DropToken(last, metadata=root))  # now all callers are anonymous

    run(test)


def rule(**fields: str) -> Rule:
    packed = shapes.read_rules([users_pb2.Rule(user="lee", **fields)])
    (row,) = msgpack.unpackb(packed)
    return Rule(*row)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:127.0.0.1", "127.0.0.1/32"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::/0", "::/0"),
        ("::1", "::1/128"),
        ("fe80::/10", "fe80::/10"),
    ],
)
def test_a_mapped_network_is_one_of_ipv4(given: str, stored: str) -> None:
    assert shapes.rule(rule(network=given)).network == stored


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("::/64", "give IPv4 networks for the mapped addresses in it, ::ffff:0:0/96"),
        ("::fffe:0:0/95", "give IPv4 networks for the mapped addresses in it"),
        ("fe80::1%lo", "a network has no zone"),
    ],
)
def test_a_network_that_no_client_could_be_in_is_refused(network: str, words: str) -> None:
    with pytest.raises(CallRefused, match="is no network such as") as refused:
        rule(network=network)
    assert words in str(refused.value) and refused.value.reason == "BAD_NETWORK"


@pytest.mark.parametrize("written", ["ci.example.org", "CI.Example.org"])
@pytest.mark.parametrize("shown", [b"ci.example.org", b"CI.EXAMPLE.ORG"])
def test_names_of_certificates_are_equal_in_either_case(written: str, shown: bytes) -> None:
    users = Users()
    users.change({b"lee": User(b"lee", (), ())})
    users.set_rules((rule(certificate=written),))
    assert users.by_rule(BEANSTALK, b"", either_case([b"other", shown])) == b"lee"
    assert users.by_rule(GRPC, b"", either_case([b"other"])) == b""
    caller = read(b"", [shown], ())
    assert caller.user(users) is users.rows[b"lee"]


def test_a_rule_from_before_still_fits() -> None:
    users = Users()
    users.set_rules((Rule(0, b"", b"CI.Example.org", b"lee"),))
    assert users.by_rule(BEANSTALK, b"", either_case([b"CI.Example.org"])) == b"lee"
