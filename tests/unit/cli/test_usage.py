"""Mistakes on the command line give one message and an exit code, not a traceback."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from ottla.cli import spark_extra
from ottla.cli.main import main


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bogus", "bogus"),
        ("topics bogus", "bogus"),
        ("up --prot 1", "--port"),
        ("up --port many", "--port"),
        ("up --port 70000", "65535"),
        ("up --set nothing", "--set 'nothing' should be name=value"),
        ("up extra", "Unexpected argument: extra."),
        ("broker", "--config"),
        ("topics create", "--topic"),
        ("topics create t --partitions 0", "--partitions"),
        ("topics create t --config retention.ms", "should be name=value"),
        ("topics alter t", "nothing to alter"),
        ("topics list --bootstrap-server host:port", "no valid port"),
        ("produce", "--topic"),
        ("produce t --compression zip", "zstd"),
        ("produce t --acks 2", "--acks"),
        ("load t", "--to"),
        ("load t --to csv:/x", "parquet:PATH, delta:PATH"),
        ("load t --to parquet:/x --once --continuous", "only one of"),
        ("load t --to parquet:/x --every soon", "such as 30s, 5m"),
        ("load t --to parquet:/x --upsert", "delta: or iceberg:"),
        ("load t --to parquet:/x --schema a", "--format"),
        ("load t --to parquet:/x --dead-letters x", "topic:NAME, parquet:PATH or delta:PATH"),
        ("load t --to parquet:/x --dead-letters topic:t", "is the topic that is loaded"),
        ("load t --to delta:/x/y --dead-letters delta:/x/y", "apart from each other"),
        ("load t --to delta:/x/y --dead-letters parquet:/x/y/z", "apart from each other"),
        ("load t --to parquet:/x/y --dead-letters delta:/x/", "apart from each other"),
        ("load t --to parquet:/x --partition-by week(x)", "day(timestamp)"),
        ("load t --to parquet:/x --conf spark", "--conf 'spark' should be name=value"),
        ("load t --to iceberg:c.n.t --catalog uri", "--catalog 'uri' should be name=value"),
        ("load t[ --to parquet:/x/{topic}", "no regular expression"),
        ("load t --to parquet:/x --target-file-size big", "128m or 1g"),
        ("produce t --header x", "--header 'x' should be name=value"),
        ("produce t --key-separator=", "must not be empty"),
        ("consume t --from-beginning --offset 3", "only one of"),
        ("consume t --offset first", "should be a number, earliest or latest"),
        ("consume t --timestamp yesterday", "2026-01-31T12:00:00"),
        ("consume t --json --format {key}", "only one of"),
        ("consume t --format {size}", "{size}; the fields are topic, partition"),
        ("consume t --max-messages 0", "--max-messages"),
        ("groups list --state Happy", "one of Empty, PreparingRebalance"),
        ("groups list --type new", "one of classic, consumer"),
        ("brokers describe", "--broker"),
        ("brokers unregister three", '"three" into int'),
        ("quorum add", "--node"),
        ("quorum add 2 --directory-id x --endpoint h:1", "--directory-id 'x' should be 22"),
        ("quorum add 2 --directory-id x --endpoint h:x", "--endpoint 'h:x' should be host:port"),
        ("quorum remove 2 --directory-id short", "22 characters"),
        ("transactions find-hanging --partition 1", "--topic"),
        ("transactions abort --topic t --partition 0", "--start-offset"),
        (
            "transactions abort --topic t --partition 0 --start-offset 1 --producer-id 2"
            " --producer-epoch 3",
            "--start-offset",
        ),
        ("dump-log f --offsets --transactions", "only one of"),
        ("consume t --isolation-level best", "read_committed"),
        ("features upgrade x", "--feature 'x' should be name=level"),
        ("elect-leaders", "one of topics, --all-topics and --from-file"),
        ("elect-leaders t --all-topics", "one of topics, --all-topics and --from-file"),
        ("elect-leaders t --type best", "unclean"),
        ("reassign execute", "--file"),
        ("reassign execute plan.json --throttle 0", "--throttle"),
        ("reassign cancel", "either a plan or --all"),
        ("reassign cancel plan.json --all", "either a plan or --all"),
        ("reassign generate --brokers 1 --racks a", "only one of --brokers and --racks"),
    ],
)
def test_wrong_usage_ends_with_2(capsys: pytest.CaptureFixture[str], line: str, words: str) -> None:
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert len(captured.err.splitlines()) <= 2
    assert all(said.startswith("ottla: ") for said in captured.err.splitlines())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("security.protocol=SSL\nssl.truststore.type=JKS\n", "keytool -list -rfc"),
        ("security.protocol=SASL_SSL\n", "sasl.mechanism: it is missing: set it to one of PLAIN"),
        ("bootstrap.servers=nowhere:port\n", "bootstrap.servers: 'nowhere:port' has no valid"),
        ("client.id=\\u12\n", "four hexadecimal digits"),
        (None, "cannot read"),
    ],
)
def test_a_wrong_command_config_ends_with_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str | None, words: str
) -> None:
    file = tmp_path / "client.properties"
    if text is not None:
        file.write_text(text)
    assert main(["topics", "list", "--command-config", str(file)]) == 2
    said = capsys.readouterr().err
    assert "--command-config" in said
    assert str(file) in said
    assert words in said


def test_brokers_are_those_of_the_file_unless_the_command_names_some(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS", raising=False)
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    line = ["topics", "list", "--command-config", str(file)]
    assert main(line) == 1
    assert "127.0.0.1:1:" in capsys.readouterr().err
    assert main([*line, "-b", "127.0.0.1:2"]) == 1
    assert "127.0.0.1:2:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "topics list",
        "topics create t",
        "topics describe",
        "topics delete t",
        "brokers list",
        "quorum describe",
        "leaders rebalance",
        "reassign generate",
        "produce t --file /dev/null",
        "consume t",
    ],
)
def test_no_broker_ends_with_1_and_advice(capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert main([*line.split(), "--bootstrap-server", "127.0.0.1:1"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "127.0.0.1:1: Connection refused" in captured.err
    assert "ottla up" in captured.err


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "t", "--file", "/no/such/file"]) == 1
    assert "cannot read /no/such/file: No such file" in capsys.readouterr().err


def test_the_servers_can_come_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:2")
    assert main(["topics", "list"]) == 1
    assert "127.0.0.1:2: Connection refused" in capsys.readouterr().err


def test_the_overview_has_every_command_with_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for command in (
        *("up", "broker", "topics", "groups", "configs", "cluster", "produce", "consume"),
        *("load", "dump-log", "completion", "brokers", "quorum", "reassign", "elect-leaders"),
        *("leaders", "transactions"),
    ):
        assert f"  {command}: " in shown


@pytest.mark.parametrize("line", ["", "topics", "groups", "topics --help"])
def test_help_is_drawn_on_terminals_only(capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert main(line.split()) == 0
    shown = capsys.readouterr().out
    assert "list: " in shown or "topics: " in shown
    assert not set(shown) & set("╭╮│╰╯─")


COMMANDS = [
    *("up", "broker", "produce", "consume", "load", "dump-log"),
    *(f"topics {each}" for each in ("create", "list", "describe", "alter", "delete")),
    *(f"groups {each}" for each in ("list", "describe", "members", "reset-offsets", "delete")),
    "groups delete-offsets",
    *("configs describe", "configs alter", "cluster info"),
    *(f"brokers {each}" for each in ("list", "describe", "unregister")),
    *(f"quorum {each}" for each in ("describe", "add", "remove")),
    *(f"reassign {each}" for each in ("generate", "execute", "verify", "cancel")),
    *("elect-leaders", "leaders rebalance"),
    *("transactions find-hanging", "transactions abort"),
]
EXPLAINED_ELSEWHERE = [*(f"pipeline {each}" for each in ("run", "plan", "check")), "sim"]


@pytest.mark.parametrize("command", [*COMMANDS, *EXPLAINED_ELSEWHERE])
def test_every_option_is_explained(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([*command.split(), "--help"]) == 0
    options = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  --")]
    assert options
    for line in options:
        assert len(line.partition(": ")[2]) > 10, line
        assert "[default: False]" not in line, line
        assert "[default: []]" not in line, line


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    import ottla

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == ottla.__version__


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_on_commands_has_every_option(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "commands.md").read_text() + (docs / "dump-log.md").read_text()
    assert main([*command.split(), "--help"]) == 0
    shown = re.findall(r"^  (?:TOPIC, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert shown
    assert [option for option in shown if option not in page] == []


def test_without_spark_all_missing_packages_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {"pyspark", "numba"}
    monkeypatch.setattr(
        spark_extra, "find_spec", lambda name: None if name in missing else find_spec(name)
    )
    assert main(["load", "t", "--to", "parquet:/x"]) == 1
    said = capsys.readouterr().err
    assert "These packages are missing: pyspark, numba. Install them with: pip install" in said
    assert 'pip install "ottla[spark]" (in a clone: pip install ".[spark]")' in said
