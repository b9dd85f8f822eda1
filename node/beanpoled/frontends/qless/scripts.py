"""The scripts that clients have loaded at one node, by their SHA-1.

No script is run: its meaning is recognised when it is loaded. A client whose node has forgotten a
script or has restarted gets NOSCRIPT and loads it again, so other nodes need not know it.
"""

import hashlib
from typing import Final

from beanpole.protocol.qless.calls import NAMES
from beanpole.protocol.qless.recognition import Script, recognise

# Only the meaning of a script is kept, not its text, nor the names that it declares beside those of
# qless: each version of each dialect has 21 scripts at most. The oldest one makes room.
SCRIPTS_MAX: Final = 1024


class Scripts:
    """The scripts of one node."""

    def __init__(self) -> None:
        self._known: dict[bytes, Script] = {}

    def find(self, sha: bytes) -> Script | None:
        """Return a loaded script by the 40 hexadecimal digits of its SHA-1."""
        return self._known.get(sha.lower())

    def load(self, text: bytes) -> tuple[bytes, Script | None]:
        """Return a script's SHA-1 and its meaning; None if it is of no known dialect."""
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        script = self._known.get(sha)
        if script is None:
            script = recognise(text)
            if script is None:
                return sha, None
            if len(self._known) >= SCRIPTS_MAX:
                del self._known[next(iter(self._known))]
            script = script._replace(names=NAMES & script.names)
            self._known[sha] = script
        return sha, script

    def flush(self) -> None:
        """Forget all."""
        self._known.clear()
