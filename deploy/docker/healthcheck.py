"""The image's health check: status 0 if the node of this container answers /livez with 200.

Nothing else is checked: a node without a majority is healthy, and restarting it would not help.
Imports are minimal, because it runs every few seconds. The port is that of BEANPOLE_HTTP_LISTEN.
"""

import os
import socket
import sys

TIMEOUT_S = 2.0
DEFAULT = "0.0.0.0:11330"


def main() -> int:
    """Send one request; return the exit status, and print the result on standard output."""
    host, _, port = os.environ.get("BEANPOLE_HTTP_LISTEN", DEFAULT).rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(host, host.strip("[]"))
    try:
        with socket.create_connection((host, int(port)), TIMEOUT_S) as stream:
            stream.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            status = stream.makefile("rb").readline().split()
    except (OSError, ValueError) as error:
        print(f"/livez at {host}:{port}: {error}")
        return 1
    print(f"/livez at {host}:{port}: {b' '.join(status).decode(errors='replace')}")
    return 0 if status[1:2] == [b"200"] else 1


if __name__ == "__main__":
    sys.exit(main())
