"""The copier's process: `python -m tests.harness.copier SPEC`, until SIGTERM."""

from __future__ import annotations

import sys

from tests.harness.copier.spec import CopierSpec
from tests.harness.member.__main__ import Stop


def main() -> int:
    spec = CopierSpec.from_json(sys.argv[1])
    stop = Stop()
    if spec.client == "confluent":
        from tests.harness.copier import confluent as library
    else:
        from tests.harness.copier import aio as library  # type: ignore[no-redef]
    return library.run(spec, lambda: stop.requested)


if __name__ == "__main__":
    sys.exit(main())
