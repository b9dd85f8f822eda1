"""The scripts that clients have loaded at one node, by their SHA-1.

No script is run: what a script means is recognised when it is loaded. A client whose node has
forgotten a script, or has started anew, loads it again when it hears NOSCRIPT, so other nodes need
not know of it.
"""

import hashlib
from typing import Final

from beanpole.protocol.qless.recognition import Script, recognise

# A script's text is not kept, only what it means: of each version of each dialect there are 21
# scripts at most. The one that was loaded first makes room.
SCRIPTS_MAX: Final = 1024


class Scripts:
    """Of one node."""

    def __init__(self) -> None:
        self._known: dict[bytes, Script] = {}

    def find(self, sha: bytes) -> Script | None:
        """A script that was loaded, by 40 hexadecimal digits."""
        return self._known.get(sha.lower())

    def load(self, text: bytes) -> tuple[bytes, Script | None]:
        """Its SHA-1, and what a script means; None if it is of no dialect that is known."""
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        script = self._known.get(sha)
        if script is None:
            script = recognise(text)
            if script is None:
                return sha, None
            if len(self._known) >= SCRIPTS_MAX:
                del self._known[next(iter(self._known))]
            self._known[sha] = script
        return sha, script

    def flush(self) -> None:
        """Forget all."""
        self._known.clear()
