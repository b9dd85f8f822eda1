"""The gRPC service `NodeAdmin`: one node as operators look at it and change it.

What the calls show and change belongs to other modules; here are their words on the wire.
"""

import asyncio
from typing import Final

import grpc
import grpc.aio

from beanpole.pb import node_admin_pb2, node_admin_pb2_grpc
from beanpoled.audit.log import AuditLog
from beanpoled.rpc.bringing import Bringer
from beanpoled.rpc.peer import PeerClient
from beanpoled.rpc.server import Context, fail
from beanpoled.view import NodeView

SERVICE: Final = node_admin_pb2.DESCRIPTOR.services_by_name["NodeAdmin"].full_name
# Files of 16 MiB are read through for a page.
READ_TIMEOUT_S: Final = 10.0


class NodeAdminServicer(node_admin_pb2_grpc.NodeAdminServicer):
    """Answers operators about this node, and brings calls about others to them."""

    def __init__(self, view: NodeView, peers: PeerClient, audit: AuditLog) -> None:
        self._view = view
        self._bringer = Bringer(view, peers, node_admin_pb2_grpc.NodeAdminStub)
        self._audit = audit

    def add_to(self, server: grpc.aio.Server) -> str:
        """Join a server; returns the service's full name."""
        node_admin_pb2_grpc.add_NodeAdminServicer_to_server(self, server)
        return SERVICE

    async def ReadAudit(
        self, request: node_admin_pb2.ReadAuditRequest, context: Context
    ) -> node_admin_pb2.ReadAuditReply:
        brought = await self._bringer.brought("ReadAudit", request, context, READ_TIMEOUT_S)
        if brought is not None:
            found: node_admin_pb2.ReadAuditReply = brought
            return found
        try:
            page = await asyncio.to_thread(self._audit.page, request.after_id)
        except OSError as error:
            words = f"the audit log cannot be read: {error}"
            await fail(context, grpc.StatusCode.UNAVAILABLE, words, "AUDIT_UNREADABLE")
        return node_admin_pb2.ReadAuditReply(
            node=self._view.node_id,
            lines=[line.decode() for line in page.lines],
            complete=page.complete,
            lost=self._audit.lost,
        )
