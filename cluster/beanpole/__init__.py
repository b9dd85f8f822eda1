"""The Beanpole library: the replicated state machine, its log, its protocols and a client.

It never imports the daemon (`beanpoled`).
"""

from typing import Final

VERSION: Final = "0.4.0.dev0"
