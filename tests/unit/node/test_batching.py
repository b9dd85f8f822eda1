"""The time of the next entry: the leader waits for clients that usually return when answered."""

import pytest

from beanpoled.leading.batching import (
    EARLY_SHARE,
    PATIENCE_MAX_US,
    SKIPPED_MAX,
    USEFUL_MAX,
    USEFUL_MIN,
    AdaptiveBatching,
)

FLIGHT_US = 400
PATIENCE_US = FLIGHT_US * 5 // 2


class Clients:
    """Entries of a leader, with a clock."""

    def __init__(self) -> None:
        self.batching = AdaptiveBatching()
        self.now_us = 1_000_000

    def entry(self, commands: int, late: int = 0, flight_us: int = FLIGHT_US) -> None:
        """Commit an entry with a command of each client; `late` other commands arrive meanwhile."""
        self.batching.proposed(commands, self.now_us)
        self.now_us += flight_us
        self.batching.committed(late, late, self.now_us)

    def left_us(self, waiting: int, after_us: int = 0) -> int:
        self.now_us += after_us
        return self.batching.left_us(waiting, self.now_us)

    def pauses(self) -> int:
        """Return the number of entries that leave at once until one is delayed again."""
        count = 0
        while not self.left_us(0):
            count += 1
            assert count <= SKIPPED_MAX + 1
            self.entry(16)
        return count

    def fail(self) -> None:
        assert self.left_us(0) > 0
        assert self.left_us(0, after_us=PATIENCE_US) == 0


@pytest.fixture
def clients() -> Clients:
    return Clients()


def test_clients_that_were_answered_are_waited_for(clients: Clients) -> None:
    assert clients.left_us(1) == 0
    clients.entry(28, late=4)
    assert clients.batching.expected == 30
    assert clients.left_us(4) == PATIENCE_US
    assert clients.left_us(29, after_us=100) == PATIENCE_US - 100
    assert clients.left_us(30) == 0
    assert clients.batching.expected == 0


def test_two_groups_become_one(clients: Clients) -> None:
    clients.entry(32, late=32)
    assert clients.left_us(32) > 0
    assert clients.left_us(59) > 0
    assert clients.left_us(60) == 0


def test_one_client_is_never_waited_with(clients: Clients) -> None:
    for _ in range(10):
        clients.entry(1)
        assert clients.left_us(1) == 0


def test_few_clients_are_all_waited_for(clients: Clients) -> None:
    clients.entry(2, late=2)
    assert clients.left_us(3) > 0
    assert clients.left_us(4) == 0
    clients.entry(4)
    assert clients.left_us(3) > 0
    assert clients.left_us(4) == 0


@pytest.mark.parametrize("flight_us", [FLIGHT_US, 60_000])
def test_patience_has_an_end(clients: Clients, flight_us: int) -> None:
    patience_us = min(flight_us * 5 // 2, PATIENCE_MAX_US)
    clients.entry(16, flight_us=flight_us)
    assert clients.left_us(3) == patience_us
    assert clients.left_us(3, after_us=patience_us - 1) == 1
    assert clients.left_us(3, after_us=1) == 0
    assert clients.left_us(3) == 0


def test_what_does_not_come_back_is_tried_ever_less(clients: Clients) -> None:
    pauses = []
    for _ in range(9):
        clients.entry(16)
        pauses.append(clients.pauses())
        clients.fail()
    assert pauses == [0, 1, 3, 7, 15, 31, 63, SKIPPED_MAX, SKIPPED_MAX]


def test_commands_that_nobody_waited_for_are_no_sign(clients: Clients) -> None:
    """They reach the expected number, but also arrive in the next flight."""
    clients.entry(16)
    assert clients.left_us(15) == 0
    clients.entry(16, late=16 // EARLY_SHARE + 1)
    assert clients.pauses() == 1


def test_waits_that_came_along_with_their_batch_are_not_late(clients: Clients) -> None:
    clients.entry(16)
    assert clients.left_us(15) == 0
    clients.batching.proposed(16, clients.now_us)
    clients.now_us += FLIGHT_US
    clients.batching.committed(12, 0, clients.now_us)
    assert clients.left_us(12) > 0


def test_patience_is_not_renewed_without_another_entry(clients: Clients) -> None:
    """The entries of one commit may be applied in several turns."""
    clients.entry(16)
    assert clients.left_us(3, after_us=300) == PATIENCE_US - 300
    clients.batching.committed(9, 9, clients.now_us)
    assert clients.left_us(9) == PATIENCE_US - 300
    assert clients.batching.expected == 15


def test_a_try_of_use_ends_the_pauses(clients: Clients) -> None:
    for _ in range(4):
        clients.entry(16)
        clients.pauses()
        clients.fail()
    clients.entry(16)
    clients.pauses()
    assert clients.left_us(15) == 0
    clients.entry(16, late=16 // EARLY_SHARE)
    assert clients.left_us(5) > 0
    clients.fail()
    clients.entry(16)
    assert clients.pauses() == 1


def test_patience_doubles_while_tries_are_of_use(clients: Clients) -> None:
    clients.entry(16)
    for _ in range(USEFUL_MIN):
        assert clients.left_us(1) == PATIENCE_US
        assert clients.left_us(15) == 0
        clients.entry(16)
    assert clients.left_us(1) == 2 * PATIENCE_US
    assert clients.left_us(1, after_us=2 * PATIENCE_US) == 0
    clients.entry(16)
    assert clients.pauses() == 1
    assert clients.left_us(1) == PATIENCE_US, "too few were of use since"


def test_one_failure_among_many_tries_keeps_patience_long(clients: Clients) -> None:
    clients.entry(16)
    for _ in range(USEFUL_MAX + 1):
        clients.left_us(15)
        clients.entry(16)
    for patience_us in (2 * PATIENCE_US, 2 * PATIENCE_US, PATIENCE_US):
        clients.pauses()
        assert clients.left_us(1) == patience_us
        assert clients.left_us(1, after_us=patience_us) == 0
        clients.entry(16)


def test_a_new_term_expects_nobody(clients: Clients) -> None:
    clients.entry(16)
    clients.batching.forget()
    assert clients.left_us(0) == 0
    assert clients.batching.expected == 0
