"""Compares Ottla with Apache Kafka and prints the differences: `python -m interop.compare`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "interop"), str(ROOT / "bench"), str(ROOT / "src")]

from compare.comparison import Comparison, compare  # noqa: E402  # found by the lines above


def main() -> int:
    """Print a table of the differences. Return 1 if there is one that is not meant."""
    parser = argparse.ArgumentParser(prog="python -m interop.compare", description=__doc__)
    parser.add_argument(
        "--all", action="store_true", help="show the differences that are meant too"
    )
    parser.add_argument("--only", default="", help="show only requests whose title has this text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-compare-") as directory:
        result = compare(Path(directory))
    _print(result, options.only, show_meant=options.all)
    return 1 if result.unexpected or result.outdated else 0


def _print(result: Comparison, only: str, *, show_meant: bool) -> None:
    shown = [*result.unexpected, *(result.meant if show_meant else ())]
    for found in shown:
        if only in found.title:
            print(f"{found.title}\n    {found.path}")
            print(f"        Kafka: {found.kafka!r}\n        Ottla: {found.ottla!r}")
    for meant in result.outdated:
        print(f"no longer a difference: {meant}")
    per_api = Counter(title.partition(" ")[0] for title in result.titles)
    different = Counter(title.partition(" ")[0] for title in {d.title for d in result.unexpected})
    expected = Counter(title.partition(" ")[0] for title in {d.title for d in result.meant})
    print(f"\n{'API':28}{'requests':>10}{'meant':>8}{'different':>11}")
    for api, requests in sorted(per_api.items()):
        print(f"{api:28}{requests:>10}{expected[api]:>8}{different[api]:>11}")
    totals = (per_api.total(), expected.total(), different.total())
    print(f"{'all':28}{totals[0]:>10}{totals[1]:>8}{totals[2]:>11}")


if __name__ == "__main__":
    sys.exit(main())
