"""Scripts of the Workq protocol: bytes that clients send, and the answers of Workq 0.2.0.

A script is a text file; one step is one line:

    A > BYTES           client A (connected when first named, or after an end) sends them
    A < BYTES           A receives exactly these; (end): its connection is closed
    ~ NAME BYTES        what Beanpole answers in place of the step above; the reason is under that
                        name in docs/protocols/workq.md
    until A BYTES ~ PART    A repeats a command until its reply has the part

Backslash escapes are Python's, `{text*20}` repeats text, `#` begins a comment. `{1}` is an id of
this run, also as `{1:plain}`, `{1:urn}`, `{1:upper}`; `{now+3}` is a time; `{time}` in a reply is
any time. The real server is a Go program without a package, so its replies were written down once.
"""

import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from tests.integration.support.raw import Address, connect
from tests.integration.support.scripts import FOLDER, escape, unescape
from tests.integration.support.waiting import wait_until

SCRIPTS: Final = sorted((FOLDER / "workq").glob("*.txt"))
PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "protocols" / "workq.md"
TIMEOUT_S: Final = 60.0
END: Final = b"(end)"
# The reply of this command is one line, so anything before it was left over by the script.
LAST: Final = b"inspect\r\n"
LAST_REPLY: Final = b"-CLIENT-ERROR Invalid command args\r\n"

_TIME: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_ANY_TIME: Final = b"0000-00-00T00:00:00Z"
_STEP: Final = re.compile(r"([A-Z]) ([<>]) (.*)")
_UNTIL: Final = re.compile(r"until ([A-Z]) (.+) ~ (.+)")
_ID: Final = re.compile(r"\{(\d+)(?::(plain|urn|upper))?\}")
_NOW: Final = re.compile(r"\{now([+-]\d+)\}")


class Step(NamedTuple):
    """One line of a script, and the deviation that is noted below it."""

    line: str
    deviation: str = ""
    reply: str = ""


def read_script(path: Path) -> list[Step]:
    """Read the steps of a script."""
    steps: list[Step] = []
    for line in path.read_text().splitlines():
        if line.startswith("~ "):
            _, name, reply = line.split(" ", 2)
            steps[-1] = Step(steps[-1].line, name, reply)
        elif line and not line.startswith("#"):
            steps.append(Step(line))
    return steps


class Player:
    """Plays a script; its clients are spread over the addresses."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = addresses
        self._clients: dict[str, Client] = {}
        self._ids: dict[str, uuid.UUID] = {}
        self._times: dict[str, str] = {}

    def play(self, path: Path) -> None:
        """Play all steps, and check that no reply is left over."""
        for step in read_script(path):
            self._play(step)
        for client in self._clients.values():
            client.send(LAST)
            assert client.take(len(LAST_REPLY)) == LAST_REPLY, path
            client.close()

    def _play(self, step: Step) -> None:
        if until := _UNTIL.fullmatch(step.line):
            request, part = self._bytes(until[2]), self._bytes(until[3])
            wait_until(lambda: part in self._ask(until[1], request), TIMEOUT_S, step.line)
            return
        found = _STEP.fullmatch(step.line)
        assert found, step.line
        name, direction, text = found.groups()
        if direction == ">":
            self._client(name).send(self._bytes(text))
            return
        expected = self._bytes(step.reply or text)
        if expected == END:
            ended = self._clients.pop(name)
            assert ended.take(1) == b"", step.line
            ended.close()
            return
        got = self._client(name).take(len(expected))
        if _ANY_TIME in expected:
            got = _normalised(got, expected)
        assert got == expected, f"{step.line}\n{escape(got)}\n{escape(expected)}"

    def _ask(self, name: str, request: bytes) -> bytes:
        """Ask on a separate connection, because the length of the reply is unknown."""
        client = Client(self._address(name))
        client.send(request + LAST)
        reply = client.until(LAST_REPLY)
        client.close()
        return reply

    def _address(self, name: str) -> Address:
        return self._addresses[(ord(name) - ord("A")) % len(self._addresses)]

    def _client(self, name: str) -> "Client":
        if name not in self._clients:
            self._clients[name] = Client(self._address(name))
        return self._clients[name]

    def _bytes(self, text: str) -> bytes:
        text = _ID.sub(lambda found: self._id(found[1], found[2]), text)
        text = _NOW.sub(lambda found: self._time(found[1]), text)
        return unescape(text.replace("{time}", _ANY_TIME.decode()))

    def _id(self, number: str, form: str | None) -> str:
        job = self._ids.setdefault(number, uuid.uuid4())
        forms = {"plain": job.hex, "urn": job.urn, "upper": str(job).upper()}
        return forms[form] if form else str(job)

    def _time(self, offset: str) -> str:
        at = datetime.now(UTC) + timedelta(seconds=int(offset))
        return self._times.setdefault(offset, at.strftime("%Y-%m-%dT%H:%M:%SZ"))


class Client:
    """One connection: bytes out, bytes in."""

    def __init__(self, address: Address) -> None:
        self._stream = connect(address, TIMEOUT_S)

    def send(self, data: bytes) -> None:
        """Send bytes; a server that has closed does not accept all of them."""
        try:
            self._stream.sendall(data)
        except ConnectionError:
            assert len(data) > 1_000_000, "only what is above the limit is not read to its end"

    def take(self, size: int) -> bytes:
        """Receive the given number of bytes, or fewer if the stream ends."""
        data = b""
        while len(data) < size:
            try:
                more = self._stream.recv(size - len(data))
            except ConnectionError:
                more = b""
            if not more:
                break
            data += more
        return data

    def until(self, end: bytes) -> bytes:
        """Receive up to and including the given bytes."""
        data = b""
        while not data.endswith(end):
            more = self._stream.recv(65536)
            assert more, f"the connection ended after {data!r}"
            data += more
        return data

    def close(self) -> None:
        """Break the connection."""
        self._stream.close()


def _normalised(got: bytes, expected: bytes) -> bytes:
    """Replace a time by the placeholder where any time is expected."""
    for place in _TIME.finditer(expected):
        if place[0] == _ANY_TIME and _TIME.fullmatch(got, *place.span()):
            got = got[: place.start()] + _ANY_TIME + got[place.end() :]
    return got
