"""Scripts of qless calls: what clients of each dialect send, and what Redis answers.

A script is a text file whose name begins with its dialect; one step is one line:

    > NAME ARGUMENT...          calls the dialect's one script, or (seed) the script of that name
    > NAME KEY -- ARGUMENT...   the same with keys, which only the seed's scripts have
    < KIND REPLY                the reply: `text`, `int`, `nil`, `json` (a string of JSON),
                                `list` (of strings), `jsons` (of strings of JSON), `error`
    ~ NAME KIND REPLY           Beanpole's reply in place of that of the step above; the reason is
                                under that name in docs/protocols/qless.md
    ! CHANNEL KIND MESSAGE      all messages published by the script, in order, at the end

Words are as in a shell. JSON is compared as JSON, an error by its message without the script's hash
and line. Arrays that Redis keeps in no order (`UNORDERED`) are sorted, and a histogram has its
bins that are not 0. The programs of qless are not here: a build is loaded as the signatures by
which a server recognizes it (tests/scripts/qless/builds), or as the text that `Build` has been
given.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.integration.support.raw import Address
from tests.integration.support.resp import Failure, Reply, Resp, evaluate
from tests.integration.support.scripts import FOLDER

SCRIPTS: Final = sorted((FOLDER / "qless").glob("*.txt"))
BUILDS: Final = FOLDER / "qless" / "builds"
PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "protocols" / "qless.md"
SEED: Final = "seed"
KEYS_END: Final = "--"
# Sets of Redis, in the order of a hash table.
UNORDERED: Final = frozenset({"dependencies", "dependents"})
BINS: Final = 148

_ERROR: Final = re.compile(r"ERR user_script:\d+: (.*) script: [0-9a-f]{40}, on @user_script:\d+\.")
_TABLE: Final = re.compile(r"table: 0x[0-9a-f]+")

# The texts of a build: one under the name of its dialect, or one for each call of the seed.
Build = Mapping[str, str]


class Step(NamedTuple):
    """One call, its reply, and the deviation that is noted below it."""

    line: str
    reply: str
    deviation: str = ""
    ours: str = ""


class Script(NamedTuple):
    """A whole script: its steps, and the messages published meanwhile."""

    dialect: str
    steps: tuple[Step, ...]
    messages: tuple[str, ...]


def read_script(path: Path) -> Script:
    """Read a script."""
    steps: list[Step] = []
    messages: list[str] = []
    for line in path.read_text().splitlines():
        kind, _, rest = line.partition(" ")
        if kind == ">":
            steps.append(Step(rest, ""))
        elif kind == "<":
            steps[-1] = Step(steps[-1].line, canonical(rest))
        elif kind == "~":
            name, _, ours = rest.partition(" ")
            steps[-1] = steps[-1]._replace(deviation=name, ours=canonical(ours))
        elif kind == "!":
            channel, _, message = rest.partition(" ")
            messages.append(f"{channel} {canonical(message)}")
        else:
            assert not line or kind == "#", line
    return Script(path.stem.partition("-")[0], tuple(steps), tuple(messages))


def write_replies(path: Path, replies: Sequence[str], messages: Sequence[str]) -> None:
    """Rewrite a script with the given replies, one for each step, and messages."""
    rest = iter(replies)
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if line[:2] not in ("< ", "! "):
            lines.append(line)
        if line.startswith("> "):
            lines.append(f"< {next(rest)}")
    path.write_text("\n".join([*lines, *(f"! {message}" for message in messages)]) + "\n")


def stand_in(dialect: str) -> Build:
    """Return the signatures of a dialect: the part of its build that a server examines."""
    folder = BUILDS / dialect
    paths = folder.glob("*.lua") if dialect == SEED else [folder.with_suffix(".lua")]
    return {path.stem: path.read_text() for path in paths}


class Player:
    """Plays a script at one address, and subscribes at another."""

    def __init__(self, address: Address, listening: Address, dialect: str, build: Build) -> None:
        self._single = dialect != SEED
        self._dialect = dialect
        self._client = Resp(address)
        self._listener = Resp(listening)
        self._shas = {
            name: self._client.text("SCRIPT", "LOAD", text) for name, text in build.items()
        }
        self._listener.ask("PSUBSCRIBE", "ql:*")

    def play(self, step: Step) -> str:
        """Do one step and return the description of its reply."""
        words = shlex.split(step.line)
        if self._single:
            return describe(evaluate(self._client, self._shas[self._dialect], [], words))
        name, *rest = words
        end = rest.index(KEYS_END) if KEYS_END in rest else -1
        return describe(
            evaluate(self._client, self._shas[name], rest[: max(end, 0)], rest[end + 1 :])
        )

    def messages(self, count: int) -> list[str]:
        """Return at least `count` published messages, and those until the next reply."""
        found: list[str] = []
        while len(found) < count:
            found.append(_message(self._listener.read()))
        self._listener.send("PUNSUBSCRIBE", "ql:*")
        while (reply := self._listener.read()) != [b"punsubscribe", b"ql:*", 0]:
            found.append(_message(reply))
        return found

    def close(self) -> None:
        """Clear the server, and close the connections."""
        self._client.ask("FLUSHDB")
        self._client.close()
        self._listener.close()


def _message(reply: Reply) -> str:
    assert isinstance(reply, list), reply
    kind, _, channel, data = reply
    assert kind == b"pmessage" and isinstance(channel, bytes), reply
    return f"{channel.decode()} {describe(data)}"


def describe(reply: Reply) -> str:
    """Describe a reply in one line; replies that clients treat alike are equal."""
    if reply is None:
        return "nil"
    if isinstance(reply, int):
        return f"int {reply}"
    if isinstance(reply, Failure):
        found = _ERROR.fullmatch(reply.text)
        return f"error {_TABLE.sub('table', found[1]) if found else reply.text}"
    if isinstance(reply, list):
        texts = [_text(item) for item in reply]
        if texts and all(text.startswith("{") for text in texts):
            return f"jsons {_dump([json.loads(text) for text in texts])}"
        return f"list {_dump(texts)}"
    text = _text(reply)
    return f"json {_dump(json.loads(text))}" if text[:1] in ("{", "[") else f"text {text}"


def canonical(line: str) -> str:
    """Return the reply of a script in the form of `describe`."""
    kind, _, text = line.partition(" ")
    if kind in ("json", "jsons", "list"):
        return f"{kind} {_dump(json.loads(text))}"
    return line


def _text(reply: Reply) -> str:
    assert isinstance(reply, bytes | str), reply
    return reply if isinstance(reply, str) else reply.decode()


def _dump(value: Any) -> str:
    return json.dumps(_sorted(value), sort_keys=True, separators=(",", ":"))


def _sorted(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _sorted(item, name) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    if key == "histogram":
        assert len(value) == BINS, value
        return {str(place): count for place, count in enumerate(value) if count}
    return sorted(value) if key in UNORDERED else [_sorted(item) for item in value]
