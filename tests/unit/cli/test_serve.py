from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.app import build_app
from ottla.cli.errors import USAGE
from ottla.cli.main import main
from ottla.cli.options import pairs
from ottla.cli.serve import Serve, parse_plainly, up_request

UP_LINES = [
    [],
    ["--port", "0"],
    ["--port=19092", "--host=0.0.0.0"],
    ["--host", "::1"],
    ["--memory", "--data-dir", "/tmp/somewhere"],
    ["--set", "num.partitions=3", "--set=log.retention.hours=1", "--port", "1"],
    ["--set", "listeners=PLAINTEXT://:1234"],
    ["--set", "a=b=c"],
    ["--set", "a="],
    ["--port", "65535"],
    ["--host", "0.0.0.0", "--advertise", "laptop.local"],
    ["--advertise=10.0.0.7:19092", "--port", "0"],
    ["--verbose", "--memory"],
    ["--brokers", "3"],
    ["--brokers=5", "--port", "0", "--set", "num.partitions=3", "--advertise", "laptop.local"],
    ["--brokers", "1"],
    ["--tier", "file:./cold"],
    ["--tier=s3://bucket/prefix", "--brokers", "3", "--set", "remote.log.storage.url=memory:"],
]
UNSURE_LINES = [
    ["up", "--help"],
    ["up", "-h"],
    ["up", "--port"],
    ["up", "--port", "x"],
    ["up", "--port", "-1"],
    ["up", "--port", "65536"],
    ["up", "--port", "٣"],
    ["up", "--port", "1", "--port", "2"],
    ["up", "--prot", "1"],
    ["up", "--memory=yes"],
    ["up", "--brokers", "0"],
    ["up", "--brokers", "65"],
    ["up", "--brokers", "x"],
    ["up", "--set", "nothing"],
    ["up", "--set", "=x"],
    ["up", "--config", "x"],
    ["up", "extra"],
    ["broker"],
    ["broker", "--config"],
    ["broker", "--port", "1", "--config", "x"],
    ["broker", "--memory", "--config", "x"],
    ["broker", "file"],
]


def parse_fully(words: list[str]) -> Serve:
    """Return the request that the full parser gets from a command line."""
    _, bound, _ = build_app(whole=False).parse_args(words, exit_on_error=False, print_error=False)
    bound.apply_defaults()
    given = bound.arguments
    settings = pairs(given["settings"], "--set")
    if words[0] == "broker":
        return Serve(given["config"], settings, memory=False, verbose=given["verbose"])
    return up_request(
        given["port"],
        given["host"],
        given["data_dir"],
        given["memory"],
        settings,
        advertise=given["advertise"],
        verbose=given["verbose"],
        brokers=given["brokers"],
        tier=given["tier"],
    )


@pytest.mark.parametrize("words", UP_LINES, ids=" ".join)
def test_both_parsers_understand_up_alike(words: list[str]) -> None:
    assert parse_plainly(["up", *words]) == parse_fully(["up", *words])


@pytest.mark.parametrize(
    "words",
    [["--config", "x"], ["--config=x", "--set", "node.id=3"], ["--verbose", "--config=x"]],
    ids=" ".join,
)
def test_both_parsers_understand_broker_alike(words: list[str]) -> None:
    assert parse_plainly(["broker", *words]) == parse_fully(["broker", *words])


@pytest.mark.parametrize("words", UNSURE_LINES, ids=" ".join)
def test_what_is_not_plain_goes_to_the_full_parser(words: list[str]) -> None:
    assert parse_plainly(words) is None


@pytest.mark.parametrize(
    ("address", "advertised"),
    [
        ("laptop.local", "laptop.local:9092"),
        ("laptop.local:1", "laptop.local:1"),
        ("::1", "[::1]:9092"),
        ("fe80::1:2", "[fe80::1:2]:9092"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:7", "[::1]:7"),
    ],
)
def test_an_advertised_address_gets_the_port_if_it_has_none(address: str, advertised: str) -> None:
    request = parse_plainly(["up", "--advertise", address])
    assert request is not None
    assert request.settings["advertised.listeners"] == f"PLAINTEXT://{advertised}"


@pytest.mark.parametrize("address", ["", "host:1:2", "http://host", "host:port", "[host]", "a b"])
def test_an_advertised_address_that_no_client_can_use(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--memory", "--port", "0", "--advertise", address]) == USAGE
    assert "should be HOST or HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "0.0.0.0"],
        ["--host=::"],
        ["--host", "0.0.0.0", "--brokers", "3"],
        ["--set", "listeners=PLAINTEXT://0.0.0.0:0"],
    ],
)
def test_an_address_that_nobody_can_connect_to_needs_another_one(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--memory", "--port", "0", *words]) == USAGE
    assert "add --advertise HOST" in capsys.readouterr().err


def test_up_listens_and_keeps_data_where_it_is_told() -> None:
    assert parse_plainly(["up"]) == Serve(
        None, {"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "./ottla-data"}, False
    )


def test_up_with_an_ipv6_address() -> None:
    request = parse_plainly(["up", "--host", "::1", "--port", "1"])
    assert request is not None
    assert request.settings["listeners"] == "PLAINTEXT://[::1]:1"


def test_settings_by_name_win_over_options() -> None:
    request = parse_plainly(["up", "--data-dir", "a", "--set", "log.dirs=b"])
    assert request is not None
    assert request.settings["log.dirs"] == "b"


def test_the_directory_of_a_tier_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").mkdir()
    monkeypatch.chdir(tmp_path / "a b")
    for given, expected in {
        "file:./cold%20one": f"file:{tmp_path}/a%20b/cold%20one",
        "file:../cold": f"file:{tmp_path}/cold",
        "file:/cold": "file:/cold",
        "file:///cold": "file:///cold",
        "file:": "file:",
        "s3://bucket/prefix": "s3://bucket/prefix",
    }.items():
        request = parse_plainly(["up", "--tier", given])
        assert request is not None
        assert request.settings["remote.log.storage.url"] == expected


def test_starting_a_broker_imports_no_command_library() -> None:
    heavy = {"cyclopts", "rich", "argparse", "asyncio", "inspect", "attr", "cramjam", "re2"}
    program = (
        "import sys; from ottla.cli.main import main; import ottla.cli.serve as s;"
        "assert s.parse_plainly(['up', '--port', '0']); import ottla.server.main;"
        f"print(*sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
