"""Command scripts: their format, their player, and the normalisation of replies.

A script is a text file; one step is one line:

    A ask use foo            client A (opened when first named) sends the line, reads one reply
    A ask*2 use a\\r\\nuse b   the same with two replies
    A send reserve           sends the line and reads nothing yet
    A raw put 0 0            sends bytes without a CRLF behind them
    A read*2                 reads replies
    A end                    expects the server to close; A half, A close: the client does
    wait 1.1                 lets seconds pass; cluster time may pass more slowly, so that `until`
                             is better for what is due
    until A TEXT ~ PART      repeats a command until its reply has the part; not recorded
    until 1 A TEXT ~ PART    the same for what is due after these seconds
    ~ NAME REPLY             the reply of Beanpole to the step above, where it deviates; the reason
                             is in deviations.txt under that name

Backslash escapes are Python's, `{text*20}` repeats text, `#` begins a comment line.
test_differential decides which servers scripts are played against.
"""

import contextlib
import re
import time
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from tests.integration.support.raw import Address, Raw
from tests.integration.support.waiting import wait_for_time, wait_until

FOLDER: Final = Path(__file__).resolve().parents[2] / "scripts"
DEVIATIONS: Final = FOLDER / "deviations.txt"
# The time that a server has for a reply before the record says that there was none.
SILENCE_S: Final = 3.0
UNTIL_S: Final = 60.0
SILENCE: Final = b"(silence)"
END: Final = b"(end)"

# Facts about the process or the machine; and strings, which beanstalkd quotes only since 1.13.
PROCESS_KEYS: Final = frozenset(
    {b"pid", b"version", b"rusage-utime", b"rusage-stime", b"uptime", b"id"}
    | {b"hostname", b"os", b"platform"}
)
QUOTED_KEYS: Final = frozenset({b"name", b"tube"})
# Whole seconds that pass, and whether they rise.
PASSING_KEYS: Final = {b"age": True, b"time-left": False, b"pause-time-left": False}

_STEP: Final = re.compile(r"([A-Z]) (ask|send|raw|read|end|half|close)(?:\*(\d+))?(?: (.*))?")
_UNTIL: Final = re.compile(r"until (?:(\d+) )?([A-Z]) (.+) ~ (.+)")
_PASSING: Final = re.compile(rb"(%b): (\d+)" % b"|".join(PASSING_KEYS))
_PATIENCE: Final = re.compile(r"\breserve-with-timeout (\d+)")
_REPEAT: Final = re.compile(r"\{([^{}*]+)\*(\d+)\}")


class Step(NamedTuple):
    """One line of a script, and the lines with Beanpole's deviations there."""

    line: str
    deviations: tuple[tuple[str, bytes], ...]


def unescape(text: str) -> bytes:
    """Return the bytes that the text of a script stands for."""
    full = _REPEAT.sub(lambda found: found[1] * int(found[2]), text)
    return full.encode("latin-1").decode("unicode_escape").encode("latin-1")


def escape(data: bytes) -> str:
    """Return bytes as one line of text that `unescape` reads back."""
    return data.decode("latin-1").encode("unicode_escape").decode("ascii")


def read_script(path: Path) -> list[Step]:
    """Read the steps of a script."""
    steps: list[Step] = []
    for line in path.read_text().splitlines():
        if line.startswith("~ "):
            name, _, reply = line[2:].partition(" ")
            last = steps[-1]
            steps[-1] = Step(last.line, (*last.deviations, (name, unescape(reply))))
        elif line and not line.startswith("#"):
            steps.append(Step(line, ()))
    return steps


def read_deviations() -> dict[str, str]:
    """Return the reasons of the deviations by their names."""
    entries = DEVIATIONS.read_text().split("\n\n")
    pairs = [entry.partition(":") for entry in entries if not entry.startswith("#")]
    return {name.strip(): " ".join(reason.split()) for name, _, reason in pairs}


def normalise(line: bytes, body: bytes | None) -> bytes:
    """Return a whole reply, without what differs between two runs of the same server."""
    if body is None:
        return line
    if line.startswith(b"OK "):
        assert line == b"OK %d" % len(body), f"{line!r} announces {len(body)} bytes"
        # Only a server has a pid; the id of a job is not a fact about the process.
        hidden = PROCESS_KEYS if b"\npid: " in body else frozenset[bytes]()
        body = b"\n".join(_normalised_pair(item, hidden) for item in body.split(b"\n"))
        return b"OK\r\n" + body
    return line + b"\r\n" + body


def _normalised_pair(line: bytes, hidden: frozenset[bytes]) -> bytes:
    key, colon, value = line.partition(b": ")
    if colon and key in hidden:
        return key + b": *"
    if colon and key in QUOTED_KEYS:
        return key + b": " + value.strip(b'"')
    return line


def is_same(theirs: bytes, ours: bytes, late_s: int) -> bool:
    """Whether two replies are equal, except for seconds that pass in a play that is late.

    Args:
        theirs: the normalised reply of a play that was not late.
        ours: the normalised reply to compare.
        late_s: the whole seconds by which the play with our reply was late.
    """
    pairs = list(zip_longest(theirs.split(b"\n"), ours.split(b"\n")))
    return all(one == other or _has_passed(one, other, late_s) for one, other in pairs)


def _has_passed(theirs: bytes | None, ours: bytes | None, late_s: int) -> bool:
    """Whether two lines differ by at most the seconds that passed between them."""
    before, after = (_PASSING.fullmatch(line or b"") for line in (theirs, ours))
    if before is None or after is None or before[1] != after[1]:
        return False
    passed_s = int(after[2]) - int(before[2])
    return 0 <= (passed_s if PASSING_KEYS[before[1]] else -passed_s) <= late_s


class Player:
    """Plays steps against one server.

    Attributes:
        late_s: the seconds that the steps so far took beyond the waits which the script names.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.late_s = 0.0
        self._clients: dict[str, Raw] = {}
        self._waits_s: dict[str, float] = {}  # of what each client sent last

    def play(self, step: Step) -> list[bytes]:
        """Do one step and return the normalised replies that it read."""
        began_s = time.monotonic()
        replies = self._do(step)
        took_s = time.monotonic() - began_s
        self.late_s += max(0.0, took_s - self._wait_s(step))
        return replies

    def _wait_s(self, step: Step) -> float:
        """Return the longest wait that the script names for a step."""
        if step.line.startswith("wait "):
            return float(step.line[5:])
        if until := _UNTIL.fullmatch(step.line):
            return float(until[1] or 0)
        name, verb = step.line.split(" ")[:2]
        if not verb.startswith("read"):
            found = _PATIENCE.search(step.line)
            self._waits_s[name] = float(found[1]) if found else 0.0
        return self._waits_s[name]

    def _do(self, step: Step) -> list[bytes]:
        if step.line.startswith("wait "):
            wait_for_time(float(step.line[5:]))
            return []
        if until := _UNTIL.fullmatch(step.line):
            self._until(self._client(until[2]), unescape(until[3]), unescape(until[4]))
            return []
        found = _STEP.fullmatch(step.line)
        assert found, f"not a step: {step.line!r}"
        client = self._client(found[1])
        verb, data = found[2], unescape(found[4] or "")
        if verb in ("ask", "send"):
            client.send(data + b"\r\n")
        elif verb == "raw":
            client.send(data)
        elif verb == "half":
            client.half_close()
        elif verb == "close":
            client.close()
            del self._clients[found[1]]
        elif verb == "end":
            return [self._reply(client)]
        count = int(found[3] or 1) if verb in ("ask", "read") else 0
        return [self._reply(client) for _ in range(count)]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, name: str) -> Raw:
        if name not in self._clients:
            self._clients[name] = Raw(self.address, SILENCE_S)
        return self._clients[name]

    @staticmethod
    def _reply(client: Raw) -> bytes:
        try:
            return normalise(*client.reply())
        except TimeoutError:
            return SILENCE
        except ConnectionError:
            return END

    @staticmethod
    def _until(client: Raw, command: bytes, part: bytes) -> None:
        def shows() -> bool:
            line, body = client.command(command)
            return part in line + b"\n" + (body or b"")

        wait_until(shows, UNTIL_S, f"{part!r} in the reply to {command!r}")


def play(address: Address, steps: list[Step]) -> tuple[list[list[bytes]], list[int]]:
    """Play a script; return each step's replies, and the whole seconds by which it was late."""
    player = Player(address)
    with contextlib.closing(player):
        played = [(player.play(step), int(player.late_s)) for step in steps]
    return [replies for replies, _ in played], [late_s for _, late_s in played]


def format_transcript(steps: list[Step], replies: list[list[bytes]]) -> str:
    """Return the text of a committed transcript: each step, and its replies below it."""
    lines: list[str] = []
    for step, step_replies in zip(steps, replies, strict=True):
        lines.append(step.line)
        lines += [f"< {escape(reply)}" for reply in step_replies]
    return "\n".join(lines) + "\n"


def read_transcript(path: Path, steps: list[Step]) -> list[list[bytes]]:
    """Return the replies of each step; fails if the transcript is of another script."""
    replies: list[list[bytes]] = []
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith("< "):
            replies[-1].append(unescape_plain(line[2:]))
        else:
            lines.append(line)
            replies.append([])
    again = f"{path.name} is of another script: record it again with --record"
    assert lines == [step.line for step in steps], again
    return replies


def unescape_plain(text: str) -> bytes:
    """Read back what `escape` made."""
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")
