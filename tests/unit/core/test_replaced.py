"""A machine that a snapshot has replaced is freed, also when an image of it was given up."""

import gc

import pytest

from beanpole import commands as c
from beanpole.core.image.image import Image
from beanpole.core.machine import Machine
from tests.unit.core.cluster import Cluster


def machines() -> int:
    return sum(type(one) is Machine for one in gc.get_objects())


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("version", [2, c.MACHINE_VERSION])
@pytest.mark.parametrize("chunks", [0, 1, 2, 3])
def test_an_image_that_is_given_up_keeps_no_machine(version: int, chunks: int) -> None:
    before = machines()
    cluster = Cluster()
    cluster.lead((c.RAISE, version))
    cluster.put()
    image = Image(cluster.machine)
    for _ in range(chunks):
        assert image.next_chunk()
    image.close()
    del image, cluster
    assert machines() == before
