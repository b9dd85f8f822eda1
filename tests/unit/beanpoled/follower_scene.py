"""A follower that serves clients; a test decides when their commands are applied."""

from typing import Any

from beanpole import commands as c
from beanpole.core.machine import Machine
from tests.unit.node.stage import Stage


class FollowerScene(Stage):
    """A follower at the newest version; n1 is another node with sessions."""

    def __init__(self, **overrides: Any) -> None:
        super().__init__(**overrides)
        self.follow()
        self.number = 0
        self.apply_sections((c.LEADER, 0, 0, ((c.RAISE, c.MACHINE_VERSION),)))
        self.come_up_behind()

    def commit_own(self) -> list[c.Command]:
        """Apply the batches of this node until no more follow; return their commands."""
        logged: list[c.Command] = []
        origin = self.node.origin
        self.run()
        while origin._numbered:
            sections = [(0, 1, number, b.payload) for number, b in sorted(origin._numbered.items())]
            for *_, payload in sections:
                logged += c.unpack_commands(payload)
            self.apply(c.encode_entry(0, self.machine.queue.now_us, 0, sections))
            self.run()
        return logged

    def others(self, *commands: c.Command) -> None:
        """Apply an entry with a batch of n1."""
        self.number += 1
        self.apply_sections((1, 1, self.number, commands))

    def pass_cluster_us(self, us: int) -> None:
        """Advance cluster time with an entry that has no commands."""
        self.apply(c.encode_entry(0, self.machine.queue.now_us + us, 0, []))
        self.run()

    @property
    def machine(self) -> Machine:
        """The machine of this node."""
        return self.node.context.machine
