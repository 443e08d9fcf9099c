"""Commands that are running when the broker is killed and started again."""

from __future__ import annotations

import subprocess

import pytest

from tests.harness.process import COMMAND, BrokerProcess
from tests.harness.topics import create_topic

LINES = 300


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_produce_and_consume_go_on_after_a_restart(broker: BrokerProcess, end: str) -> None:
    create_topic(broker.bootstrap_servers, "t", 2)
    pipe = subprocess.PIPE
    words = ["t", "-b", broker.bootstrap_servers]
    with (
        subprocess.Popen(
            [*COMMAND, "consume", *words, "--from-beginning", "--max-messages", str(LINES)],
            stdout=pipe,
            stderr=pipe,
            text=True,
        ) as reader,
        subprocess.Popen(
            [*COMMAND, "produce", *words], stdin=pipe, stderr=pipe, text=True
        ) as writer,
    ):
        try:
            assert writer.stdin is not None
            assert reader.stdout is not None
            writer.stdin.write("before\n")
            writer.stdin.flush()
            assert reader.stdout.readline() == "before\n"
            broker.kill() if end == "kill" else broker.stop()
            writer.stdin.write("".join(f"{number}\n" for number in range(LINES - 1)))
            writer.stdin.flush()
            broker.start()
            _, said = writer.communicate(timeout=60)
            values, counted = reader.communicate(timeout=60)
        finally:
            writer.kill()
            reader.kill()
    assert said.startswith(f"{LINES} messages to t"), said
    assert sorted(map(int, values.split())) == list(range(LINES - 1))
    assert counted == f"{LINES} messages\n"
