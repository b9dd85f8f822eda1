"""A node that is made to differ: `python differing.py HOW PERIOD_S ARGUMENTS-OF-BEANPOLED`.

The daemon itself has no switch for this: here its main is run with one of its methods replaced.
HOW is `honest`, `transitions` (the marked job gets another number than elsewhere) or `image` (its
body is replaced, which no transition shows).
"""

import sys
from typing import Any, Final

from beanpoled import main
from beanpoled.leading import proposing
from beanpoled.turn.callbacks import ReplicaCallbacks

MARK: Final = b"the job that one node spoils"
SPOILT: Final = b"the job that one node spoilt"

_honest: Any = ReplicaCallbacks.apply


def spoil_transitions(node: ReplicaCallbacks, index: int, term: int, entry: bytes) -> None:
    """Give the marked job another number."""
    node._context.machine.queue.next_id += MARK in entry
    _honest(node, index, term, entry)


def spoil_image(node: ReplicaCallbacks, index: int, term: int, entry: bytes) -> None:
    """Keep another body for the marked job."""
    _honest(node, index, term, entry)
    for job in node._context.machine.queue.jobs.values() if MARK in entry else ():
        if job.body == MARK:
            job.body = SPOILT


HOWS: Final[dict[str, Any]] = {
    "honest": _honest,
    "transitions": spoil_transitions,
    "image": spoil_image,
}


def run(how: str, period_s: float, arguments: list[str]) -> None:
    """Run a node with the given arguments, which differs or not."""
    vars(proposing)["DIGEST_PERIOD_US"] = int(period_s * 1_000_000)
    type.__setattr__(ReplicaCallbacks, "apply", HOWS[how])
    sys.argv = ["beanpoled", *arguments]
    main.main()


if __name__ == "__main__":
    run(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
