"""At its start a node reports which machines reach it: by default only its own."""

from typing import Any

from beanpoled.config import node as config
from beanpoled.config import reach

LEAST = {
    "cluster": "dev",
    "node_id": "a",
    "data_dir": "/var/lib/beanpole",
    "members": "a=127.0.0.1:11310/127.0.0.1:11320",
    "peer_listen": "127.0.0.1:11310",
    "grpc_listen": "127.0.0.1:11320",
    "http_listen": "127.0.0.1:11330",
}
NAMES = ("workq", "gearman", "qless")


def words(**settings: Any) -> str:
    return reach.words(config.load(None, {}, LEAST | settings))


def test_what_must_be_given_is_enough_for_loopback() -> None:
    assert words() == (
        "only this machine reaches the node, which listens at 127.0.0.1:11300 (beanstalk), "
        "127.0.0.1:9922 (workq), 127.0.0.1:4730 (gearman), 127.0.0.1:6380 (qless), "
        "127.0.0.1:11310 (nodes), 127.0.0.1:11320 (gRPC), 127.0.0.1:11330 (HTTP)"
    )


def test_what_others_reach_comes_first() -> None:
    found = words(listen="10.0.0.1:11300,unix:/run/b", http_listen="0.0.0.0:11330")
    assert found.startswith(
        "other machines reach 10.0.0.1:11300 (beanstalk), 0.0.0.0:11330 (HTTP); "
        "only this one unix:/run/b (beanstalk), 127.0.0.1:9922 (workq), "
    )
    far = {name: f"10.0.0.1:{port}" for name, port in (("peer_listen", 1), ("grpc_listen", 2))}
    listeners = ",".join(f"{name}=10.0.0.1:{at}" for at, name in enumerate(NAMES, 4))
    everywhere = words(
        **far,
        http_listen="10.0.0.1:3",
        listen="10.0.0.1:7",
        listeners=listeners,
        peer_secret="x" * 32,
    )
    assert everywhere.startswith("other machines reach ") and "only" not in everywhere


def test_tls_is_named() -> None:
    files = {"tls_certificate_file": "/c", "tls_key_file": "/k"}
    found = words(listen="tls:0.0.0.0:11301", **files)
    assert found.startswith("other machines reach 0.0.0.0:11301 (beanstalk, TLS); only this one ")
