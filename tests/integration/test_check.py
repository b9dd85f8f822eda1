"""`beanpoled --check` on real configurations, disks and ports: it changes nothing.

A real start reports the same problems.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanpoled.main import EXIT_CONFIGURATION
from tests.integration.support.authority import Authority
from tests.integration.support.nodes import Cluster

FOREIGN = "192.0.2.1:11310"  # reserved for documentation, so the address of no machine


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster", count=2)
    yield cluster
    cluster.close()


def start(cluster: Cluster, *arguments: str) -> tuple[int, str]:
    """Start the first node, which must end by itself; return its exit status and output."""
    command = [*cluster.command(0), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def check(cluster: Cluster, *arguments: str) -> tuple[int, str]:
    """Check the first node; return the exit status and output."""
    return start(cluster, "--check", *arguments)


def files(directory: Path) -> list[tuple[str, int, int]]:
    """Return all paths in a directory with their sizes and modification times."""
    return sorted(
        (str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in directory.rglob("*")
    )


def test_a_configuration_that_fits_its_machine(cluster: Cluster) -> None:
    before = files(cluster.directory)
    status, said = check(cluster)
    assert status == 0, said
    assert "wrong" not in said and "does not exist yet, a start makes it" in said
    assert files(cluster.directory) == before, "nothing was made"


def test_certificates(cluster: Cluster, tmp_path: Path) -> None:
    """An unusable file ends a start; a start goes on with one that other nodes would refuse."""
    authority = Authority(tmp_path / "ca")
    paths, key = authority.make("n0")
    other, others_key = authority.make("n7")
    given = ["--peer-tls-ca-file", authority.ca]

    def pair(path: str, its_key: str) -> list[str]:
        return [*given, "--peer-tls-certificate-file", path, "--peer-tls-key-file", its_key]

    status, said = check(cluster, *pair(paths, key))
    assert status == 0
    assert f"peer_tls_certificate_file: {paths} fits its key, and expires in 30 days" in said
    status, said = check(cluster, *pair(other, others_key))
    assert status == 0 and "warning: peer_tls_certificate_file" in said
    assert "other nodes would refuse it: Hostname mismatch" in said
    crl = ["--peer-tls-crl-file", authority.revoke(until="20200102000000Z")]
    status, said = check(cluster, *pair(paths, key), *crl)
    assert status == 1 and f"wrong: peer_tls_crl_file: {crl[1]} has expired " in said
    for its_key, words in ((others_key, "key values mismatch"), ("/nowhere", "No such file")):
        status, said = check(cluster, *pair(paths, its_key))
        ended, told = start(cluster, *pair(paths, its_key))
        assert status == ended == EXIT_CONFIGURATION
        assert words in said and words in told


def test_what_is_wrong_with_the_machine(cluster: Cluster) -> None:
    host, _, port = cluster.nodes[0].http.rpartition(":")
    with socket.create_server((host, int(port))):
        status, said = check(cluster, "--disk-reserve-bytes=1024GiB")
        ended, told = start(cluster)
    assert status == ended == 1
    assert f"cannot listen: http_listen: {host}:{port} is in use by another program\n" in told
    assert f"wrong: http_listen: {host}:{port} is in use by another program\n" in said
    assert "puts are refused below 1048576 MiB" in said


def test_what_is_wrong_with_the_configuration(cluster: Cluster) -> None:
    here = cluster.nodes[0]
    members = f"n0={FOREIGN}/{here.grpc},n1=[fe80::1%nowhere]:1/{here.http}"
    status, said = check(cluster, f"--http-listen={FOREIGN}", f"--members={members}")
    assert status == EXIT_CONFIGURATION
    assert f"wrong configuration: http_listen: {FOREIGN} is no address of this machine\n" in said
    assert f"peer_listen = {here.peer}, and members.n0 tells the others {FOREIGN}" in said
    assert "wrong: members.n1: [fe80::1%nowhere]:1: " in said
    status, said = check(cluster, "--durability=paper")
    assert (status, "durability = 'paper'" in said) == (EXIT_CONFIGURATION, True)


def test_a_node_that_runs_and_then_a_disk_of_another(cluster: Cluster) -> None:
    cluster.start_all()
    status, said = check(cluster)
    assert status == 0, said
    assert "a node runs on this directory" in said and "is a voter of the cluster" in said
    cluster.kill(0)
    data = cluster.nodes[0].directory / "data"
    before = files(data)
    status, said = check(cluster, f"--data-dir={cluster.nodes[1].directory / 'data'}")
    assert status == EXIT_CONFIGURATION and "belongs to node n1" in said
    (data / "identity").unlink()
    status, said = check(cluster)
    assert status == 1 and "not a whole data directory" in said
    assert files(data) == [entry for entry in before if not entry[0].endswith("/identity")]


def test_a_directory_that_cannot_be_made(cluster: Cluster) -> None:
    assert sys.platform == "linux", "root may write anywhere but in /proc"
    status, said = check(cluster, f"--data-dir=/proc/{os.getpid()}/beanpole")
    assert status == 1 and "cannot be made: " in said


def test_a_file_where_the_data_directory_should_be(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "below"):
        status, said = check(cluster, f"--data-dir={place}")
        assert status == EXIT_CONFIGURATION
        assert f"wrong configuration: data_dir {place} " in said and "is no directory\n" in said
        status, said = start(cluster, f"--data-dir={place}")
        assert status == EXIT_CONFIGURATION
        assert f"fatal: data_dir = '{place}' is not allowed: it must be a directory" in said
