"""Commands of Redis that need no cluster: the replies are those of Redis 7.0.15."""

import pytest

from tests.unit.beanpoled.qless_scene import SCRIPT, Client, Scene, array
from tests.unit.node.stage import config

NO_PASSWORD = (
    b"-ERR AUTH <password> called without any password configured for the default user. "
    b"Are you sure your configuration is correct?\r\n"
)
BAD_NAME = b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
SHA = b"a" * 40


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


@pytest.fixture
def client(scene: Scene) -> Client:
    return scene.connect()


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (b"PING", b"+PONG\r\n"),
        (b"ping a", b"$1\r\na\r\n"),
        (b"PING a b", b"-ERR wrong number of arguments for 'ping' command\r\n"),
        (b"ECHO a", b"$1\r\na\r\n"),
        (b"ECHO", b"-ERR wrong number of arguments for 'echo' command\r\n"),
        (b"SELECT 0", b"+OK\r\n"),
        (b"SELECT 99", b"-ERR DB index is out of range\r\n"),
        (b"SELECT x", b"-ERR value is not an integer or out of range\r\n"),
        (b"RESET", b"+RESET\r\n"),
        (b"AUTH x", NO_PASSWORD),
        (b"AUTH default x", b"+OK\r\n"),
        (
            b"AUTH foo x",
            b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        ),
        (b"AUTH", b"-ERR wrong number of arguments for 'auth' command\r\n"),
        (b"AUTH a b c", b"-ERR syntax error\r\n"),
        (b"HELLO 4", b"-NOPROTO unsupported protocol version\r\n"),
        (b"HELLO x", b"-ERR Protocol version is not an integer or out of range\r\n"),
        (
            b"HELLO 3 AUTH foo x",
            b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        ),
        (b"HELLO 3 AUTH default", b"-ERR Syntax error in HELLO option 'AUTH'\r\n"),
        (b"HELLO 3 FOO", b"-ERR Syntax error in HELLO option 'FOO'\r\n"),
        (b"HELLO 3 SETNAME 'a b'", BAD_NAME),
        (b"CLIENT", b"-ERR wrong number of arguments for 'client' command\r\n"),
        (b"CLIENT FOO", b"-ERR unknown subcommand 'FOO'. Try CLIENT HELP.\r\n"),
        (b"CLIENT ID x", b"-ERR wrong number of arguments for 'client|id' command\r\n"),
        (b"CLIENT GETNAME", b"$-1\r\n"),
        (b"CLIENT SETNAME 'a b'", BAD_NAME),
        (b"CLIENT SETINFO LIB-NAME redis-py", b"+OK\r\n"),
        (b"CLIENT SETINFO LIB-FOO x", b"-ERR Unrecognized option 'LIB-FOO'\r\n"),
        (b"CLIENT NO-EVICT ON", b"+OK\r\n"),
        (b"CLIENT NO-EVICT x", b"-ERR syntax error\r\n"),
        (
            b"CLIENT MAINT_NOTIFICATIONS ON",
            b"-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.\r\n",
        ),
        (b"COMMAND DOCS", b"*0\r\n"),
        (b"COMMAND INFO foo", b"*1\r\n$-1\r\n"),
        (b"COMMAND", b"*0\r\n"),
        (b"CONFIG GET foo", b"*0\r\n"),
        (b"CONFIG GET", b"-ERR wrong number of arguments for 'config|get' command\r\n"),
        (b"CONFIG FOO", b"-ERR unknown subcommand 'FOO'. Try CONFIG HELP.\r\n"),
        (b"SCRIPT FLUSH foo", b"-ERR SCRIPT FLUSH only support SYNC|ASYNC option\r\n"),
        (b"SCRIPT EXISTS a b", b"*2\r\n:0\r\n:0\r\n"),
        (b"EVALSHA a x", NOSCRIPT),
        (b"EVALSHA a -1", NOSCRIPT),
        (b"EVALSHA %b 0" % SHA, NOSCRIPT),
        (b"EVALSHA %b 0 x" % SHA, NOSCRIPT),
        (b"EVALSHA %b 1" % SHA, b"-ERR Number of keys can't be greater than number of args\r\n"),
        (b"EVALSHA %b -1" % SHA, b"-ERR Number of keys can't be negative\r\n"),
        (
            b"EVALSHA %b 99999999999999999999" % SHA,
            b"-ERR value is not an integer or out of range\r\n",
        ),
        (b"EVALSHA", b"-ERR wrong number of arguments for 'evalsha' command\r\n"),
        (b"SUBSCRIBE", b"-ERR wrong number of arguments for 'subscribe' command\r\n"),
        (b"UNSUBSCRIBE", b"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"),
        (b"UNSUBSCRIBE q", b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nq\r\n:0\r\n"),
        (b"nope", b"-ERR unknown command 'nope', with args beginning with: \r\n"),
        (b"nope a b", b"-ERR unknown command 'nope', with args beginning with: 'a' 'b' \r\n"),
        (b"n" * 300, b"-ERR unknown command '%b', with args beginning with: \r\n" % (b"n" * 128)),
        (
            b"nope %b y z" % (b"x" * 200),
            b"-ERR unknown command 'nope', with args beginning with: '%b' \r\n" % (b"x" * 128),
        ),
        (
            b"nope " + b"abcdefghij " * 20,
            b"-ERR unknown command 'nope', with args beginning with: %b\r\n"
            % (b"'abcdefghij' " * 10),
        ),
        (
            b'"no\\r\\npe" "\\na"',
            b"-ERR unknown command 'no  pe', with args beginning with: ' a' \r\n",
        ),
    ],
)
def test_replies_of_redis(client: Client, line: bytes, reply: bytes) -> None:
    assert client.ask(line + b"\r\n") == reply


def test_quit_is_the_end(client: Client) -> None:
    assert client.send(b"QUIT\r\nPING\r\n") == b"+OK\r\n"
    assert client.port.closed


def test_what_is_no_request_is_the_end(client: Client) -> None:
    said = client.send(b"PING\r\n*1\r\nfoo\r\nPING\r\n")
    assert said == b"+PONG\r\n-ERR Protocol error: expected '$', got 'f'\r\n"
    assert client.port.closed


@pytest.mark.parametrize("line", [b"POST / HTTP/1.1", b"Host: localhost"])
def test_a_page_of_a_browser_is_the_end(client: Client, line: bytes) -> None:
    """Its body would be read as commands; Redis also ends the connection."""
    assert client.send(line + b"\r\nFLUSHALL\r\n") == b""
    assert client.port.closed


def test_hello_changes_the_version(client: Client) -> None:
    number = client.send(b"CLIENT ID\r\n")[1:]
    facts = (
        b"$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:%d\r\n"
        b"$2\r\nid\r\n:%b$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"
        b"$7\r\nmodules\r\n*0\r\n"
    )
    assert client.send(b"HELLO\r\n") == b"*14\r\n" + facts % (2, number)
    third = client.send(b"HELLO 3 AUTH default x SETNAME me\r\nCLIENT GETNAME\r\nCONFIG GET a\r\n")
    assert third == b"%7\r\n" + facts % (3, number) + b"$2\r\nme\r\n%0\r\n"
    assert client.send(b"HELLO\r\n") == b"%7\r\n" + facts % (3, number)
    assert client.send(b"RESET\r\nCLIENT GETNAME\r\n") == b"+RESET\r\n$-1\r\n"
    assert client.send(b"HELLO 2\r\n") == b"*14\r\n" + facts % (2, number)


def test_a_name(client: Client) -> None:
    assert client.send(b"CLIENT SETNAME a\r\nCLIENT GETNAME\r\n") == b"+OK\r\n$1\r\na\r\n"
    assert b" name=a " in client.send(b"CLIENT INFO\r\n")
    assert client.send(b"CLIENT SETNAME ''\r\nCLIENT GETNAME\r\n") == b"+OK\r\n$-1\r\n"


def test_info_has_what_libraries_read(client: Client) -> None:
    said = client.send(b"INFO\r\n")
    for line in (b"# Server", b"redis_version:7.0.15", b"role:master", b"loading:0"):
        assert b"\r\n%b\r\n" % line in said
    only = client.send(b"INFO replication\r\n")
    assert only == b"$48\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n"
    assert client.send(b"INFO nothing\r\n") == b"$0\r\n\r\n"


def test_time_is_the_nodes_wall_clock(client: Client) -> None:
    client.scene.host.walls_us = 1_700_000_000_000_042
    assert client.send(b"TIME\r\n") == b"*2\r\n$10\r\n1700000000\r\n$2\r\n42\r\n"


def test_scripts_are_known_until_they_are_flushed(client: Client) -> None:
    sha = client.scene.sha
    asked = array(b"SCRIPT", b"EXISTS", sha, sha.upper(), SHA)
    assert client.send(asked) == b"*3\r\n:1\r\n:1\r\n:0\r\n"
    assert client.send(b"SCRIPT FLUSH async\r\n") == b"+OK\r\n"
    assert client.send(asked) == b"*3\r\n:0\r\n:0\r\n:0\r\n"
    assert client.send(array(b"SCRIPT", b"LOAD", SCRIPT)) == b"$40\r\n%b\r\n" % sha
    unknown = client.send(array(b"SCRIPT", b"LOAD", b"return 1"))
    assert unknown.startswith(b"-ERR unsupported script")
    assert client.send(array(b"EVAL", b"return 1", b"0")) == unknown


def test_nobody_but_the_cluster_publishes(client: Client) -> None:
    said = client.send(b"PUBLISH ql:log x\r\n")
    assert said == b"-ERR only the cluster publishes: nobody was told\r\n"


def test_the_uptime_is_no_difference_of_wall_clocks() -> None:
    """A machine may start in 1970, and set its clock later."""
    scene = Scene()
    client = scene.connect()
    scene.host.us += 90_000_000
    scene.host.walls_us += 10**15
    assert b"\r\nuptime_in_seconds:90\r\n" in client.send(b"INFO\r\n")


def test_flush_is_off_unless_it_is_configured(client: Client) -> None:
    for line in (b"FLUSHDB\r\n", b"FLUSHALL SYNC\r\n"):
        assert b"qless_flush is off" in client.send(line)
    assert client.send(b"FLUSHDB foo\r\n") == b"-ERR syntax error\r\n"
    assert config().qless_flush == "off"


def test_one_client_too_many() -> None:
    scene = Scene(connections_max=1)
    late = scene.connect()
    assert late.send(b"PING\r\nPING\r\n") == b"-ERR max number of clients reached\r\n"
    assert late.port.closed


def test_what_was_asked_is_counted() -> None:
    scene = Scene()
    scene.connect().send(b"PING\r\nCLIENT ID\r\nPING\r\nnope\r\n")
    counters = scene.node.frontends["qless"].counters()
    found = {name: count for name, count in counters.items() if count}
    assert found == {"ping": 2, "client id": 1, "script load": 1}
