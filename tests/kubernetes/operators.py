"""Check custom resources against the schemas of their operator: `python operators.py FILE`.

It runs in the environment build/kubernetes, which has the schemas as models of pydantic; the
project's own environment does not. kubernetes-validate checks the kinds of Kubernetes itself.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

# Imported by name, because the type checker does not see that environment.
V1: Final[Any] = importlib.import_module("cloudcoil.models.prometheus_operator.v1")
INVALID: Final[Any] = importlib.import_module("pydantic").ValidationError
KINDS: Final = {"PrometheusRule": V1.PrometheusRule, "ServiceMonitor": V1.ServiceMonitor}


def lost(given: Any, kept: Any, path: str) -> Iterator[str]:
    """Yield the paths of fields that a model has dropped, as its operator does not know them."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name in given:
            if name in kept:
                yield from lost(given[name], kept[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from lost(one, other, f"{path}[{number}]")
    elif given != kept:
        yield path


def complaints(manifest: dict[str, Any]) -> Iterator[str]:
    """Yield the errors of one resource."""
    name = f"{manifest['kind']} {manifest['metadata']['name']}"
    try:
        read = KINDS[manifest["kind"]].model_validate(manifest)
    except INVALID as error:
        yield f"{name}: {error}"
        return
    kept = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for path in lost(manifest, kept, ""):
        yield f"{name} has the unknown field {path}"


def main() -> None:
    """Print all errors, and exit with status 1 if there are any."""
    manifests = list(yaml.safe_load_all(Path(sys.argv[1]).read_text()))
    found = [line for one in manifests for line in complaints(one)]
    sys.stdout.write("\n".join([*found, f"{len(manifests)} checked\n"]))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
