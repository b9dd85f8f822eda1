"""The machine against a naive model: any calls have the same replies and messages."""

import pytest

from beanpole import qless as q
from tests.unit.core.qless.beside_model import shortened, walk

STEPS = 300


def story(seed: int, flavour: int, steps: int = STEPS) -> str:
    """Return the difference that a walk found and the calls that it needs, or ""."""
    done, found = walk(seed, flavour, steps)
    if not found:
        return ""
    lines = [f"seed {seed}, flavour {flavour}, after {len(done)} calls: {found}"]
    return "\n".join([*lines, *(str(step) for step in shortened(done, flavour))])


@pytest.mark.parametrize("flavour", [q.CORE, q.THROTTLES, q.DOTTED])
@pytest.mark.parametrize("seed", range(5))
def test_the_machine_does_what_the_model_does(seed: int, flavour: int) -> None:
    found = story(seed, flavour)
    assert not found, found


@pytest.mark.slow
@pytest.mark.parametrize("flavour", [q.CORE, q.THROTTLES, q.DOTTED])
def test_many_walks(flavour: int) -> None:
    for seed in range(1000, 1060):
        found = story(seed, flavour)
        assert not found, found
