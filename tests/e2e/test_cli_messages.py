"""`ottla produce` and `ottla consume` with a broker process, and together with another client."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from tests.harness.confluent import Confluent
from tests.harness.process import COMMAND, BrokerProcess, run_ottla
from tests.harness.topics import create_topic

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(None, settings={"num.partitions": "3"}) as broker:
        yield broker


@pytest.fixture
def topic(server: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """Create a topic for the test, with three partitions."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    create_topic(server.bootstrap_servers, name, 3)
    return name


def produce(server: BrokerProcess, topic: str, lines: str, *words: str) -> str:
    """Send lines with `ottla produce`. Return its stderr."""
    done = subprocess.run(
        [*COMMAND, "produce", topic, "-b", server.bootstrap_servers, *words],
        input=lines,
        text=True,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def consume(server: BrokerProcess, topic: str, *words: str) -> list[str]:
    """Return the lines that `ottla consume` prints until it ends."""
    done = run_ottla("consume", topic, "-b", server.bootstrap_servers, *words, timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert done.stderr.splitlines()[-1] == f"{len(lines):,} message{'s'[: len(lines) != 1]}"
    return lines


def consume_json(server: BrokerProcess, topic: str, *words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in consume(server, topic, "--json", *words)]


def send(server: BrokerProcess, topic: str, *messages: dict[str, Any]) -> None:
    """Produce with confluent-kafka."""
    producer = ck.Producer({"bootstrap.servers": server.bootstrap_servers})
    for message in messages:
        producer.produce(topic, **message)
    assert producer.flush(TIMEOUT_S) == 0


@pytest.fixture
def run() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command that runs until the test stops it."""
    with ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[str]:
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                [*COMMAND, *words], stdin=pipe, stdout=pipe, stderr=pipe, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_there_and_back(server: BrokerProcess, topic: str, codec: str) -> None:
    expected = [f"line {number} ü" for number in range(5000)]
    said = produce(server, topic, "\n".join(expected) + "\n", "--compression", codec)
    assert said.startswith(f"5,000 messages to {topic} in ")
    lines = consume(server, topic, "--from-beginning", "--max-messages", "5000")
    assert sorted(lines) == sorted(expected)


def test_another_client_reads_what_was_produced(server: BrokerProcess, topic: str) -> None:
    produce(server, topic, "k\tv\n", "--key-separator", "\\t", "--header", "a=1", "--header", "a=2")
    with Confluent().consumer(server.bootstrap_servers) as consumer:
        consumer.assign({(topic, partition): 0 for partition in range(3)})
        (message,) = consumer.take(1)
    assert (message.key, message.value) == (b"k", b"v")
    assert list(message.headers) == [("a", b"1"), ("a", b"2")]


def test_keys_land_where_other_clients_put_them(server: BrokerProcess, topic: str) -> None:
    keys = [f"key-{number}" for number in range(60)]
    produce(server, topic, "".join(f"{key}:ours\n" for key in keys), "--key-separator", ":")
    theirs = ck.Producer(
        {"bootstrap.servers": server.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    for key in keys:
        theirs.produce(topic, key=key, value="theirs")
    assert theirs.flush(TIMEOUT_S) == 0
    placed: dict[object, dict[object, object]] = {"ours": {}, "theirs": {}}
    for message in consume_json(server, topic, "--from-beginning", "--max-messages", "120"):
        placed[message["value"]][message["key"]] = message["partition"]
    assert placed["ours"] == placed["theirs"]
    assert set(placed["ours"].values()) == {0, 1, 2}


def test_all_that_a_message_carries(server: BrokerProcess, topic: str) -> None:
    send(
        server,
        topic,
        {"key": b"k", "value": b"v", "headers": [("h", b"x"), ("h", None)], "partition": 1,
         "timestamp": 1_700_000_000_000},
        {"key": None, "value": None, "partition": 1, "timestamp": 1_700_000_000_001},
        {"key": b"\xff", "value": "ü".encode(), "partition": 1, "timestamp": 1_700_000_000_002},
    )  # fmt: skip
    messages = consume_json(server, topic, "--from-beginning", "--max-messages", "3")
    common = {"topic": topic, "partition": 1}
    assert messages == [
        {
            **common, "offset": 0, "timestamp": 1_700_000_000_000, "key": "k", "value": "v",
            "headers": [{"key": "h", "value": "x"}, {"key": "h", "value": None}],
        },
        {
            **common, "offset": 1, "timestamp": 1_700_000_000_001, "key": None, "value": None,
            "headers": [],
        },
        {
            **common, "offset": 2, "timestamp": 1_700_000_000_002, "key": {"base64": "/w=="},
            "value": "ü", "headers": [],
        },
    ]  # fmt: skip
    shown = consume(
        *(server, topic, "--from-beginning", "--max-messages", "2"),
        *("--format", "{partition}:{offset} {key}={value} [{headers}]"),
    )
    assert shown == ["1:0 k=v [h=x,h=null]", "1:1 null=null []"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--from-beginning"], ["0", "1", "2", "3", "4"]),
        (["--offset", "3"], ["3", "4"]),
        (["--offset", "earliest", "--max-messages", "2"], ["0", "1"]),
        (["--offset", "-2"], ["3", "4"]),
        (["--offset", "-100"], ["0", "1", "2", "3", "4"]),
        (["--offset", "latest"], []),
        ([], []),
        (["--timestamp", "1700000003000"], ["3", "4"]),
        (["--timestamp", "1700000002001"], ["3", "4"]),
        (["--timestamp", "2023-11-14T22:13:24Z"], ["4"]),
        (["--timestamp", "2033-01-01T00:00:00Z"], []),
        (["--from-beginning", "--partition", "0"], []),
    ],
    ids=lambda value: " ".join(value) if value else "-",
)
def test_where_reading_starts(
    server: BrokerProcess, five_messages: str, words: list[str], expected: list[str]
) -> None:
    assert consume(server, five_messages, *words, "--timeout-ms", "300") == expected


@pytest.fixture(scope="module")
def five_messages(server: BrokerProcess) -> str:
    """Produce values 0 to 4 to partition 2, one second apart, from 1700000000000 on."""
    # These times are years ago: without this setting retention may remove them meanwhile.
    create_topic(server.bootstrap_servers, "five", 3, {"retention.ms": "-1"})
    messages = [
        {"value": str(n), "partition": 2, "timestamp": 1_700_000_000_000 + 1000 * n}
        for n in range(5)
    ]
    send(server, "five", *messages)
    return "five"


def test_an_offset_past_the_end_is_told(server: BrokerProcess, five_messages: str) -> None:
    done = run_ottla(
        *("consume", five_messages, "-b", server.bootstrap_servers, "--partition", "2"),
        *("--offset", "50", "--timeout-ms", "300"),
    )
    assert done.returncode == 0
    assert "partition 2: offset 50 does not exist, continuing at 5" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_messages_are_followed_until_interrupted(
    server: BrokerProcess,
    topic: str,
    run: Callable[..., subprocess.Popen[str]],
    how: signal.Signals,
) -> None:
    reader = run("consume", topic, "--from-beginning", "-b", server.bootstrap_servers)
    writer = run("produce", topic, "-b", server.bootstrap_servers)
    assert writer.stdin is not None
    assert reader.stdout is not None
    for word in ("typed", "by", "hand"):
        writer.stdin.write(f"{word}\n")
        writer.stdin.flush()
        assert reader.stdout.readline() == f"{word}\n"
    reader.send_signal(how)
    assert reader.communicate(timeout=TIMEOUT_S) == ("", "3 messages\n")
    assert reader.returncode == 0
    _, said = writer.communicate(timeout=TIMEOUT_S)
    assert said.startswith(f"3 messages to {topic}")


def test_a_reader_that_leaves_ends_it_quietly(
    server: BrokerProcess, topic: str, run: Callable[..., subprocess.Popen[str]]
) -> None:
    produce(server, topic, "".join(f"{n}\n" for n in range(100_000)))
    reader = run("consume", topic, "--from-beginning", "-b", server.bootstrap_servers)
    assert reader.stdout is not None
    assert reader.stderr is not None
    assert reader.stdout.readline()
    reader.stdout.close()
    assert reader.wait(TIMEOUT_S) == 0
    assert "Traceback" not in reader.stderr.read()


def test_a_reader_that_leaves_while_nothing_comes(
    server: BrokerProcess, topic: str, run: Callable[..., subprocess.Popen[str]]
) -> None:
    produce(server, topic, "one\n")
    reader = run("consume", topic, "--from-beginning", "-b", server.bootstrap_servers)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "one\n"
    reader.stdout.close()
    assert reader.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize("separator", [":", r"\t"])
def test_lines_before_a_bad_one_are_sent(server: BrokerProcess, topic: str, separator: str) -> None:
    done = subprocess.run(
        [*COMMAND, "produce", topic, "-b", server.bootstrap_servers, "--key-separator", separator],
        input="a:1\nb:2\nnothing\nc:3\n".replace(":", "\t" if separator == r"\t" else ":"),
        text=True,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith(f"2 messages to {topic}")
    said = f"ottla: line 3 has no key: it does not contain '{separator}'"
    assert done.stderr.splitlines()[1] == said
    values = consume(server, topic, "--from-beginning", "--max-messages", "2")
    assert sorted(values) == ["1", "2"]


@pytest.mark.parametrize("acks", ["0", "1"])
def test_weaker_acks(server: BrokerProcess, topic: str, acks: str) -> None:
    produce(server, topic, "a\nb\n", "--acks", acks, "--partition", "1")
    assert consume(server, topic, "--offset", "earliest", "--max-messages", "2") == ["a", "b"]


def test_a_file_and_a_count_for_programs(server: BrokerProcess, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\n\nlast")
    done = run_ottla(
        *("produce", topic, "--file", str(path), "--json", "--partition", "0"),
        *("-b", server.bootstrap_servers),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["messages"] == 3
    assert consume(server, topic, "--from-beginning", "--max-messages", "3") == ["a", "", "last"]


def test_a_topic_is_made_on_demand(server: BrokerProcess) -> None:
    assert produce(server, "on-demand", "x\n").startswith("1 message to on-demand")
    assert consume(server, "on-demand", "--from-beginning", "--max-messages", "1") == ["x"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["consume", "nowhere"], "there is no topic nowhere: create it with"),
        (["consume", "five", "--partition", "3"], "has no partition 3: its partitions are 0 to 2"),
        (["produce", "bad name", "--file", "/dev/null"], "INVALID_TOPIC_EXCEPTION"),
    ],
    ids=["topic", "partition", "name"],
)
def test_mistakes_end_with_1_and_a_line(
    server: BrokerProcess, five_messages: str, words: list[str], said: str
) -> None:
    done = run_ottla(*words, "-b", server.bootstrap_servers)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_message_larger_than_the_topic_takes(server: BrokerProcess) -> None:
    run_ottla("topics", "create", "small", "--config", "max.message.bytes=2000", "--partitions",
              "1", "-b", server.bootstrap_servers)  # fmt: skip
    expected = [f"{number:0>300}" for number in range(100)]
    produce(server, "small", "\n".join(expected))  # more than fits one batch: it is cut
    assert consume(server, "small", "--from-beginning", "--max-messages", "100") == expected
    done = subprocess.run(
        [*COMMAND, "produce", "small", "-b", server.bootstrap_servers],
        input="x" * 3000,
        text=True,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1
    assert "MESSAGE_TOO_LARGE" in done.stderr
    assert "0 messages to small" in done.stderr
