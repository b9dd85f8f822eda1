"""The Hatchling hook that adds compiled modules to a wheel: `BEANPOLE_COMPILE=1 pip wheel .`

Without the variable the wheel is pure Python and works everywhere. `compile.py` lists the compiled
modules and compiles them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH: Final = "BEANPOLE_COMPILE"
# Packages whose types mypy needs, in addition to the run-time dependencies.
TOOLS: Final = ("mypy>=1.15", "setuptools>=77", "types-grpcio>=1.0", "types-protobuf>=6.0")


class CompiledHook(BuildHookInterface[Any]):
    """Adds the extension modules beside their sources, which tracebacks show."""

    def dependencies(self) -> list[str]:
        """Return the packages that pip must install in the build environment."""
        return [*self.metadata.core.dependencies, *TOOLS] if self._is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, except for an editable install, which uses the sources as they are."""
        if version != "standard" or not self._is_wanted():
            return
        tree = Path(self.root, "build", "wheel")
        compiler = Path(self.root, "deploy", "compile.py")
        subprocess.run([sys.executable, str(compiler), "--tree", str(tree)], check=True)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in sorted(tree.rglob("*.so")):
            build_data["force_include"][str(path)] = str(path.relative_to(tree))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the tree, whose modules are in the wheel now."""
        shutil.rmtree(Path(self.root, "build", "wheel"), ignore_errors=True)

    def _is_wanted(self) -> bool:
        value = os.environ.get(SWITCH, "0")
        if value not in ("0", "1"):
            raise ValueError(f"{SWITCH} is {value!r}; it can be 0 or 1")
        return value == "1"
