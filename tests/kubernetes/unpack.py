"""Extract helm and kubectl from the package that has them: `python unpack.py PACKAGE FOLDER`."""

import io
import stat
import sys
import tarfile
import zipfile
from pathlib import Path

PROGRAMS = {"helm/helm": "helm", "kubectl/kubectl": "kubectl"}


def main() -> None:
    """Write both programs into a folder."""
    package, folder = Path(sys.argv[1]), Path(sys.argv[2])
    archive = next(package.rglob("lambda-layer-kubectl-*.jsii.tgz"))
    with tarfile.open(archive) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        assert layer, f"{archive} has no layer.zip"
        inner = zipfile.ZipFile(io.BytesIO(layer.read()))
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in PROGRAMS.items():
        path = folder / program
        path.write_bytes(inner.read(name))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


if __name__ == "__main__":
    main()
