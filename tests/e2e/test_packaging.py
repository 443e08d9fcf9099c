"""The wheel of `make dist`, and the files in packaging/: their commands start a broker with it."""

from __future__ import annotations

import os
import plistlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

import ottla

ROOT = Path(__file__).parent.parent.parent
PACKAGING = ROOT / "packaging"
READY = "Ottla is ready at"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    source = directory / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("src", "tools"):  # those that the Containerfile copies too
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    # As `make dist`: the wheel is built from the source distribution, so both are complete.
    command = [sys.executable, "-m", "build", "--outdir", str(directory), str(source)]
    environment = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    subprocess.run(command, check=True, capture_output=True, timeout=90, env=environment)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture
def run(wheel: Path, tmp_path: Path) -> Callable[[list[str]], str]:
    """Return a function that runs `ottla` from the wheel until it is ready, then stops it."""
    unpacked = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    program = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r})\n"
        f"import ottla; assert ottla.__file__.startswith({str(unpacked)!r}), ottla.__file__\n"
        "from ottla.cli.main import main; sys.exit(main())"
    )

    def started(words: list[str]) -> str:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        with process.stdout as output:
            first = output.readline()
            process.terminate()
            rest = output.read()
        assert process.wait(30) == 0, first + rest
        return first

    return started


def test_the_wheel_has_all_packages_and_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "ottla = ottla.cli.main:main" in archive.read(entry_points).decode()
    files = (path for path in (ROOT / "src").rglob("*") if "__pycache__" not in path.parts)
    needed = {path.relative_to(ROOT / "src").as_posix() for path in files if path.is_file()}
    assert {f"{name}/py.typed" for name in ("ottla", "pyspark_ottla", "ottla_spark")} < needed
    assert needed <= names


def test_the_container_starts(run: Callable[[list[str]], str], tmp_path: Path) -> None:
    lines = (PACKAGING / "Containerfile").read_text().splitlines()
    (command,) = (line.removeprefix("CMD ") for line in lines if line.startswith("CMD "))
    words = [str(word) for word in yaml.safe_load(command)]
    assert READY in run([*_elsewhere(words, tmp_path), "--port", "0"])


def test_the_compose_file_starts(run: Callable[[list[str]], str], tmp_path: Path) -> None:
    compose = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
    words = compose["services"]["ottla"]["command"]
    assert READY in run(_elsewhere(words, tmp_path))


def test_the_launchd_agent_starts(run: Callable[[list[str]], str], tmp_path: Path) -> None:
    agent = plistlib.loads((PACKAGING / "dev.ottla.broker.plist").read_bytes())
    program, *words = agent["ProgramArguments"]
    assert program.endswith("/ottla")
    assert READY in run([*_elsewhere(words, tmp_path), "--port", "0"])


def test_the_systemd_service_starts(run: Callable[[list[str]], str], tmp_path: Path) -> None:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.read(PACKAGING / "ottla.service")
    program, *words = unit["Service"]["ExecStart"].split()
    assert program == "/opt/ottla/bin/ottla"
    assert words[-1] == "/etc/ottla/server.properties"
    settings = (PACKAGING / "server.properties").read_text()
    directory = f"/var/lib/{unit['Service']['StateDirectory']}"
    assert f"log.dirs={directory}\n" in settings
    config = tmp_path / "server.properties"
    config.write_text(settings.replace(directory, str(tmp_path / "data")).replace(":9092", ":0"))
    assert READY in run([*words[:-1], str(config)])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_every_line_of_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "ottla.service"
    program = "/opt/ottla/bin/ottla"
    copy.write_text((PACKAGING / copy.name).read_text().replace(program, "/bin/true"))
    command = ["systemd-analyze", "verify", str(copy)]
    said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30).stderr
    assert [line for line in said.splitlines() if copy.name in line] == []
    copy.write_text(copy.read_text().replace("Type=exec", "Type=exce"))
    said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30).stderr
    assert "exce" in said  # what the check finds


def test_the_release_workflow_is_in_order() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    jobs = workflow["jobs"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert jobs["publish"]["permissions"]["id-token"] == "write"  # publishes without a password
    uses = [step.get("uses", "").partition("@")[0] for step in jobs["publish"]["steps"]]
    signed = uses.index("actions/attest-build-provenance")
    assert signed < uses.index("pypa/gh-action-pypi-publish")
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = {run.removeprefix("make ") for run in runs if run.startswith("make ")}
    assert made == {"dist", "check", "test-compiled"}
    assert made <= targets
    assert ".ci/run" in runs
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    version = f'__version__ = "{ottla.__version__}"'  # as the workflow compares it with the tag
    assert version in (ROOT / "src" / "ottla" / "__init__.py").read_text().splitlines()


def _elsewhere(words: list[str], directory: Path) -> list[str]:
    """Return the command with free ports and this directory instead of its own."""
    places = ("/Users/YOU/Library/Application Support/ottla", "/data")
    changed: list[str] = []
    for word in words:
        text = word
        for place in places:
            text = text.replace(place, str(directory / "data")) if text.endswith(place) else text
        for port in ("9092", "29092", "9404"):
            text = text.replace(f":{port}", ":0") if "localhost" not in text else text
            text = "0" if text == port else text.replace(f"-port={port}", "-port=0")
        changed.append(text)
    return changed
