"""The commands that use the queue by hand: what they print of jobs, on a terminal and elsewhere."""

import io

import pytest

from beanpole.client.beanstalk import Client, Job
from beanpoled import cli

# A title, a colour, a bell, a reversed text, C1 in UTF-8 and as a byte: none of it is printable.
BODY = b"a\tb\n\x1b]0;title\x07\x1b[31m \xe2\x80\xae \xc2\x9b2J \x9b \xc3\xa9"
ESCAPED = "a\tb\n\\x1b]0;title\\x07\\x1b[31m \\u202e \\x9b2J \\x9b \u00e9\n"


class Output(io.TextIOWrapper):
    """Standard output that is a terminal, or a pipe."""

    def __init__(self, terminal: bool) -> None:
        self.kept = io.BytesIO()
        self._terminal = terminal
        super().__init__(self.kept, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        (("peek", "7"), "FOUND", ""),
        (("peek", "buried"), "FOUND", ""),
        (("reserve",), "RESERVED", ""),
        (("reserve", "--delete"), "RESERVED", "DELETED\n"),
    ],
)
def test_no_body_steers_the_terminal_and_programs_get_it_as_it_is(
    terminal: bool, words: tuple[str, ...], first: str, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "peek", lambda *_: Job(7, BODY))
    monkeypatch.setattr(Client, "reserve", lambda *_: Job(7, BODY))
    monkeypatch.setattr(Client, "delete", lambda *_: True)
    output = Output(terminal)
    monkeypatch.setattr("sys.stdout", output)
    assert cli.main([*words, "--addr", "127.0.0.1:1"]) == 0
    shown = ESCAPED.encode() if terminal else BODY + b"\n"
    assert output.kept.getvalue() == f"{first} 7 {len(BODY)}\n".encode() + shown + last.encode()
