"""Small scripts in the form of each dialect: their declarations, without bodies.

The ways to read arguments with them are also here.
"""

from beanpole.protocol.qless import calls
from beanpole.protocol.qless.calls_dotted import CALLS as DOTTED_CALLS
from beanpole.protocol.qless.calls_unified import CALLS as UNIFIED_CALLS
from beanpole.protocol.qless.recognition import Script, recognise

THROTTLE_CALLS = {name for name in UNIFIED_CALLS if b"throttle" in name}
COMMON_CALLS = set(UNIFIED_CALLS) - THROTTLE_CALLS


def _declare(table: str, arguments: dict[str, str], names: set[bytes]) -> bytes:
    lines = ["-- nothing here runs", f"local {table} = {{}}", ""]
    for name in sorted(one.decode() for one in names):
        given = arguments.get(name, "now, jid, ...")
        if "." in name:
            lines.append(f"{table}['{name}'] = function({given})\nend\n")
        elif len(name) % 2:
            lines.append(f"function {table}.{name}({given})\nend\n")
        else:
            lines.append(f"{table}.{name} = function({given})\nend\n")
    return "\n".join(lines).encode()


def unified() -> bytes:
    """Return a script of qless-py 0.11.4."""
    arguments = {
        "put": "now, queue, jid, klass, data, delay, ...",
        "pop": "now, queue, worker, count",
        "peek": "now, queue, count",
    }
    return _declare("QlessAPI", arguments, COMMON_CALLS - {b"requeue"})


def core() -> bytes:
    """Return a script of qless-core."""
    arguments = {
        "put": "now, me, queue, jid, klass, data, delay, ...",
        "pop": "now, queue, worker, count",
        "peek": "now, queue, count",
    }
    return _declare("QlessAPI", arguments, COMMON_CALLS)


def throttles() -> bytes:
    """Return a script of reqless 0.13.3."""
    arguments = {
        "put": "now, me, queue, jid, klass, data, delay, ...",
        "pop": "now, queue, worker, count",
        "peek": "now, queue, offset, count",
    }
    return _declare("QlessAPI", arguments, COMMON_CALLS | THROTTLE_CALLS)


def dotted() -> bytes:
    """Return a script of reqless-core."""
    arguments = {
        "queue.put": "now, worker, queue, jid, klass, data, delay, ...",
        "queue.pop": "now, queue, worker, limit",
        "queue.peek": "now, queue, offset, limit",
        "job.get": "_now, jid",
    }
    return _declare("ReqlessAPI", arguments, set(DOTTED_CALLS))


# The places of the arguments that are looked at in scripts of the seed form.
SEED_PLACES = {
    "Cancel": {"jid": "ARGV[1]"},
    "Complete": {
        "jid": "ARGV[1]",
        "worker": "ARGV[2]",
        "queue": "ARGV[3]",
        "now": "ARGV[4]",
        "data": "ARGV[5]",
    },
    "Config": {},
    "Depends": {"jid": "ARGV[1]", "command": "ARGV[2]"},
    "Fail": {
        "jid": "ARGV[1]",
        "worker": "ARGV[2]",
        "group": "ARGV[3]",
        "message": "ARGV[4]",
        "now": "ARGV[5]",
    },
    "Failed": {"start": "ARGV[2]", "limit": "ARGV[3]"},
    "Get": {"jid": "ARGV[1]"},
    "Heartbeat": {"jid": "ARGV[1]", "worker": "ARGV[2]", "now": "ARGV[3]"},
    "Jobs": {},
    "Peek": {"queue": "KEYS[1]", "count": "ARGV[1]", "now": "ARGV[2]"},
    "Pop": {"queue": "KEYS[1]", "worker": "ARGV[1]", "count": "ARGV[2]", "now": "ARGV[3]"},
    "Priority": {"jid": "ARGV[1]", "priority": "ARGV[2]"},
    "Put": {
        "queue": "KEYS[1]",
        "jid": "ARGV[1]",
        "klass": "ARGV[2]",
        "data": "ARGV[3]",
        "now": "ARGV[4]",
        "delay": "ARGV[5]",
    },
    "Queues": {"now": "ARGV[1]"},
    "Recur": {},
    "Retry": {"jid": "ARGV[1]", "queue": "ARGV[2]", "worker": "ARGV[3]", "now": "ARGV[4]"},
    "Stats": {"queue": "ARGV[1]", "time": "ARGV[2]"},
    "Tag": {},
    "Track": {},
    "Unfail": {"now": "ARGV[1]", "group": "ARGV[2]", "queue": "ARGV[3]"},
    "Workers": {"now": "ARGV[1]"},
}


def seed(name: str, head: str = "") -> bytes:
    """Return a script of qless-py 0.9.4, which has one script for each call."""
    lines = [head, f"if #KEYS > 9 then error('{name}(): too many keys') end"]
    for argument, place in SEED_PLACES[name].items():
        value = f"tonumber({place})" if argument in ("now", "count", "delay", "time") else place
        if argument == "data":
            value = f"cjson.decode({place})"
        lines.append(f"local {argument:<8} = assert({value} , '{name}(): {argument} is missing')")
    lines.append("return redis.call('hget', 'ql:x', 'y')")
    return "\n".join(lines).encode()


def script(text: bytes) -> Script:
    """Recognise a script, which must succeed."""
    found = recognise(text)
    assert found is not None
    return found


UNIFIED_SCRIPT = script(unified())
CORE_SCRIPT = script(core())
THROTTLES_SCRIPT = script(throttles())
DOTTED_SCRIPT = script(dotted())


def seed_script(name: str) -> Script:
    """Return the script of one call of the seed form."""
    return script(seed(name))


Words = list[bytes]


def call(script: Script, *args: object, keys: Words | None = None) -> calls.Call:
    found = calls.read(script, keys or [], [_bytes(one) for one in args])
    assert isinstance(found, calls.Call), found
    return found


def refusal(script: Script, *args: object, keys: Words | None = None) -> bytes:
    """Return the message of an error, and check its form."""
    found = calls.read(script, keys or [], [_bytes(one) for one in args])
    assert isinstance(found, calls.Refusal), found
    end = b" script: " + script.sha + b", on @user_script:1."
    assert found.text.endswith(end)
    return found.text.removesuffix(end).removeprefix(b"user_script:1: ")


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
