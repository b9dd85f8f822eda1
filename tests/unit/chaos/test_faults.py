"""The threads that apply faults: an error that ends one of them is a finding."""

from pathlib import Path

from chaos import plan
from chaos.faults import Nemesis
from chaos.ground import Ground


def test_an_error_of_any_kind_in_a_fault_is_a_finding(tmp_path: Path) -> None:
    """Otherwise the lane ends, and a short run looks good with faults that never came."""
    ground = Ground(tmp_path)
    try:
        lane = [plan.Fault(0.0, "unknown to the faults", 1), plan.Fault(0.0, plan.CLOCK, 2)]
        nemesis = Nemesis(ground, plan.Plan(lane, []), lambda _: None)
        nemesis.run()
    finally:
        ground.close()
    assert nemesis.done == []
    assert ground.findings == ["unknown to the faults: KeyError: 'unknown to the faults'"]
