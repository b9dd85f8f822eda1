"""The scripts that a node keeps."""

from beanpoled.frontends.qless.scripts import SCRIPTS_MAX, Scripts
from tests.unit.beanpoled.qless_scene import SCRIPT


def test_what_a_script_declares_beside_calls_is_not_kept() -> None:
    """There may be half a megabyte of it in each of a thousand scripts."""
    scripts = Scripts()
    more = b"".join([b"QlessAPI.my%d(now)\n" % number for number in range(10_000)])
    sha, script = scripts.load(SCRIPT + more)
    assert script is scripts.find(sha) is scripts.load(SCRIPT + more)[1]
    assert script is not None
    usual = scripts.load(SCRIPT)[1]
    assert usual is not None
    assert (
        script.names
        == usual.names
        == {b"put", b"pop", b"get", b"peek", b"requeue", b"fail", b"config.set"}
    )
    assert script.sha != usual.sha


def test_the_oldest_script_makes_room() -> None:
    scripts = Scripts()
    shas = [scripts.load(SCRIPT + b"-- %d" % number)[0] for number in range(SCRIPTS_MAX + 1)]
    assert scripts.find(shas[0]) is None
    assert None not in [scripts.find(sha.upper()) for sha in shas[1:]]
    scripts.flush()
    assert scripts.find(shas[-1]) is None
