"""What a running node takes from a configuration that is read again (SIGHUP).

The level of the log and the shared secret: limits and times are fixed in parts that were built with
them, and a node that half follows its file is worse than one that is restarted.
"""

from collections.abc import Callable
from typing import NamedTuple

from beanpole.errors import BeanpoleError
from beanpoled.config.node import SETTINGS, NodeConfig
from beanpoled.host.log import LEVELS, LogLines
from beanpoled.host.seam import WARNING
from beanpoled.trust.trust import Trust

RELOADED = frozenset({"log_level", "peer_secret"})


class Reading(NamedTuple):
    """How a configuration is read.

    Attributes:
        first: as it was read for the start, before the system's limits changed it.
        again: reads it from the same places.
    """

    first: NodeConfig
    again: Callable[[], NodeConfig]


class Reloader:
    """Reads a node's configuration again, compares it with what it was started with, says so."""

    def __init__(self, reading: Reading, lines: LogLines, trust: Trust) -> None:
        self._trust = trust
        self._config, self._read = reading
        self._lines = lines
        self._level = reading.first.log_level

    def reload(self) -> None:
        """Take what can be taken; what cannot is named, and what is wrong changes nothing."""
        lines = self._lines
        try:
            fresh = self._read()
        except (BeanpoleError, OSError) as error:
            lines.write(f"not reloaded: {error}", WARNING)
            return
        waiting = self._changed(fresh)
        if waiting:
            names = ", ".join(waiting)
            lines.write(f"not reloaded, they take effect with a restart: {names}", WARNING)
        self._take_secret(fresh)
        before, self._level = self._level, fresh.log_level
        if before == fresh.log_level:
            lines.write("reloaded: log_level has not changed")
            return
        # The line is for whoever sees the log before or after it.
        lines.level = min(lines.level, LEVELS[fresh.log_level])
        lines.write(f"reloaded: log_level is {fresh.log_level}, was {before}")
        lines.level = LEVELS[fresh.log_level]

    def _take_secret(self, fresh: NodeConfig) -> None:
        """Prove another secret from now on; links that are up stay as they are."""
        if fresh.peer_secret.encode() == self._trust.secret.value:
            return
        if not fresh.peer_secret or not self._trust.secret:
            words = "not reloaded: to begin or end using a peer_secret needs a restart"
            self._lines.write(words, WARNING)
            return
        self._trust.secret.replace(fresh.peer_secret)
        words = "reloaded: peer_secret is another one; links that are up stay, new ones need it"
        self._lines.write(words)

    def _changed(self, fresh: NodeConfig) -> list[str]:
        """The settings that differ from those at the start and need another one."""
        return [
            setting.name
            for setting in SETTINGS
            if setting.name not in RELOADED
            and getattr(fresh, setting.name) != getattr(self._config, setting.name)
        ]
