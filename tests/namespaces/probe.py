"""Print, for each rule for one direction, a line on the traffic that passes between namespaces.

`test_partitions` runs this program, without nodes. The loss of a datagram is detected by a later
one from the bridge, which no rule affects.
"""

import itertools
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from chaos.backends.namespaces import ALL, DATA, Namespaces, address
from tests.integration.support.processes import Process

PORT: Final = 5000
RECEIVE: Final = f"""
import socket
taker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taker.bind(("", {PORT}))
print("bound", flush=True)
print("got", taker.recv(500)[:1].decode(), flush=True)
"""
SEND: Final = f"""
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"h" * 200, (sys.argv[1], {PORT}))
"""
LISTEN: Final = f"""
import socket
server = socket.create_server(("", {PORT}))
print("bound", flush=True)
server.accept()
"""
CONNECT: Final = f"""
import socket, sys
try:
    socket.create_connection((sys.argv[1], {PORT}), 10)
except ConnectionRefusedError:
    print("refused")
else:
    print("taken")
"""


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def main(directory: Path) -> None:
    network = Namespaces(directory, compiled=False)
    logs = (directory / f"probe-{number}.log" for number in itertools.count())

    def sends(source: int, target: int) -> str:
        taker = Process([*network.enter(target), *python(RECEIVE)], next(logs))
        taker.wait_for_text("bound")
        subprocess.run([*network.enter(source), *python(SEND, address(target))], check=True)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as marker:
            marker.sendto(b"m", (address(target), PORT))
        arrived = taker.wait_for_text("got") == "got h"
        taker.kill()
        return "arrives" if arrived else "lost"

    def connect() -> str:
        taker = Process([*network.enter(1), *python(LISTEN)], next(logs))
        taker.wait_for_text("bound")
        command = [*network.enter(0), *python(CONNECT, address(1))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        taker.kill()
        return f"connect {done.stdout.strip()}"

    for rule in ("open", DATA, ALL, "refuse", "open"):
        network.heal_links()
        if rule == "refuse":
            network.refuse(0, 1)
        elif rule != "open":
            network.cut(0, 1, rule)
        told = [] if rule == "refuse" else [f"there {sends(0, 1)}", f"back {sends(1, 0)}"]
        if rule != ALL:
            told.append(connect())
        sys.stdout.write(f"{rule}: {', '.join(told)}\n")
    network.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
