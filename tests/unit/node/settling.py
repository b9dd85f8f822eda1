"""Let a stage come to rest: commit what its node proposes until it proposes nothing more.

One request of a client may take several entries, each proposed only when the one before is applied:
a reserve tries to take a job, waits, is granted one or has its wait ended, and what stands behind
it is submitted after that. A read waits until a majority has confirmed that the node leads.
"""

from typing import Final

from tests.unit.node.stage import Stage

# More than any test needs; a node that goes on proposes in a circle.
ROUNDS_MAX: Final = 50


def settle(stage: Stage) -> None:
    """Commit and confirm until there is nothing to do but for time that passes."""
    for _ in range(ROUNDS_MAX):
        stage.run()
        confirmed, stage.replica.confirmations = stage.replica.confirmations, []
        if not (stage.replica.proposed or confirmed):
            return
        stage.commit()
        for done in confirmed:
            done()
    raise AssertionError("the node proposes again and again")
