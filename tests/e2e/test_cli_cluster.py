"""Commands for clusters, on three broker processes: brokers, quorum, leaders, reassignments."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ottla.cli.main import main
from tests.harness.deadline import eventually
from tests.harness.process import COMMAND

NODES = (1, 2, 3)
CLUSTER_ID = "cluster-of-the-command"
Ottla: TypeAlias = Callable[..., tuple[int, str, str]]


class Processes:
    """Three nodes, each a broker and a controller, in the racks a, b and c."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        ports = _free_ports(2 * len(NODES))
        self.ports = dict(zip(NODES, ports, strict=False))
        self._controllers = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self._running: dict[int, subprocess.Popen[str]] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[number]}" for number in NODES)

    def start(self, *numbers: int) -> None:
        for number in numbers:
            process = subprocess.Popen(
                [*COMMAND, "broker", "--config", str(self._config(number))],
                stdout=subprocess.PIPE,
                text=True,
            )
            self._running[number] = process
        for number in numbers:
            out = self._running[number].stdout
            assert out is not None
            assert "Ottla is ready" in out.readline()

    def kill(self, number: int) -> None:
        process = self._running.pop(number)
        process.kill()
        process.communicate()

    def close(self) -> None:
        for number in list(self._running):
            self.kill(number)

    def log_dirs(self, number: int) -> tuple[Path, Path]:
        return self._directory / str(number), self._directory / f"{number}-more"

    def _config(self, number: int) -> Path:
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in self._controllers.items())
        settings = {
            "node.id": number,
            "process.roles": "broker,controller",
            "cluster.id": CLUSTER_ID,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number]},"
            f"CONTROLLER://127.0.0.1:{self._controllers[number]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": ",".join(map(str, self.log_dirs(number))),
            "broker.rack": "abc"[number - 1],
        }
        path = self._directory / f"{number}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("cluster"))
    try:
        processes.start(*NODES)
        yield processes
    finally:
        processes.close()


@pytest.fixture
def ottla(cluster: Processes, capsys: pytest.CaptureFixture[str]) -> Ottla:
    def run(*words: object) -> tuple[int, str, str]:
        code = main([*map(str, words), "-b", cluster.bootstrap_servers])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def shown(ottla: Ottla) -> Callable[..., Any]:
    """Return what a command prints as JSON."""

    def run(*words: object) -> Any:
        code, out, err = ottla(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    return run


def write_plan(path: Path, topic: str, *replicas: list[int]) -> Path:
    partitions = [
        {"topic": topic, "partition": index, "replicas": ids} for index, ids in enumerate(replicas)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def test_brokers_and_quorum(cluster: Processes, shown: Callable[..., Any], ottla: Ottla) -> None:
    found = shown("brokers", "list")
    assert [(each["id"], each["rack"], each["fenced"]) for each in found] == [
        (1, "a", False),
        (2, "b", False),
        (3, "c", False),
    ]
    assert [each["port"] for each in found] == [cluster.ports[number] for number in NODES]
    quorum = shown("quorum", "describe")
    assert [each["id"] for each in quorum["replicas"]] == [1, 2, 3]
    assert sorted(each["role"] for each in quorum["replicas"]) == ["follower", "follower", "leader"]
    lines = ottla("quorum", "describe")[1].splitlines()
    assert lines[0].startswith(f"leader {quorum['leader_id']}  epoch ")
    assert len(lines) == 5
    code, _, err = ottla("brokers", "unregister", 2)
    assert (code, "broker 2 is running: stop it first" in err) == (2, True)
    assert ottla("brokers", "describe", 9)[0] == 1


def test_replicas_are_moved(shown: Callable[..., Any], ottla: Ottla, tmp_path: Path) -> None:
    assert ottla("topics", "create", "moved", "--partitions", 3, "--replication-factor", 1)[0] == 0
    back = tmp_path / "back.json"
    words = ("reassign", "generate", "moved", "--replication-factor", 2, "--save-current", back)
    code, plan, err = ottla(*words)
    assert code == 0
    assert "3 replicas would be copied" in err
    assert all(len(each["replicas"]) == 2 for each in json.loads(plan)["partitions"])
    file = tmp_path / "plan.json"
    file.write_text(plan)
    code, out, _ = ottla("reassign", "execute", file, "--wait")
    assert (code, out.count("complete")) == (0, 3)
    assert [each["state"] for each in shown("reassign", "verify", file)] == ["complete"] * 3
    (topic,) = shown("topics", "describe", "moved")
    assert [len(each["isr"]) for each in topic["partitions"]] == [2, 2, 2]
    assert ottla("reassign", "verify", back)[0] == 1
    assert ottla("reassign", "execute", back, "--wait")[0] == 0
    code, _, err = ottla("reassign", "cancel", "--all")
    assert (code, err.strip()) == (0, "Nothing is being reassigned.")


def test_a_plan_names_log_directories(
    cluster: Processes, shown: Callable[..., Any], ottla: Ottla, tmp_path: Path
) -> None:
    words = ("--partitions", 1, "--replication-factor", 1)
    assert ottla("topics", "create", "placed", *words)[0] == 0
    (topic,) = shown("topics", "describe", "placed")
    (source,) = topic["partitions"][0]["replicas"]
    target = source % 3 + 1
    first, second = cluster.log_dirs(source)
    kept = second if (first / "placed-0").exists() else first
    file = tmp_path / "placed.json"

    def plan(*wanted: tuple[int, Path]) -> Path:
        partition = {
            "topic": "placed",
            "partition": 0,
            "replicas": [broker for broker, _ in wanted],
            "log_dirs": [str(path) for _, path in wanted],
        }
        file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        return file

    plan((source, kept), (target, cluster.log_dirs(target)[1]))
    assert ottla("reassign", "verify", file)[0] == 1
    code, out, err = ottla("reassign", "execute", file, "--wait")
    assert (code, out.count("complete")) == (0, 1), err
    assert (kept / "placed-0").is_dir()
    assert (cluster.log_dirs(target)[1] / "placed-0").is_dir()
    assert shown("reassign", "verify", file)[0]["in_other_log_dir"] == []
    code, _, err = ottla("reassign", "execute", plan((source, tmp_path)))
    assert (code, "LOG_DIR_NOT_FOUND" in err) == (1, True)


def test_features_are_shown_and_changed(shown: Callable[..., Any], ottla: Ottla) -> None:
    def levels() -> dict[str, int]:
        return {each["name"]: each["level"] for each in shown("features", "describe")}

    def has_level(level: int) -> bool:
        return levels()[name] == level

    name = "eligible.leader.replicas.version"
    assert levels()[name] == 1
    assert levels()["metadata.version"] >= 7
    eventually(
        lambda: ottla("features", "upgrade", "kraft.version=1")[0] == 0, "all have registered", 60
    )
    eventually(lambda: levels().get("kraft.version") == 1, "the voters are in the log", 60)
    code, _, err = ottla("features", "upgrade", f"{name}=0")
    assert (code, "setting the upgrade type to either safe or" in " ".join(err.split())) == (
        1,
        True,
    )
    assert ottla("features", "downgrade", f"{name}=0", "--dry-run")[0] == 0
    assert levels()[name] == 1
    for command, level in (("downgrade", 0), ("upgrade", 1)):
        assert ottla("features", command, f"{name}={level}")[0] == 0
        eventually(partial(has_level, level), "the broker knows the level", 60)


def throttles(shown: Callable[..., Any], *resource: object) -> dict[str, str]:
    found = shown("configs", "describe", *resource)
    settings = found["settings"] if isinstance(found, dict) else found
    return {each["name"]: each["value"] for each in settings if ".throttled." in each["name"]}


def test_a_reassignment_can_be_throttled(
    shown: Callable[..., Any], ottla: Ottla, tmp_path: Path
) -> None:
    words = ("--partitions", 1, "--replication-factor", 1)
    assert ottla("topics", "create", "slow", *words)[0] == 0
    (topic,) = shown("topics", "describe", "slow")
    (source,) = topic["partitions"][0]["replicas"]
    target = source % 3 + 1
    wrong = write_plan(tmp_path / "wrong.json", "slow", [9])
    code, _, err = ottla("reassign", "execute", wrong, "--throttle", 50_000)
    assert (code, "The throttle was set, and nothing moves" in err) == (1, True), err
    plan = write_plan(tmp_path / "slow.json", "slow", [target])
    code, _, err = ottla("reassign", "execute", plan, "--throttle", 50_000)
    assert (code, "removes the throttle" in err) == (0, True), err
    replicas = {
        "leader.replication.throttled.replicas": f"0:{source}",
        "follower.replication.throttled.replicas": f"0:{target}",
    }
    rates = {f"{side}.replication.throttled.rate": "50000" for side in ("leader", "follower")}

    def shows(expected: dict[str, str], *resource: object) -> None:
        """Wait until the broker that is asked has heard of the change."""
        eventually(lambda: throttles(shown, *resource) == expected, f"{resource}: {expected}", 40)

    shows(replicas, "--topic", "slow")
    for broker in (source, target):
        shows(rates, "--broker", broker)
    code, _, err = ottla("reassign", "verify", plan, "--wait")
    assert (code, "The throttle is removed." in err) == (0, True)
    shows({}, "--topic", "slow")
    shows({}, "--broker", source)


def test_a_broker_dies_and_comes_back(
    cluster: Processes, shown: Callable[..., Any], ottla: Ottla, tmp_path: Path
) -> None:
    assert ottla("topics", "create", "led", "--partitions", 1, "--replication-factor", 3)[0] == 0
    plan = write_plan(tmp_path / "led.json", "led", [3, 1, 2])
    assert ottla("reassign", "execute", plan, "--wait")[0] == 0
    assert ottla("elect-leaders", "led")[0] == 0
    assert shown("topics", "describe", "led")[0]["partitions"][0]["leader"] == 3
    code, _, err = ottla("leaders", "rebalance")
    assert (code, err.strip()) == (0, "All partitions have the wanted leaders already.")

    def under_replicated() -> Any:
        return shown("topics", "describe", "led", "--under-replicated")

    cluster.kill(3)
    eventually(lambda: under_replicated() != [], "the ISR is smaller", 40)
    (topic,) = under_replicated()
    partition = topic["partitions"][0]
    assert (partition["leader"], sorted(partition["isr"])) == (1, [1, 2])
    assert partition["offline_replicas"] == [3]
    assert shown("topics", "describe", "led", "--unavailable") == []
    assert shown("topics", "describe", "led", "--under-min-isr") == []
    assert shown("brokers", "list")[2]["fenced"] is True
    code, _, err = ottla("elect-leaders", "led:0")
    assert (code, "PREFERRED_LEADER_NOT_AVAILABLE" in err) == (1, True)
    code, _, err = ottla("brokers", "unregister", 3)
    assert (code, "replicas: move them with" in err) == (2, True)

    cluster.start(3)
    eventually(lambda: under_replicated() == [], "all replicas are in sync", 40)
    code, out, _ = ottla("leaders", "rebalance")
    assert (code, "led-0: has its leader now" in out) == (0, True)
    assert shown("topics", "describe", "led")[0]["partitions"][0]["leader"] == 3
