"""The names in a client's certificate: that of the audit log, and those that rules compare."""

from typing import Any, cast

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.users import ADMIN
from beanpole.events import GEARMAN, QLESS
from beanpoled.audit.entry import Entry
from beanpoled.host.aio_clients import ClientProtocol
from tests.unit.beanpoled.auth_scene import LEE, give_users
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.beanpoled.test_unread import Transport


class Shown(Transport):
    """A transport whose client has shown a certificate."""

    def __init__(self, certificate: dict[str, Any]) -> None:
        super().__init__(room=10**9)
        self.certificate = certificate

    def connect(self, node: Any, protocol: str) -> ClientProtocol:
        self.protocol = ClientProtocol(node.frontends[protocol], is_tls=True)
        self.protocol.connection_made(cast(Any, self))
        return self.protocol

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.certificate if name == "peercert" else super().get_extra_info(name, default)


SUBJECT = ((("organizationName", "o"),), (("commonName", "laptop"),))
ZOE_AND_ADAM = {"subject": SUBJECT, "subjectAltName": (("DNS", "zoe"), ("DNS", "adam"))}


@pytest.mark.parametrize(
    ("certificate", "rule", "name", "user"),
    [
        (ZOE_AND_ADAM, b"zoe", "zoe", "lee"),
        (ZOE_AND_ADAM, b"adam", "zoe", "lee"),
        (ZOE_AND_ADAM, b"laptop", "zoe", ""),
        ({"subject": SUBJECT}, b"laptop", "laptop", ""),
        ({}, b"laptop", "", ""),
    ],
)
@pytest.mark.parametrize(
    ("protocol", "number", "line"),
    [("gearman", GEARMAN, b"create function f\n"), ("qless", QLESS, b"FLUSHALL\r\n")],
)
def test_the_name_in_the_audit_log_and_those_of_rules(
    protocol: str,
    number: int,
    line: bytes,
    certificate: dict[str, Any],
    rule: bytes,
    name: str,
    user: str,
) -> None:
    """The log had the first name by the alphabet, and none of a certificate without DNS names."""
    scene = FollowerScene(qless_flush="on")
    give_users(scene, number, (b"*", ADMIN))
    scene.others((c.SET_RULES, 1, msgpack.packb([(0, b"", rule, LEE)])))
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    Shown(certificate).connect(scene.node, protocol).data_received(line)
    scene.commit_own()
    assert [(one.certificate, one.user) for one in told] == [(name, user)]
