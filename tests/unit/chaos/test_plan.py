"""The plan of a soak: decided by its seed, and dense enough to mean something."""

from chaos import plan


def test_the_seed_decides() -> None:
    assert plan.make_plan(7, 3) == plan.make_plan(7, 3)
    assert plan.make_plan(7, 3) != plan.make_plan(8, 3)


def test_twenty_minutes_hold_what_is_asked_for() -> None:
    made = plan.make_plan(1, 20)
    assert made.count(plan.KILL) >= 60
    assert made.count(plan.KILL_LEADER) >= 60
    assert made.count(plan.KILL_ALL) >= 6
    assert made.count(plan.FAIL_DISK) + made.count(plan.FILL_DISK) >= 6
    assert made.count(plan.WIPE) >= 2
    assert all(fault.at_s <= 20 * 60 for lane in made for fault in lane)


def test_a_short_soak_has_one_of_each() -> None:
    made = plan.make_plan(1, 0.1)
    for kind in (*plan.BREAKING, *plan.DISTURBING):
        assert made.count(kind) == 1
    for lane in made:
        assert lane == sorted(lane)
