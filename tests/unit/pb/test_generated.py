"""The committed code in cluster/beanpole/pb is the output of `make proto` from proto/."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    subprocess.run(
        ["make", "--silent", "--old-file=.venv/.ready", "proto", f"OUT={tmp_path}"],
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    fresh = {path.name: path.read_text() for path in (tmp_path / "beanpole/pb").iterdir()}
    committed = {
        path.name: path.read_text()
        for path in (ROOT / "cluster/beanpole/pb").iterdir()
        if "_pb2" in path.name and path.is_file()
    }
    assert sorted(fresh) == sorted(committed), "run `make proto` and commit the result"
    for name, text in fresh.items():
        assert text == committed[name], f"{name}: run `make proto` and commit the result"
