"""`ottla configs`, `cluster` and `completion`, --verbose, and commands that find nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeAlias

import pytest

from tests.harness.process import BrokerProcess, run_ottla
from tests.harness.topics import create_topic

Ottla: TypeAlias = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(None, settings={"num.partitions": "2"}) as broker:
        yield broker


@pytest.fixture
def ottla(server: BrokerProcess) -> Ottla:
    def run(*words: str) -> CompletedProcess[str]:
        return run_ottla(*words, "--bootstrap-server", server.bootstrap_servers)

    return run


def test_empty_results_say_so(server: BrokerProcess) -> None:
    with BrokerProcess(None) as empty:
        for command, words in [
            ("topics list", "There are no topics."),
            ("topics describe", "There are no topics."),
            ("groups list", "There are no groups."),
            ("groups describe", "There are no groups."),
            ("groups members", "There are no groups."),
        ]:
            done = run_ottla(*command.split(), "-b", empty.bootstrap_servers)
            assert (done.returncode, done.stdout, done.stderr.strip()) == (0, "", words)


def test_the_cluster(server: BrokerProcess, ottla: Ottla) -> None:
    create_topic(server.bootstrap_servers, "counted", 3)
    found = json.loads(ottla("cluster", "info", "--json").stdout)
    host, _, port = server.bootstrap_servers.rpartition(":")
    assert found["brokers"] == [{"id": 1, "host": host, "port": int(port), "rack": None}]
    assert found["controller_id"] == 1
    assert len(found["cluster_id"]) == 22
    assert (found["topics"] >= 1, found["partitions_without_leader"]) == (True, 0)
    lines = ottla("cluster", "info").stdout.splitlines()
    assert lines[0].startswith(f"cluster {found['cluster_id']}  brokers 1  topics ")
    assert lines[2].split() == ["1", host, port, "-", "controller"]


def test_settings_of_a_topic(server: BrokerProcess, ottla: Ottla) -> None:
    create_topic(server.bootstrap_servers, "set")
    assert "have their defaults" in ottla("configs", "describe", "--topic", "set").stderr
    done = ottla("configs", "alter", "--topic", "set", "--set", "retention.ms=5", "--set", "x=1")
    assert (done.returncode, "unknown" in done.stderr.lower()) == (1, True)
    done = ottla("configs", "alter", "--topic", "set", "--config", "retention.ms=5")
    assert "Settings of topic set changed: retention.ms" in done.stderr
    (setting,) = json.loads(ottla("configs", "describe", "--topic", "set", "--json").stdout)
    assert (setting["name"], setting["value"]) == ("retention.ms", "5")
    assert setting["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert ottla("configs", "alter", "--topic", "set", "--delete", "retention.ms").returncode == 0
    assert ottla("configs", "describe", "--topic", "set").stdout == ""
    all_lines = ottla("configs", "describe", "--topic", "set", "--all").stdout.splitlines()
    assert ["cleanup.policy", "delete", "DEFAULT_CONFIG"] in [line.split() for line in all_lines]


def test_a_topic_shows_what_somebody_set_for_all_brokers(
    server: BrokerProcess, ottla: Ottla
) -> None:
    create_topic(server.bootstrap_servers, "default-set")

    def set_for_all(value: int) -> None:
        name = f"min.insync.replicas={value}"
        assert ottla("configs", "alter", "--broker", "default", "--set", name).returncode == 0

    set_for_all(2)
    lines = ottla("configs", "describe", "--topic", "default-set").stdout.splitlines()
    assert lines[1].split() == ["min.insync.replicas", "2", "DYNAMIC_DEFAULT_BROKER_CONFIG"]
    set_for_all(1)
    assert ottla("configs", "describe", "--topic", "default-set").stdout == ""


def test_settings_of_a_broker(ottla: Ottla) -> None:
    lines = ottla("configs", "describe", "--broker", "1").stdout.splitlines()
    assert ["num.partitions", "2", "STATIC_BROKER_CONFIG"] in [line.split() for line in lines]
    done = ottla("configs", "describe", "--broker", "9")
    assert (done.returncode, "broker 9" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("describe", "give one of --topic, --broker and --group"),
        ("describe --topic a --group b", "give only one of --topic"),
        ("describe --broker one", "should be the id of a broker"),
        ("alter --topic a", "give --set or --delete"),
        ("alter --topic a --set b=1 --delete b", "b is both set and deleted"),
    ],
)
def test_wrong_usage_of_configs(ottla: Ottla, words: str, said: str) -> None:
    done = ottla("configs", *words.split())
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_verbose_shows_requests_on_stderr(ottla: Ottla) -> None:
    done = ottla("topics", "list", "--verbose")
    assert done.returncode == 0
    assert "METADATA v" in done.stderr
    assert "METADATA" not in done.stdout
    assert "METADATA" not in ottla("topics", "list").stderr


def test_bash_completes_commands_and_options() -> None:
    script = run_ottla("completion", "bash").stdout
    asked = (
        "COMP_WORDS=(ottla gro); COMP_CWORD=1; _ottla; echo ${COMPREPLY[@]}\n"
        "COMP_WORDS=(ottla topics create --part); COMP_CWORD=3; _ottla; echo ${COMPREPLY[@]}\n"
    )
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{asked}"], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split() == ["groups", "--partitions"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_too(shell: str) -> None:
    script = run_ottla("completion", shell).stdout
    assert "reset-offsets" in script
    assert "bootstrap-server" in script


def test_names_of_files_are_completed_for_values() -> None:
    """zsh needs an action for every argument: without one it does not even complete options."""
    assert "complete -o default -F _ottla ottla" in run_ottla("completion", "bash").stdout
    script = run_ottla("completion", "zsh").stdout
    for value in (
        "'*:Files of a log, or directories.",
        "server.properties.]:config",
        "]:partitions",
    ):
        lines = [line for line in script.splitlines() if value in line]
        assert lines
        assert all(line.endswith(":_files' \\") for line in lines)


def _in_shell(shell: str, program: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    words = [path, "-f", "-c", program] if shell == "zsh" else [path, "--no-config", "-c", program]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


def test_zsh_registers_the_script_or_runs_it(tmp_path: Path) -> None:
    """It does the one if it is sourced, and the other if it is a file in $fpath."""
    script = tmp_path / "_ottla"
    script.write_text(run_ottla("completion", "zsh").stdout)
    assert script.read_text().startswith("#compdef ottla\n")
    start = "autoload -Uz compinit; compinit -u -D;"
    sourced = _in_shell("zsh", f"{start} source {script}; print $_comps[ottla]")
    assert sourced == "_cyclopts_ottla\n"
    asked = f"fpath=({tmp_path} $fpath); {start} _arguments() {{ print asked }}; _ottla; _ottla"
    assert _in_shell("zsh", asked) == "asked\nasked\n"


def test_fish_completes_commands_without_files(tmp_path: Path) -> None:
    script = tmp_path / "ottla.fish"
    script.write_text(run_ottla("completion", "fish").stdout)
    asked = f"cd {tmp_path}; source {script}; complete -C 'ottla tier '"
    assert [line.split("\t")[0] for line in _in_shell("fish", asked).splitlines()] == [
        "check",
        "describe",
        "verify",
    ]
