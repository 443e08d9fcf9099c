"""The Python that Spark starts its workers with on this machine.

Spark puts its own zip of pyspark before everything that is installed, and modules in a zip are
compiled anew at each start: 0.7 s of work, several times in every command. Where that zip is the
one of the installed pyspark, a script that takes it away from the path gives the same modules,
compiled already. The script also runs Spark's modules through `worker_process`.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from ottla_spark.launchers import launcher

_SCRIPT = """\
#!/bin/sh
# Python with pyspark as it is installed, not from the zip that Spark puts first.
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
    """The program to set PYSPARK_PYTHON to, where the workers run on this machine."""
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
