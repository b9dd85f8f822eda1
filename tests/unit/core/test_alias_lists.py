"""Lists of tubes with aliases are equal on a node that ran on and on one that loaded an image."""

from beanpole import commands as c
from tests.unit.core.cluster import copy_of
from tests.unit.core.test_aliases import BEANSTALK, WORKQ, Bridged


def test_aliases_are_listed_by_name_also_after_an_image_is_loaded() -> None:
    names = [b"\x01c", b"\x01a", b"\x01b"]
    cluster = Bridged(*[(name, name[1:]) for name in names])
    for name in names:
        cluster.watch(BEANSTALK, name[1:])
    for _ in range(2):
        assert cluster.do(c.LIST_TUBES, WORKQ) == tuple(sorted(names))
        cluster.machine = copy_of(cluster.machine)
