"""Reload the configuration of a running node, and show the settings in force.

Only limits that a single part compares when needed are reloaded. Settings that are built into
parts, or compared with other nodes or settings, need a restart, and are named: a node that follows
its file only in part is worse than one that is restarted.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from beanpole.errors import BeanpoleError
from beanpoled import descriptors
from beanpoled.config.node import SETTINGS, NodeConfig, check_relations
from beanpoled.config.settings import Secret
from beanpoled.host.log import LEVELS, LogLines
from beanpoled.host.seam import WARNING
from beanpoled.trust import secret_file
from beanpoled.trust.trust import Trust

LIMITS: Final = (
    *("handshakes_max", "handshakes_per_address_max", "failed_handshakes_per_second_max"),
    *("drain_timeout_ms", "connections_max", "connections_per_address_max"),
    *("commands_per_second_max", "client_output_bytes_max", "outbox_bytes_max"),
    *("event_retain_bytes", "event_retain_age_s"),
    *("upgrade_finalize", "gearman_shutdown", "qless_flush"),
)
# Those of them that the descriptors of the process bound.
COUNTED: Final = frozenset({"connections_max", "handshakes_max"})
# The contents of certificate files are reloaded regularly; their paths need a restart.
RELOADED: Final = frozenset({"log_level", "peer_secret", "peer_secret_file", *LIMITS})


class Reading(NamedTuple):
    """The source of a configuration.

    Attributes:
        first: as it was read for the start, before the system's limits changed it.
        again: reads it from the same sources; None if it has none.
    """

    first: NodeConfig
    again: Callable[[], NodeConfig] | None


class Outcome(NamedTuple):
    """The result of a reload.

    Attributes:
        changed: what has changed, in words; never a secret.
        waiting: the settings whose new values need a restart.
        wrong: why the reload was rejected; empty if it was not.
        refused: why files of certificates are not in use; empty if they are.
    """

    changed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    wrong: str = ""
    refused: str = ""


class Shown(NamedTuple):
    """One setting for operators.

    Attributes:
        name: as in the configuration.
        value: as JSON; for a secret, whether it is set.
        source: see `config.node.load`.
        is_live: whether it changes without a restart.
        is_secret: whether `value` only says whether it is set.
        is_waiting: whether its source had another value at the last reload.
    """

    name: str
    value: str
    source: str
    is_live: bool
    is_secret: bool
    is_waiting: bool


class Reloader:
    """Rereads a node's configuration, compares it with that of the start, and logs the result.

    Attributes:
        config: in force at the node.
        take: applies another configuration to parts of the node.
    """

    def __init__(self, reading: Reading, config: NodeConfig, lines: LogLines, trust: Trust) -> None:
        """Begin.

        Args:
            reading: the source of the configuration.
            config: `reading.first` as the system's limits have changed it.
            lines: of the log.
            trust: of the node.
        """
        self.config = config
        self.take: Callable[[NodeConfig], None] = lambda _: None
        self._trust = trust
        self._asked, self._read = reading
        self._lines = lines
        self._waiting: tuple[str, ...] = ()

    def settings(self) -> list[Shown]:
        """Return all settings that are in force."""
        return [
            Shown(
                setting.name,
                _value(getattr(self.config, setting.name), isinstance(setting.kind, Secret)),
                self.config.sources.get(setting.name, ""),
                setting.name in RELOADED,
                isinstance(setting.kind, Secret),
                setting.name in self._waiting,
            )
            for setting in SETTINGS
        ]

    def reload(self) -> Outcome:
        """Apply what can be reloaded, name the rest; an invalid configuration changes nothing.

        The outcome is logged at any level: nobody else may tell the sender of a signal.
        """
        with self.telling():
            return self._reload()

    def refuse(self, words: str) -> Outcome:
        """Read nothing and apply nothing, and log why, at any level."""
        with self.telling():
            return self._refused(words)

    def telling(self) -> AbstractContextManager[None]:
        """See `LogLines.telling`."""
        return self._lines.telling()

    def _reload(self) -> Outcome:
        lines = self._lines
        if self._read is None:
            return self._refused("this program reads no configuration again")
        try:
            fresh = self._read()
        except (BeanpoleError, OSError) as error:
            return self._refused(str(error))
        except Exception as error:  # whatever it is, the settings in force are good
            return self._refused(f"{type(error).__name__}: {error}")
        try:
            # Of related settings, the file may have changed one that needs a restart.
            check_relations(replace(self.config, **{name: getattr(fresh, name) for name in LIMITS}))
        except BeanpoleError as error:
            return self._refused(f"beside the settings that only change with a restart, {error}")
        waiting = self._differing(fresh, lambda name: name not in RELOADED)
        if waiting:
            names = ", ".join(waiting)
            lines.write(f"not reloaded, they take effect with a restart: {names}", WARNING)
        secret = self._take_secret(fresh)
        if secret is None:
            waiting.append("peer_secret")
        changed = [*([secret] if secret else ()), *self._take_limits(fresh)]
        for words in changed:
            lines.write(f"reloaded: {words}")
        before = self.config.log_level
        if before != fresh.log_level:
            changed.append(f"log_level is {fresh.log_level}, was {before}")
            lines.write(f"reloaded: {changed[-1]}")
            lines.level = LEVELS[fresh.log_level]
            self._set(fresh, ["log_level"])
        elif not changed and not waiting:
            lines.write("reloaded: no setting has changed")
        self._waiting = tuple(waiting)
        return Outcome(tuple(changed), self._waiting)

    def _refused(self, words: str) -> Outcome:
        self._lines.write(f"not reloaded: {words}", WARNING)
        return Outcome(wrong=words)

    def _take_secret(self, fresh: NodeConfig) -> str | None:
        """Use another secret from now on; established links stay.

        Returns:
            A message; empty if the secret is the same, None if it needs a restart.
        """
        if fresh.peer_secret.encode() == self._trust.secret.value:
            return ""
        if not fresh.peer_secret or not self._trust.secret:
            words = "not reloaded: to begin or end using a peer_secret needs a restart"
            self._lines.write(words, WARNING)
            return None
        if odd := secret_file.warning(fresh.peer_secret, fresh.peer_secret_file):
            self._lines.write(odd, WARNING)
        self._trust.secret.replace(fresh.peer_secret)
        self._set(fresh, ["peer_secret", "peer_secret_file"])
        return "peer_secret is another one; links that are up stay, new ones need it"

    def _take_limits(self, fresh: NodeConfig) -> list[str]:
        names = self._differing(fresh, lambda name: name in LIMITS)
        if not names:
            return []
        before = self.config
        self._set(fresh, names)
        if not COUNTED.isdisjoint(names):
            # Each of them may have been lowered for the other.
            asked = {name: getattr(self._asked, name) for name in COUNTED}
            self.config = descriptors.fitting(replace(self.config, **asked), self._lines)
            names += [
                name
                for name in sorted(COUNTED.difference(names))
                if getattr(self.config, name) != getattr(before, name)
            ]
        self.take(self.config)
        self._trust.handshakes.set_limits(self.config)
        return [
            f"{name} is {getattr(self.config, name)}, was {getattr(before, name)}" for name in names
        ]

    def _set(self, fresh: NodeConfig, names: list[str]) -> None:
        values: Mapping[str, Any] = {name: getattr(fresh, name) for name in names}
        told = {name: fresh.sources.get(name, "") for name in names}
        self._asked = replace(self._asked, **values)
        self.config = replace(self.config, **values, sources={**self.config.sources, **told})

    def _differing(self, fresh: NodeConfig, among: Callable[[str], bool]) -> list[str]:
        """The settings that differ from those requested before."""
        return [
            setting.name
            for setting in SETTINGS
            if among(setting.name)
            and getattr(fresh, setting.name) != getattr(self._asked, setting.name)
        ]


def _value(value: Any, is_secret: bool) -> str:
    if is_secret:
        return json.dumps(bool(value))
    if isinstance(value, Mapping):
        # Addresses of members are named pairs.
        value = {
            name: inner._asdict() if hasattr(inner, "_asdict") else inner
            for name, inner in value.items()
        }
    return json.dumps(value)
