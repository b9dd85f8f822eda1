"""Detect performance regressions: compare ratios to beanstalkd with recorded ones.

A ratio to a peer from the same round remains meaningful on another day, even if the machine is a
little slower then; op/s do not. It still holds for one machine only: on another machine, record
first.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.processes import BenchError
from bench.results import BASELINE, Results, Spread, groups, ratios, spread

RECORDED: Final = Path(__file__).resolve().parent / "recorded.json"
# A smaller loss is never reported: two rounds may agree by chance better than a third would.
SPREAD_MIN: Final = 0.1
# A larger loss is always reported, however much the rounds differ. Where they differ by more, no
# loss of this size can be told from chance.
SPREAD_MAX: Final = 0.2
# The parts of a machine without which ratios cannot be compared.
SAME: Final = ("processor", "system", "python")

Ratios = Mapping[str, Spread]


def ratios_of(results: Results) -> dict[str, Spread]:
    """Return the ratio of each system to the baseline, by a descriptive name."""
    found: dict[str, Spread] = {}
    for load, system, connections in groups(results.figures):
        if system == BASELINE:
            continue
        values = ratios(results.figures, system, BASELINE, load, connections)
        if values:
            found[f"{system}, {load}, {connections} connections"] = spread(values)
    if not found:
        raise BenchError(f"no ratios: {BASELINE} was not measured (apt-get install beanstalkd)")
    return found


def slower(recorded: Ratios, measured: Ratios) -> list[str]:
    """Return the ratios that fell by more than the spread of both runs, and the missing ones.

    The spread counts up to a fifth of a ratio. beanstalkd itself is not checked.
    """
    found: list[str] = []
    for name, old in recorded.items():
        if name.startswith("beanstalkd"):
            continue
        new = measured.get(name)
        if new is None:
            found.append(f"{name}: recorded, but not measured now")
            continue
        allowed = max(SPREAD_MIN * old.median, (old.high - old.low) + (new.high - new.low))
        allowed = min(allowed, SPREAD_MAX * old.median)
        if new.median < old.median - allowed:
            found.append(
                f"{name}: {new.median:.2f} times {BASELINE}, recorded {old.median:.2f}, "
                f"allowed from {old.median - allowed:.2f}"
            )
    return found


def unclear(measured: Ratios) -> list[str]:
    """Return the ratios whose rounds differ too much to be compared."""
    return [
        f"{name}: its rounds are from {one.low:.2f} to {one.high:.2f}"
        for name, one in measured.items()
        if one.high - one.low > SPREAD_MAX * one.median and not name.startswith("beanstalkd")
    ]


def record(results: Results, path: Path) -> int:
    """Write the ratios of a run to a file; return their number."""
    found = ratios_of(results)
    kept = {
        "set": results.set,
        "at": results.at,
        "machine": results.machine,
        "baseline": BASELINE,
        "ratios": {name: [round(part, 3) for part in one] for name, one in found.items()},
    }
    path.write_text(json.dumps(kept, indent=1) + "\n")
    return len(found)


def elsewhere(path: Path, machine: Mapping[str, str]) -> str:
    """Return in words how the recorded machine differs from this one; empty if it does not."""
    recorded = json.loads(path.read_text()).get("machine", {})
    # Python's path is left out: each checkout has another one.
    differ = [
        name
        for name in SAME
        if recorded.get(name, "").partition(" of ")[0] != machine.get(name, "").partition(" of ")[0]
    ]
    if not differ:
        return ""
    told = "; ".join(f"{name}: {recorded.get(name, 'unknown')}" for name in differ)
    return f"the ratios are those of another machine ({told}): record first"


def load(path: Path) -> dict[str, Spread]:
    """Read recorded ratios; BenchError if there are none or they are invalid."""
    try:
        found = json.loads(path.read_text())["ratios"]
        return {name: Spread(*values) for name, values in found.items()}
    except FileNotFoundError:
        raise BenchError(
            f"nothing is recorded in {path}: `python -m bench quick`, then `python -m bench record`"
        ) from None
    except (ValueError, TypeError, KeyError) as error:
        raise BenchError(f"{path} is not a file of recorded ratios: {error}") from error
