"""The measurements of each round, and the comparison of the systems."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from harness.metrics import CLUSTER_METRICS, METRICS, Metric
from harness.works import Figures


@dataclass
class Results:
    """Figures by system and key (a list with one per round), and the failures."""

    peer: str = "Kafka"
    """The system that Ottla is compared with."""
    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    details: list[dict[str, object]] = field(default_factory=list)
    circumstances: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, system: str, work: str, measured: Figures) -> None:
        """Add the figures of one round."""
        by_key = self.figures.setdefault(system, {})
        for key, value in measured.items():
            if not key.startswith("_"):
                by_key.setdefault(key, []).append(value)
        self.details.append({"system": system, "work": work, **measured})

    def failed(self, text: str) -> None:
        """Add a failure, each only once."""
        if text not in self.failures:
            self.failures.append(text)

    @property
    def remarks(self) -> list[str]:
        """The remarks under the table."""
        return [*self.circumstances, *self.failures]

    def value(self, system: str, key: str) -> float | None:
        """Return the median of the rounds."""
        rounds = self.figures.get(system, {}).get(key)
        return median(rounds) if rounds else None

    def ratio(self, key: str) -> float | None:
        """Return Ottla's median divided by that of the other system."""
        peer, ottla = self.value(self.peer, key), self.value("Ottla", key)
        return ottla / peer if peer and ottla is not None else None

    def measured(self) -> list[Metric]:
        """Return the metrics for which a system has a figure, in the order of the table."""
        return [
            metric
            for metric in (*METRICS, *CLUSTER_METRICS)
            if any(metric.key in by_key for by_key in self.figures.values())
        ]


def verdict(metric: Metric, ratio: float | None) -> str:
    """Return one or two words that compare the ratio, or the own figure, with its goals."""
    if ratio is None or metric.at_least is None:
        return ""
    if metric.aim is not None and metric.meets(ratio, metric.aim):
        return "aim reached"
    if metric.meets(ratio, metric.at_least):
        return "reached"
    return f"missed by {metric.shortfall(ratio, metric.at_least):.0%}"
