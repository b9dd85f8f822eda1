"""Run the snippets of a page in order, as a notebook does: a separate program.

Only the snippets import Beanpole, and no environment is activated, so a step that the page omits
makes a snippet fail.
"""

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> int:
    """Run the blocks of a JSON file, the first argument: each is [language, place, text]."""
    blocks = json.loads(Path(sys.argv[1]).read_text())
    shell_path = sys.argv[2]
    notebook: dict[str, Any] = {"__name__": "__main__"}
    for language, place, text in blocks:
        try:
            if language == "python":
                exec(compile(text, place, "exec"), notebook)
            elif language == "sql":
                _ask(notebook, text)
            else:
                environment = {**os.environ, "PATH": shell_path}
                subprocess.run(["bash", "-euc", text], check=True, env=environment)
        except Exception:
            sys.stderr.write(f"{place}: {traceback.format_exc()}\n{text}\n")
            return 1
        sys.stdout.write(f"done: {place}\n")
    return 0


def _ask(notebook: dict[str, Any], text: str) -> None:
    """Run SQL; the tables of an earlier report are available as views with their names."""
    if "spark" not in notebook:
        from pyspark.sql import SparkSession

        import pyspark_beanpole  # noqa: F401

        notebook["spark"] = SparkSession.builder.getOrCreate()
    spark = notebook["spark"]
    for folder in Path.cwd().glob("reports/**/tables/*/"):
        spark.read.parquet(str(folder)).createOrReplaceTempView(folder.name)
    for statement in text.split(";"):
        if _is_said(statement):
            spark.sql(statement).collect()


def _is_said(statement: str) -> bool:
    lines = statement.strip().splitlines()
    return any(line.strip() and not line.strip().startswith("--") for line in lines)


if __name__ == "__main__":
    sys.exit(main())
