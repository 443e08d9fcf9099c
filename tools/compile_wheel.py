"""Compiles modules for a wheel, if OTTLA_COMPILE=1 is set: `OTTLA_COMPILE=1 pip wheel .`.

Hatchling runs it when it builds a wheel. Without the variable the wheel has Python files only, is
the same for all machines, and building it needs no compiler. With it, the wheel also has the
extension modules that tools/compile_modules.py makes, for one version of Python and one platform.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileHook(BuildHookInterface[Any]):  # type: ignore[misc]
    """Adds the extension modules to a wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what a compile needs besides a C compiler."""
        return ["mypy>=2.4", "setuptools"] if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell Hatchling which files to add."""
        if version == "editable" or not _is_wanted():
            return
        root = Path(self.root)
        directory = root / "build" / "compiled"
        subprocess.run([sys.executable, root / "tools/compile_modules.py", directory], check=True)
        for extension in (directory / "ottla").rglob("*.so"):
            name = extension.relative_to(directory)
            build_data["force_include"][str(extension)] = str(name)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _is_wanted() -> bool:
    return os.environ.get("OTTLA_COMPILE") == "1"
