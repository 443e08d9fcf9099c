"""The member's process: `python -m tests.harness.member SPEC`, until SIGTERM."""

from __future__ import annotations

import signal
import sys

from tests.harness.member.report import Reporter
from tests.harness.member.spec import Spec


class Stop:
    """Whether the member has been told to leave."""

    def __init__(self) -> None:
        self.requested = False
        signal.signal(signal.SIGTERM, self._request)

    def _request(self, number: int, frame: object) -> None:
        del number, frame
        self.requested = True


def main() -> None:
    spec = Spec.from_json(sys.argv[1])
    stop, reporter = Stop(), Reporter()
    reporter.started()
    if spec.client == "confluent":
        from tests.harness.member import confluent as library
    elif spec.client == "kafka-python":
        from tests.harness.member import kafkapython as library  # type: ignore[no-redef]
    else:
        from tests.harness.member import aio as library  # type: ignore[no-redef]
    library.run(spec, reporter, lambda: stop.requested)


if __name__ == "__main__":
    main()
