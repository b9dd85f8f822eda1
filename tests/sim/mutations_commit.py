"""Planted defects of `commit_path`, each with the check that notices it."""

from typing import Final

from beanpole.replication.pysyncobj.commit_path import CommitPath
from tests.sim import schedules as s
from tests.sim.mutant import Mutant, replicas
from tests.sim.mutations import Patch


def any_term_commits() -> list[Patch]:
    """A leader commits what a majority has, whatever the term of its last entry."""

    def commit(path: CommitPath) -> None:
        library = path._library
        index = min(path._journal.last, path.reached())
        library._SyncObj__raftCommitIndex = max(library._SyncObj__raftCommitIndex, index)

    return [(CommitPath, "_commit", commit)]


def one_is_a_majority() -> list[Patch]:
    """A leader commits what is in its own log."""

    def commit(path: CommitPath) -> None:
        path._library._SyncObj__raftCommitIndex = path._journal.last

    return [(CommitPath, "_commit", commit)]


def adds_without_its_leader() -> list[Patch]:
    """A follower takes entries of any leader as its own leader's."""
    return [(CommitPath, "follows", lambda *_: True)]


COMMIT: Final = (
    Mutant(
        "any_term_commits",
        "an entry of an earlier term commits by count (figure 8)",
        s.an_entry_of_an_earlier_term_on_a_majority,
        r"by counting members",
        any_term_commits,
    ),
    Mutant(
        "one_is_a_majority",
        "a leader commits what it has alone",
        replicas,
        r"committed here|is lost|another entry|differs",
        one_is_a_majority,
        seed=1,
    ),
    Mutant(
        "adds_without_its_leader",
        "a follower takes over no leader and no term",
        replicas,
        r"not equal|committed here|is lost|another entry",
        adds_without_its_leader,
        seed=1,
    ),
)
