"""The connection of a running node to its operator and service manager: signals, watchdog, status.

Wiring and a clock: the words are in `turn.condition`, their schedule in `reporting`, systemd's
messages in `host.notify`.
"""

import asyncio
import os
import time
from typing import Final

from beanpoled import examining
from beanpoled.collecting import Collector
from beanpoled.examining import Finding
from beanpoled.host.aio import AioHost
from beanpoled.host.notify import Notifier
from beanpoled.reloading import Outcome, Reloader, Shown
from beanpoled.reporting import LOOK_PERIOD_S, Reporter
from beanpoled.trust.rereading import Rereading
from beanpoled.turn.node import Node
from beanpoled.view import NodeView

# The period of checks for changed certificate files. They are replaced days before they expire.
CERTIFICATES_PERIOD_S: Final = 10.0


class Supervision:
    """Runs beside one node during its life."""

    def __init__(self, node: Node, host: AioHost, reloader: Reloader) -> None:
        self._node = node
        self._host = host
        self._reloader = reloader
        self._rereading = Rereading(host.trust, host.log)
        self._notifier = Notifier(os.environ)
        self._reporter = Reporter(node.condition, host.log, self._notifier.status)
        node.stopping.announce = self._notifier.stopping

    def begin(self) -> None:
        """Report readiness and handle signals, after the disk is read and the ports are open.

        The node serves clients when it has a majority, which no start waits for: the other members
        may be started one after the other by the same operator.
        """
        node = self._node
        self._host.handle_signals(node.stopping.stop, node.lifecycle.drain, self.reload)
        self._host.spawn(self._watch())
        self._notifier.ready()

    def reload(self) -> Outcome:
        """Reload the configuration and the certificates.

        The files are read in the loop. While a volume is known to hang, nothing is read: the secret
        and the configuration may be there, too, and the node would freeze.
        """
        self._notifier.reloading()
        if self._rereading.hanging:
            outcome = self._reloader.refuse("; ".join(self._rereading.hanging.values()))
            self._notifier.ready()
            return outcome
        with self._reloader.telling():
            certificates = self._refresh_trust()
            outcome = self._reloader.reload()
        self._notifier.ready()
        return outcome._replace(
            changed=(*certificates, *outcome.changed),
            refused="; ".join(self._host.trust.refused_files().values()),
        )

    def settings(self) -> list[Shown]:
        """Return all settings that are in force."""
        return self._reloader.settings()

    def examine(self, view: NodeView) -> list[Finding]:
        """Check the node: see `examining`."""
        anonymous = self._node.context.machine.users.anonymous
        config, refused = self._reloader.config, self._host.trust.refused_files()
        hanging = self._rereading.hanging
        return list(examining.examine(view, config, anonymous, time.time(), refused, hanging))

    def _refresh_trust(self) -> list[str]:
        """Read the certificates; see `Trust.refresh`. Revoked ones lose their connections."""
        told = self._host.trust.refresh(is_asked=True)
        self._host.spawn(self._host.trust.end_revoked())
        return told

    async def _watch(self) -> None:
        """Observe the node periodically. The watchdog only learns that the loop is turning."""
        loop = asyncio.get_running_loop()
        watchdog_s = self._notifier.watchdog_s
        period_s = min(LOOK_PERIOD_S, watchdog_s or LOOK_PERIOD_S)
        due_s = certificates_s = loop.time()
        collector = Collector(self._node.context)
        collector.begin(due_s)
        while True:
            now_s = loop.time()
            self._reporter.look(now_s)
            collector.look(now_s)
            if now_s >= certificates_s:
                certificates_s = now_s + CERTIFICATES_PERIOD_S
                self._host.spawn(self._rereading.look())
            if watchdog_s and now_s >= due_s:
                due_s = now_s + watchdog_s
                self._notifier.alive()
            await asyncio.sleep(period_s)
