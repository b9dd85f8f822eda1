"""Nodes in memory for the steps of a client: no sockets, and a clock that tests advance.

Connections, silence, names and time belong here; each test has the replies of its nodes.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.nodes import Nodes
from beanpole.client.sansio.session import Session
from beanpole.client.sansio.steps import (
    Close,
    Connect,
    Endpoint,
    IsGone,
    Pause,
    Probe,
    Receive,
    Resolve,
    Send,
    Step,
    Steps,
)

# Maps the bytes sent to a reply; b"" closes the connection, None is silence.
Answer = Callable[[bytes], bytes | None]
_Result = TypeVar("_Result")


class World:
    """Nodes by their endpoints, names, and the time in seconds."""

    def __init__(self) -> None:
        self.nodes: dict[Endpoint, Answer] = {}
        self.names: dict[str, list[Endpoint]] = {}
        self.now = 0.0
        self.at: Endpoint | None = None
        self.said: list[tuple[Endpoint, bytes]] = []
        self._reply: bytes | None = None

    def run(self, steps: Steps[_Result]) -> _Result:
        """Run the steps of a command."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = self.do(step)
                except OSError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: _Result = end.value
            return result

    def do(self, step: Step) -> Any:
        """Run one step."""
        match step:
            case Resolve():
                if step.host not in self.names:
                    return [Endpoint(step.host, step.port)]
                return self.names[step.host]
            case Connect() | Probe():
                if step.endpoint not in self.nodes:
                    raise ConnectionRefusedError("refused")
                if isinstance(step, Probe):
                    reply = self.nodes[step.endpoint](step.request)
                    if reply is None:
                        self.now += step.timeout_s
                        raise TimeoutError("timed out")
                    return reply
                self.at = step.endpoint
            case Send():
                assert self.at is not None
                self.said.append((self.at, step.data))
                if self.at not in self.nodes:
                    raise ConnectionResetError("reset")
                self._reply = self.nodes[self.at](step.data)
            case Receive():
                if self._reply is None:
                    self.now += step.timeout_s
                    raise TimeoutError("timed out")
                reply, self._reply = self._reply, b""
                return reply
            case IsGone():
                return self.at not in self.nodes
            case Close():
                self.at = None
            case Pause():
                self.now += step.seconds
        return None

    def client(
        self, addresses: Any, spread: bool = False, token: bytes = b"", keep_s: int = 0
    ) -> Commands[str]:
        """Return the commands of a client in this world."""
        session = Session(
            Nodes(addresses, spread),
            lambda: self.now,
            patience_s=10.0,
            reply_timeout_s=15.0,
            connect_timeout_s=2.0,
            token=token,
            keep_s=keep_s,
        )
        return Commands(session, "utf-8", lambda: self.now)


def server(replies: dict[bytes, bytes | None]) -> Answer:
    """Return a node that answers each line of a request by its first word."""

    def answer(data: bytes) -> bytes | None:
        found = [replies.get(line.split(b" ")[0]) for line in data.split(b"\r\n")[:-1]]
        known = [one for one in found if one is not None]
        return b"".join(known) if known else None

    return answer
