"""Subclasses of the library's classes, limited to the overridden methods.

They are separate because compilation gains little for a class that inherits from an interpreted
one. All knowledge of the library's state is in `core`.
"""

import zlib
from collections.abc import Callable
from typing import cast

from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.serializer import Serializer
from pysyncobj.transport import Transport

from beanpole.replication.pysyncobj.journal import Entry
from beanpole.replication.pysyncobj.messages import OURS_NUMBER
from beanpole.replication.pysyncobj.transport_base import TransportBase


class Member(int, Node):
    """A member of the cluster in the library: a number derived from its name.

    The library keeps members in sets and dicts. With the hash of a str, the order of its sends
    would depend on PYTHONHASHSEED, and no simulated run could be repeated. A number is compared
    and hashed without the interpreter, some forty times for each entry.
    """

    # A plain attribute of each member, in place of the library's property.
    id: str = None  # type: ignore[assignment]

    def __new__(cls, name: str) -> "Member":
        return super().__new__(cls, zlib.crc32(name.encode()))

    def __init__(self, name: str) -> None:
        self.__dict__["id"] = name

    __repr__, __str__ = Node.__repr__, Node.__str__


class Library(SyncObj):
    """The overridden parts of the library."""

    def __init__(
        self,
        me: Member,
        others: list[Member],
        conf: SyncObjConf,
        transport: TransportBase,
        before_apply: Callable[[], None],
        apply: Callable[[bytes], None],
    ) -> None:
        self._beanpole_before_apply = before_apply
        self._beanpole_apply = apply
        # The library needs the methods of its transport class, not the class itself.
        super().__init__(me, others, conf=conf, transport=cast(Transport, transport))

    def _SyncObj__applyLogEntries(self) -> bool:
        # The library applies first and sends afterwards, which would delay the followers.
        self._beanpole_before_apply()
        return bool(super()._SyncObj__applyLogEntries())

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        # H2: the library unpickles commands here. I2: it would retry after an exception in `apply`
        # for ever; here the exception leaves the tick, and the replica stops the node.
        if command[0] == OURS_NUMBER:
            self._beanpole_apply(command)

    def _SyncObj__tryLogCompaction(self) -> None:
        # F1, F4, F6: `snapshots.py` makes and publishes snapshots, and trims the log.
        return

    def _checkCommandsToApply(self) -> None:
        # `Core.append` proposes entries. The library's queue stays empty, and its forwarding of
        # commands to the leader (which loses them silently) is not used.
        return


class SerializerBase(Serializer):
    """The library's serializer with all of its work disabled: the base of `snapshots.Dump`."""

    def __init__(self) -> None:
        super().__init__(None, 1, False, None, None, None)

    def deserialize(self) -> tuple[None, Entry, Entry, set[Node]]:
        """Return the entries that represent the snapshot; overridden."""
        raise AssertionError("nothing to load")

    def getTransmissionData(self, transmissionID: Node) -> None:
        """Return None: the library then sends a message that `transport.py` swallows (F8)."""
        return

    def setTransmissionData(self, data: object) -> bool:
        """Refuse: snapshots do not travel in appends (B2, F5)."""
        return False

    def cancelTransmisstion(self, id: Node) -> None:
        """Do nothing: there are no transmissions."""
