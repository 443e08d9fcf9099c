"""Runs the whole comparison and sorts the differences by whether they are meant."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from compare import systems
from compare.difference import Difference, differences
from compare.meant_differences import MEANT, Meant
from compare.requests import all_cases
from compare.runner import Runner


class Comparison(NamedTuple):
    """All requests by title, and their differences. `outdated` names differences that are gone."""

    titles: list[str]
    unexpected: list[Difference]
    meant: list[Difference]
    outdated: list[Meant]


def compare(directory: Path) -> Comparison:
    """Start both systems, send all requests and return the differences."""
    cases = all_cases()
    with systems.running(systems.kafka(directory / "kafka")) as broker:
        kafka = Runner(broker).run(cases)
    with systems.running(systems.ottla(directory / "ottla")) as broker:
        ottla = Runner(broker).run(cases)
    found = [
        difference
        for title, answer in kafka.items()
        for difference in differences(title, answer, ottla[title])
    ]
    return sort(list(kafka), found)


def sort(titles: list[str], found: list[Difference]) -> Comparison:
    """Divide differences into those that are meant and those that are not."""
    meant = [each for each in found if any(known.covers(each) for known in MEANT)]
    unexpected = [each for each in found if each not in meant]
    outdated = [known for known in MEANT if not any(map(known.covers, meant))]
    return Comparison(titles, unexpected, meant, outdated)
