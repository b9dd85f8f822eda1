"""Notifications to the service manager: systemd's datagram protocol (sd_notify).

Without NOTIFY_SOCKET in the environment all functions do nothing. The caller decides what to send,
and when.
"""

import os
import socket
import time
from collections.abc import Mapping
from typing import Final

# A status is one line for people; systemd stores what it receives.
STATUS_BYTES_MAX: Final = 500


class Notifier:
    """Sends to the service manager, if there is one; a message that cannot be sent is lost.

    Attributes:
        watchdog_s: the longest period between calls of `alive`; 0 if there is no watchdog.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        # Only these two kinds of addresses are local datagram sockets ("@": an abstract one).
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._socket: socket.socket | None = None
        if path.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        self.watchdog_s = self._watchdog(environment)

    def _watchdog(self, environment: Mapping[str, str]) -> float:
        """Half of the manager's limit, as its documentation recommends."""
        period = environment.get("WATCHDOG_USEC", "")
        whose = environment.get("WATCHDOG_PID", str(os.getpid()))
        if self._socket is None or not period.isdecimal() or whose != str(os.getpid()):
            return 0.0
        return int(period) / 2e6

    def ready(self) -> None:
        """Report that the start or the reload of the configuration is complete."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Report that the configuration is being reloaded; `ready` ends that."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the stop has begun."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Report that the loop is turning."""
        self._send("WATCHDOG=1")

    def status(self, words: str) -> None:
        """Report the state of the node, in one line."""
        line = words.replace("\n", " ").encode()[:STATUS_BYTES_MAX].decode(errors="ignore")
        self._send(f"STATUS={line}")

    def _send(self, message: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError:
            return  # the manager is restarting or does not read, and must not block the node
