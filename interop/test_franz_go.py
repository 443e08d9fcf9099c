"""A group of franz-go's transactional sessions copies topics of Ottla exactly once."""

from __future__ import annotations

import random
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.copy_faults import CopyFaults
from tests.harness.exactly_once import Copies
from tests.harness.fault_cluster import FaultCluster
from tests.harness.supervised import Supervised

pytestmark = pytest.mark.timeout(600)
PROGRAM = Path(__file__).parent / "go"
BUILD_TIMEOUT_S = 300
SOURCE, TARGET, GROUP = "source", "target", "copiers"
PARTITIONS = 2
STATE_PARTITIONS = 5
SETTINGS = {
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the copier, built with Go; skip without Go or the modules."""
    if shutil.which("go") is None:
        pytest.skip("Go is missing")
    built = tmp_path_factory.mktemp("go") / "copier"
    done = subprocess.run(
        ["go", "build", "-o", str(built), "."],
        cwd=PROGRAM,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"franz-go cannot be built: {done.stderr[-500:]}")
    return built


def test_a_group_of_franz_go_copies_exactly_once(program: Path, tmp_path: Path) -> None:
    with FaultCluster(tmp_path, properties=SETTINGS) as cluster, ExitStack() as stack:
        cluster.create_topic(SOURCE, PARTITIONS)
        cluster.create_topic(TARGET, PARTITIONS)
        servers = cluster.bootstrap_servers
        copies = Copies(servers, source=SOURCE, target=TARGET, partitions=PARTITIONS, group=GROUP)
        copies.fill()
        ids = [f"copier-{number}" for number in range(PARTITIONS)]
        copiers = [
            stack.enter_context(
                Supervised(
                    [str(program), servers, SOURCE, TARGET, GROUP, transactional_id],
                    tmp_path / f"{transactional_id}.log",
                    restarts_on={1},
                    zombie_ends=(),
                    stops={0},
                )
            )
            for transactional_id in ids
        ]
        faults = CopyFaults(
            cluster,
            copiers,
            copies,
            random.Random(1),
            transactional_ids=ids,
            state_partitions=STATE_PARTITIONS,
            timeout_s=120,
        )
        faults.go_on("start")
        faults.kill_coordinator()
        faults.kill_copier()
        faults.kill_leader()
        faults.pause_controller()
        faults.kill_controller()
        for copier in copiers:
            copier.stop()
        assert copies.check() > 0
