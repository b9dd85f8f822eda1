"""The sockets of the synchronous client: `Wire` performs the I/O steps of `sansio`."""

import os
import socket
import ssl
import time
from typing import TypeVar

from beanpole.client.dialing import dial, encrypt, is_gone, places_of
from beanpole.client.interrupts import is_of_handler
from beanpole.client.sansio.faults import inherited
from beanpole.client.sansio.steps import (
    RECEIVE_BYTES,
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

_Result = TypeVar("_Result")


class Wire:
    """The sockets of one client."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """Begin without a connection; `tls` is None for plain TCP."""
        self._tls = tls
        # Host names by resolved address, for TLS. Names may share an address, each with a port.
        self._names: dict[Endpoint, str] = {}
        self._socket: socket.socket | None = None
        self._pid = 0  # the process that connected last

    def run(self, steps: Steps[_Result]) -> _Result:
        """Perform the steps of one command and return its result.

        Raises:
            ClosedError: another process has connected. Its session is not this one's to resume.
        """
        if self.is_inherited:
            self.close()
            raise inherited()
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._do(step)
                except Exception as error:
                    if not isinstance(error, OSError) or is_of_handler(error):
                        # The handler of a signal has raised it, such as the TimeoutError of an
                        # alarm, and a `reserve` that is left would still take a job.
                        self.close()
                        raise
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: _Result = end.value
            return result
        except BaseException as error:
            steps.close()
            if not isinstance(error, Exception) or is_of_handler(error):
                self.close()  # interrupted: the rest of a reply would answer another command
            raise

    @property
    def is_inherited(self) -> bool:
        """Whether another process has connected, of which this one is a fork."""
        return self._pid not in (0, os.getpid())

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _do(self, step: Step) -> object:
        match step:
            case Receive():
                connected = self._connected
                connected.settimeout(step.timeout_s)
                return connected.recv(RECEIVE_BYTES)
            case Send():
                connected = self._connected
                connected.settimeout(step.timeout_s)
                connected.sendall(step.data)
            case IsGone():
                return self._socket is None or is_gone(self._socket)
            case Resolve():
                found = socket.getaddrinfo(step.host, step.port, type=socket.SOCK_STREAM)
                places = [Endpoint(*place) for place in places_of(found)]
                self._names |= dict.fromkeys(places, step.host)
                return places
            case Connect():
                self.close()
                self._pid = os.getpid()
                self._socket = self._open(step.endpoint, step.timeout_s)
            case Probe():
                with self._open(step.endpoint, step.timeout_s) as probe:
                    probe.sendall(step.request)
                    return probe.recv(RECEIVE_BYTES)
            case Close():
                self.close()
            case Pause():
                time.sleep(step.seconds)
        return None

    def _open(self, endpoint: Endpoint, timeout_s: float) -> socket.socket:
        connected = dial(endpoint.host, endpoint.port, timeout_s)
        if self._tls is None:
            return connected
        return encrypt(connected, self._tls, self._names.get(endpoint, endpoint.host))

    @property
    def _connected(self) -> socket.socket:
        assert self._socket is not None, "the steps connect first"
        return self._socket
