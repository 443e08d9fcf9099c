"""The test's side of a copier."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.harness.copier.spec import FAILED, FENCED, STOPPED, CopierSpec
from tests.harness.supervised import Supervised

ROOT = Path(__file__).parents[3]


class Copier(Supervised):
    """A copier. It is started again when it cannot know what became of its transaction."""

    def __init__(self, spec: CopierSpec, log: Path) -> None:
        super().__init__(
            [sys.executable, "-m", "tests.harness.copier", spec.to_json()],
            log,
            restarts_on={FAILED},
            zombie_ends={FENCED, FAILED},
            stops={STOPPED},
            environment={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
        self.transactional_id = spec.transactional_id
