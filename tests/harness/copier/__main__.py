"""The copier's process: `python -m tests.harness.copier SPEC`, until SIGTERM."""

from __future__ import annotations

import sys
from importlib import import_module

from tests.harness.copier.spec import CopierSpec
from tests.harness.member.__main__ import Stop

MODULES = {"confluent": "confluent", "aiokafka": "aio", "kafka-python": "kafkapython"}


def main() -> int:
    spec = CopierSpec.from_json(sys.argv[1])
    stop = Stop()
    library = import_module(f"tests.harness.copier.{MODULES[spec.client]}")
    return int(library.run(spec, lambda: stop.requested))


if __name__ == "__main__":
    sys.exit(main())
