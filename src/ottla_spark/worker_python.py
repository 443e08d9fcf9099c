"""The Python program that Spark starts its workers with on this machine.

Spark puts a zip of pyspark first on the path, and Python compiles modules in a zip at every
start. That takes 0.7 s, several times in every command. The installed pyspark has the same modules,
already compiled. So a script removes the zip of the installed pyspark from the path. The script
also runs Spark's modules through `worker_process`.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from ottla_spark.launchers import launcher

_SCRIPT = """\
#!/bin/sh
# Starts Python with the installed pyspark instead of the zip that Spark puts first.
rest= ; old=$IFS; IFS=:
for place in $PYTHONPATH; do
    [ "$place" -ef {zip} ] || rest=$rest${{rest:+:}}$place
done
IFS=$old
PYTHONPATH=$rest
export PYTHONPATH
case "$1 $2" in
    "-m pyspark."*) shift; set -- -P {program} "$@" ;;
esac
exec {python} "$@"
"""


def worker_python() -> str:
    """Return the program for PYSPARK_PYTHON if the workers run on this machine."""
    import pyspark

    packed = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    if not packed.is_file():
        return sys.executable
    text = _SCRIPT.format(
        zip=shlex.quote(str(packed)),
        python=shlex.quote(sys.executable),
        program=shlex.quote(str(Path(__file__).with_name("worker_process.py"))),
    )
    return str(launcher("python", Path("bin", "python"), text) / "bin" / "python")
