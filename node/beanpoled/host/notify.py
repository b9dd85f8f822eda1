"""What a node tells its service manager: systemd's protocol of datagrams (sd_notify).

Without NOTIFY_SOCKET in the environment everything here does nothing. What is told, and when, is
for the caller.
"""

import os
import socket
import time
from collections.abc import Mapping
from typing import Final

# A status is one line that people read; systemd keeps what it gets.
STATUS_BYTES_MAX: Final = 500


class Notifier:
    """Sends to the service manager, if there is one; what cannot be sent is lost.

    Attributes:
        watchdog_s: how often `alive` has to be called at least; 0 if nobody waits for it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        # Only these two kinds of addresses are datagrams on this machine ("@": an abstract one).
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._socket: socket.socket | None = None
        if path.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        self.watchdog_s = self._watchdog(environment)

    def _watchdog(self, environment: Mapping[str, str]) -> float:
        """Half of what the manager allows, as it recommends."""
        period = environment.get("WATCHDOG_USEC", "")
        whose = environment.get("WATCHDOG_PID", str(os.getpid()))
        if self._socket is None or not period.isdecimal() or whose != str(os.getpid()):
            return 0.0
        return int(period) / 2e6

    def ready(self) -> None:
        """The start is over, or the configuration has been read again."""
        self._send("READY=1")

    def reloading(self) -> None:
        """The configuration is being read again; `ready` ends that."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The stop has begun."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """The loop turns."""
        self._send("WATCHDOG=1")

    def status(self, words: str) -> None:
        """How the node is, in one line."""
        line = words.replace("\n", " ").encode()[:STATUS_BYTES_MAX].decode(errors="ignore")
        self._send(f"STATUS={line}")

    def _send(self, message: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError:
            return  # a manager that restarts, or does not read: it asks nobody to wait for it
