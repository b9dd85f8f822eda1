"""The plan of a soak: determined by its seed, and dense enough to be meaningful."""

import pytest

from chaos import plan


def test_the_seed_decides() -> None:
    assert plan.make_plan(7, 3) == plan.make_plan(7, 3)
    assert plan.make_plan(7, 3) != plan.make_plan(8, 3)


@pytest.mark.parametrize("minutes", [0.35, 1, 2.5, 3, 20, 60])
def test_every_seed_plans_what_is_asked_for(minutes: float) -> None:
    for seed in range(50):
        made = plan.make_plan(seed, minutes)
        kinds = [fault.kind for lane in made for fault in lane]
        assert plan.shortfalls(kinds, minutes) == []
        assert all(fault.at_s <= minutes * 60 for lane in made for fault in lane)


def test_what_is_asked_for_in_twenty_minutes() -> None:
    assert list(plan.asked_for(20).values()) == [60, 60, 6, 6, 2]
    assert list(plan.asked_for(60).values()) == [180, 180, 18, 18, 6]
    assert list(plan.asked_for(1).values()) == [3, 3, 0, 0, 0]


@pytest.mark.parametrize("kind", [plan.KILL, plan.KILL_LEADER, plan.KILL_ALL, plan.WIPE])
def test_a_run_that_did_less_is_told(kind: str) -> None:
    done = [fault.kind for lane in plan.make_plan(3, 20) for fault in lane if fault.kind != kind]
    (told,) = plan.shortfalls(done, 20)
    assert told.startswith("only 0 ")


@pytest.mark.parametrize("minutes", [0.35, 1, 20])
def test_power_is_cut_only_where_disks_forget(minutes: float) -> None:
    for seed in range(20):
        made = plan.make_plan(seed, minutes, plan.POWER)
        kinds = [fault.kind for lane in made for fault in lane]
        assert plan.shortfalls(kinds, minutes, plan.POWER) == []
        assert min(made.count(plan.POWER_CUT), made.count(plan.POWER_CUT_ALL)) >= 1
        assert plan.make_plan(seed, minutes).count(plan.POWER_CUT) == 0
    assert plan.asked_for(20, plan.POWER)["power cuts of all nodes at once"] == 20


def test_a_calm_plan_ends_no_process_and_asks_for_none() -> None:
    made = plan.make_plan(1, 20, plan.CALM)
    assert made.breaking == []
    assert {fault.kind for fault in made.disturbing} == {*plan.DISTURBING}
    assert plan.asked_for(20, plan.CALM) == {}


def test_full_and_failing_disks_count_together() -> None:
    rest = [plan.KILL] * 60 + [plan.KILL_LEADER] * 60 + [plan.KILL_ALL] * 6 + [plan.WIPE] * 2
    assert plan.shortfalls([*rest, *[plan.FAIL_DISK] * 4, *[plan.FILL_DISK] * 2], 20) == []
    assert plan.shortfalls([*rest, *[plan.FAIL_DISK] * 5], 20) == [
        "only 5 full or failing disks, 6 are asked for in 20 minutes"
    ]


def test_a_short_soak_has_one_of_each() -> None:
    made = plan.make_plan(1, 0.1)
    for kind in (*plan.BREAKING, *plan.DISTURBING):
        assert made.count(kind) == 1
    for lane in made:
        assert lane == sorted(lane)
