"""`ottla broker` with a properties file, and with settings that override it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.harness.process import COMMAND, READY, properties_text, run_ottla


def test_a_properties_file_and_what_wins_over_it(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "# as Kafka's own\n"
        + properties_text(
            {
                "node.id": "5",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(tmp_path / "data"),
                "num.partitions": "2",
                "default.replication.factor": "1",
            }
        )
    )
    command = [*COMMAND, "broker", "--config", str(config), "--set", "num.partitions=4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            found = READY.search(broker.stdout.readline())
            assert found is not None
            server = ("-b", found.group(1))
            assert run_ottla("topics", "create", "t", *server).returncode == 0
            (topic,) = json.loads(run_ottla("topics", "describe", "--json", *server).stdout)
        finally:
            broker.terminate()
        assert broker.wait(20) == 0
    assert [partition["leader"] for partition in topic["partitions"]] == [5] * 4
    assert (tmp_path / "data" / "meta.properties").exists()
