"""The gRPC service `NodeAdmin`: operators inspect and change one node.

This file only converts messages; other modules do the work.
"""

import asyncio
import time
from typing import Final, Protocol

import grpc
import grpc.aio

from beanpole.pb import node_admin_pb2, node_admin_pb2_grpc
from beanpoled.audit.log import AuditLog
from beanpoled.examining import Finding
from beanpoled.reloading import Outcome, Shown
from beanpoled.rpc.forwarding import Forwarder
from beanpoled.rpc.peer import PeerClient
from beanpoled.rpc.server import Context, fail
from beanpoled.view import NodeView

SERVICE: Final = node_admin_pb2.DESCRIPTOR.services_by_name["NodeAdmin"].full_name
# Reading a page may search files of 16 MiB.
READ_TIMEOUT_S: Final = 10.0


class Settings(Protocol):
    """The settings of a running node: see `supervision`."""

    def settings(self) -> list[Shown]:
        """Return all settings as they are in force."""

    def reload(self) -> Outcome:
        """Reload the settings."""

    def examine(self, view: NodeView) -> list[Finding]:
        """Examine the node: see `examining`."""


class NodeAdminServicer(node_admin_pb2_grpc.NodeAdminServicer):
    """Answers operators about this node, and forwards calls about other nodes."""

    def __init__(
        self, view: NodeView, peers: PeerClient, audit: AuditLog, settings: Settings
    ) -> None:
        self._view = view
        self._forwarder = Forwarder(view, peers, node_admin_pb2_grpc.NodeAdminStub)
        self._audit = audit
        self._settings = settings

    def add_to(self, server: grpc.aio.Server) -> str:
        """Add the service to a server; return its full name."""
        node_admin_pb2_grpc.add_NodeAdminServicer_to_server(self, server)
        return SERVICE

    async def ReadAudit(
        self, request: node_admin_pb2.ReadAuditRequest, context: Context
    ) -> node_admin_pb2.ReadAuditReply:
        forwarded = await self._forwarder.forwarded(
            "ReadAudit", request, node_admin_pb2.ReadAuditReply, context, READ_TIMEOUT_S
        )
        if forwarded is not None:
            return forwarded
        try:
            after_id = request.after_id
            if request.last_us:
                after_id = max(0, time.time_ns() // 1000 - request.last_us)
            page = await asyncio.to_thread(self._audit.page, after_id)
        except OSError as error:
            words = f"the audit log cannot be read: {error}"
            await fail(context, grpc.StatusCode.UNAVAILABLE, words, "AUDIT_UNREADABLE")
        return node_admin_pb2.ReadAuditReply(
            node=self._view.node_id,
            lines=[line.decode() for line in page.lines],
            complete=page.complete,
            lost=self._audit.lost,
        )

    async def ListSettings(
        self, request: node_admin_pb2.ListSettingsRequest, context: Context
    ) -> node_admin_pb2.ListSettingsReply:
        forwarded = await self._forwarder.forwarded(
            "ListSettings", request, node_admin_pb2.ListSettingsReply, context
        )
        if forwarded is not None:
            return forwarded
        return node_admin_pb2.ListSettingsReply(
            node=self._view.node_id,
            settings=[
                node_admin_pb2.Setting(
                    name=one.name,
                    value_json=one.value,
                    source=one.source,
                    live=one.is_live,
                    secret=one.is_secret,
                    waiting=one.is_waiting,
                )
                for one in self._settings.settings()
            ],
        )

    async def Reload(
        self, request: node_admin_pb2.ReloadRequest, context: Context
    ) -> node_admin_pb2.ReloadReply:
        forwarded = await self._forwarder.forwarded(
            "Reload", request, node_admin_pb2.ReloadReply, context
        )
        if forwarded is not None:
            return forwarded
        outcome = self._settings.reload()
        if outcome.wrong:
            words = f"{self._view.node_id} keeps its settings: {outcome.wrong}"
            await fail(context, grpc.StatusCode.FAILED_PRECONDITION, words, "BAD_CONFIGURATION")
        if outcome.refused:
            words = f"of {self._view.node_id}, {outcome.refused}"
            await fail(context, grpc.StatusCode.FAILED_PRECONDITION, words, "BAD_CERTIFICATES")
        return node_admin_pb2.ReloadReply(
            node=self._view.node_id, changed=outcome.changed, waiting=outcome.waiting
        )

    async def Examine(
        self, request: node_admin_pb2.ExamineRequest, context: Context
    ) -> node_admin_pb2.ExamineReply:
        forwarded = await self._forwarder.forwarded(
            "Examine", request, node_admin_pb2.ExamineReply, context
        )
        if forwarded is not None:
            return forwarded
        return node_admin_pb2.ExamineReply(
            node=self._view.node_id,
            findings=[
                node_admin_pb2.Finding(**one._asdict())
                for one in self._settings.examine(self._view)
            ],
            wall_us=time.time_ns() // 1000,
        )
