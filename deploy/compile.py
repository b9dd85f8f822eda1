"""Build build/compiled: the two packages with the modules of the hot path compiled by mypyc.

    make compiled        (or: .venv/bin/python deploy/compile.py)
    PYTHONPATH=$PWD/build/compiled .venv/bin/beanpole up

The compiled modules behave like their sources; only the speed differs. The tree is a copy that must
be selected explicitly, so that an edited source is never hidden behind an old compiled one.
`build_hook.py` makes the compiled wheel from such a tree. Needs a C compiler and the headers of
Python. The comments below say what is compiled, and why the rest is not.
"""

import argparse
import importlib.util
import os
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

ROOT: Final = Path(__file__).resolve().parent.parent
TREE: Final = ROOT / "build" / "compiled"
PACKAGES: Final = (ROOT / "cluster" / "beanpole", ROOT / "node" / "beanpoled")

# The path of a command, from bytes to bytes. Not compiled: classes that inherit from those of a
# library (SyncObj and Node: their attributes would stay in a dict), generated code, and code that
# runs once or serves people.
MODULES: Final = (
    "beanpole/commands.py",
    "beanpole/constants.py",
    "beanpole/errors.py",
    "beanpole/events.py",
    "beanpole/weights.py",
    "beanpole/core/*.py",
    "beanpole/core/*/*.py",
    "beanpole/protocol/receive_buffer.py",
    "beanpole/protocol/beanstalk/*.py",
    "beanpole/protocol/gearman/*.py",
    "beanpole/protocol/resp/*.py",
    "beanpole/protocol/qless/*.py",
    "beanpole/protocol/workq/*.py",
    "beanpole/storage/ballast.py",
    "beanpole/storage/disk_handle.py",
    "beanpole/storage/files.py",
    "beanpole/storage/format.py",
    "beanpole/storage/readonly.py",  # inherits from classes in the files above
    "beanpole/storage/segment.py",
    "beanpole/storage/wal.py",
    "beanpole/storage/writer.py",
    "beanpole/replication/consensus.py",
    "beanpole/replication/pysyncobj/acks.py",
    "beanpole/replication/pysyncobj/appends.py",
    "beanpole/replication/pysyncobj/backend.py",
    "beanpole/replication/pysyncobj/commit_path.py",
    "beanpole/replication/pysyncobj/core.py",
    "beanpole/replication/pysyncobj/elections.py",
    "beanpole/replication/pysyncobj/fetch_sink.py",
    "beanpole/replication/pysyncobj/journal.py",
    "beanpole/replication/pysyncobj/messages.py",
    "beanpole/replication/pysyncobj/rejoin.py",
    "beanpole/replication/pysyncobj/repairs.py",
    "beanpole/replication/pysyncobj/room.py",
    "beanpole/replication/pysyncobj/seam.py",
    "beanpole/replication/pysyncobj/shared.py",
    "beanpole/replication/pysyncobj/snapshot_header.py",
    "beanpole/replication/pysyncobj/snapshots.py",
    "beanpole/replication/pysyncobj/transfer.py",
    "beanpole/replication/pysyncobj/transport.py",
    "beanpole/replication/pysyncobj/transport_base.py",
    "beanpoled/peers/agreement.py",
    "beanpoled/host/aio.py",
    "beanpoled/host/aio_clients.py",
    "beanpoled/host/aio_peers.py",
    "beanpoled/host/tls_stream.py",
    "beanpoled/origin/batches.py",
    "beanpoled/frontends/*.py",
    "beanpoled/frontends/beanstalk/*.py",
    "beanpoled/frontends/gearman/*.py",
    "beanpoled/frontends/qless/*.py",
    "beanpoled/frontends/workq/*.py",
    "beanpoled/rpc/call.py",
    "beanpoled/shared/clock.py",
    "beanpoled/shared/context.py",
    "beanpoled/peers/digest.py",
    "beanpoled/turn/disk_health.py",
    "beanpoled/eventlog/latencies.py",
    "beanpoled/eventlog/sketch.py",
    "beanpoled/eventlog/store.py",
    "beanpoled/leading/early.py",
    "beanpoled/leading/unwaits.py",
    "beanpoled/links/frames.py",
    "beanpoled/leading/batching.py",
    "beanpoled/leading/commit_times.py",
    "beanpoled/host/seam.py",
    "beanpoled/origin/heavy.py",
    "beanpoled/origin/waits.py",
    "beanpoled/origin/leader_link.py",
    "beanpoled/leading/inbox.py",
    "beanpoled/leading/leader.py",
    "beanpoled/leading/dispatching.py",
    "beanpoled/leading/proposing.py",
    "beanpoled/leading/saved_clock.py",
    "beanpoled/leading/term.py",
    "beanpoled/turn/lifecycle.py",
    "beanpoled/links/link.py",
    "beanpoled/turn/node.py",
    "beanpoled/turn/callbacks.py",
    "beanpoled/turn/heartbeats.py",
    "beanpoled/turn/roles.py",
    "beanpoled/turn/routing.py",
    "beanpoled/origin/opening.py",
    "beanpoled/origin/outbox.py",
    "beanpoled/peers/peers.py",
    "beanpoled/leading/versions.py",
    "beanpoled/leading/waiting.py",
)
C_FLAGS: Final = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
MYPY_CONFIG: Final = """\
[mypy]
strict = True
mypy_path = .:{typings}
explicit_package_bases = True
untyped_calls_exclude = beanpole.pb
[mypy-beanpole.pb.*]
ignore_errors = True
[mypy-pyarrow.*]
ignore_missing_imports = True
"""


# Written last into a complete tree, as a copy of this file: `make compiled` compares its time with
# the sources', `beanpole up` its contents.
MARK: Final = ".ready"


def main() -> int:
    """Build the tree anew; return the exit status."""
    parser = argparse.ArgumentParser(prog="compile", description=__doc__)
    parser.add_argument("--tree", type=Path, default=TREE, help="where to build (emptied first)")
    tree: Path = parser.parse_args().tree.resolve()
    if missing := find_missing():
        print(f"compile: {missing}")
        return 1
    shutil.rmtree(tree, ignore_errors=True)
    for package in PACKAGES:
        shutil.copytree(package, tree / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    os.chdir(tree)
    count = build(tree)
    Path(MARK).write_bytes(Path(__file__).read_bytes())
    print(f"compiled {count} modules into {os.path.relpath(tree, ROOT)}")
    return 0


def find_missing() -> str:
    """Return in one line what is not installed and where to get it; empty if nothing is missing."""
    for module in ("mypyc", "setuptools"):
        if importlib.util.find_spec(module) is None:
            return f"there is no module {module}: mypy and setuptools are in the extra 'dev'"
    if shutil.which(os.environ.get("CC", "cc")) is None:
        return "there is no C compiler (Debian: apt-get install gcc)"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "there is no Python.h (Debian: apt-get install python3-dev)"
    return ""


def build(tree: Path) -> int:
    """Compile the modules of a tree, which is the current directory; return their number."""
    from mypyc.build import mypycify
    from setuptools import Extension, setup
    from setuptools.command.build_ext import build_ext

    class Parallel(build_ext):
        """Compiles the files of an extension in parallel: nearly all belong to a single one."""

        def build_extensions(self) -> None:
            compile_some = self.compiler.compile

            def compile_all(sources: list[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    done = pool.map(lambda one: compile_some([one], **options), sources)
                    return [path for paths in done for path in paths]

            self.compiler.compile = compile_all
            super().build_extensions()

    Path("mypy.ini").write_text(MYPY_CONFIG.format(typings=ROOT / "typings"))
    sources = [str(path) for pattern in MODULES for path in sorted(Path().glob(pattern))]
    sources = [source for source in sources if not source.endswith("__init__.py")]
    # Assertions stay: a broken assumption must stop the node here, too. Each module becomes a C
    # file of its own: a single file takes the C compiler twice as long, and makes no node faster.
    extensions = mypycify(
        ["--config-file=mypy.ini", *sources], opt_level="2", debug_level="0", multi_file=True
    )
    extensions += [
        Extension(
            "beanpole.storage._syncer", ["beanpole/storage/syncer.c"], extra_compile_args=C_FLAGS
        )
    ]
    for extension in extensions:
        # The output is the same wherever the tree is. mypyc's extensions share one list of flags.
        flags = ["-g0", f"-ffile-prefix-map={tree}=."]
        extension.extra_compile_args = [*extension.extra_compile_args, *flags]
    setup(
        name="beanpole-compiled",
        packages=[],
        py_modules=[],
        ext_modules=cast(list[Extension], extensions),  # older stubs know two Extension classes
        cmdclass={"build_ext": Parallel},
        script_args=["--quiet", "build_ext", "--inplace"],
    )
    shutil.rmtree("build", ignore_errors=True)
    return len(sources)


if __name__ == "__main__":
    sys.exit(main())
