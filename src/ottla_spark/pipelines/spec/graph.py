"""The graph of sources and steps: which reads which, and in what order to build them.

Names are compared without regard to case, as in SQL. If the file lacks a relation that SQL
names, Spark looks for it in its catalog.
"""

from __future__ import annotations

from typing import TypeAlias

from ottla_spark.pipelines.spec.model import PipelineSpec, PythonStep, Source, SqlStep, Step
from ottla_spark.pipelines.spec.problems import Problems
from ottla_spark.pipelines.spec.sql_relations import relations_of

Relation: TypeAlias = Source | Step


class Graph:
    """The sources and steps of a file, with their inputs."""

    def __init__(self, spec: PipelineSpec, problems: Problems) -> None:
        self._relations: dict[str, Relation] = {**spec.sources, **spec.steps}
        self._names = {name.lower(): name for name in self._relations}
        self._inputs = {name: self._inputs_of(step) for name, step in spec.steps.items()}
        self._check_cycles(problems)

    def known(self, name: str) -> str | None:
        """Return the name as its definition spells it; None if it is not defined."""
        return self._names.get(name.lower())

    def inputs(self, name: str) -> tuple[str, ...]:
        """Return what a step reads; empty for a source."""
        return self._inputs.get(name, ())

    def relation(self, name: str) -> Relation:
        """Return the source or step with this name."""
        return self._relations[name]

    def order(self, *last: str) -> list[str]:
        """Return these names and everything they need, each after its inputs.

        Steps of a cycle come in any order.
        """
        ordered: dict[str, None] = {}
        entered: set[str] = set()
        pending = [(name, False) for name in reversed(last)]
        while pending:
            name, is_ready = pending.pop()
            if is_ready:
                ordered[name] = None
            elif name not in entered:
                entered.add(name)
                pending.append((name, True))
                pending += [(needed, False) for needed in reversed(self.inputs(name))]
        return list(ordered)

    def streams(self, name: str) -> bool:
        """Return whether any source that it needs is a stream."""
        needed = (self._relations[found] for found in self.order(name))
        return any(getattr(relation, "streams", False) for relation in needed)

    def _inputs_of(self, step: Step) -> tuple[str, ...]:
        if isinstance(step, SqlStep):
            names = dict.fromkeys(relations_of(step.sql.text))
            return tuple(dict.fromkeys(found for name in names if (found := self.known(name))))
        return tuple(found for name in step.inputs if (found := self.known(name.text)))

    def _check_cycles(self, problems: Problems) -> None:
        for cycle in self._cycles():
            step = self._relations[cycle[0]]
            way = " reads ".join([*cycle, cycle[0]])
            problems.add(step.line, f"steps.{step.name}", f"the steps form a cycle: {way}")

    def _cycles(self) -> list[list[str]]:
        """Return each cycle once, from the step of it that is first in the file."""
        done: set[str] = set()
        cycles = []
        for start in self._inputs:
            way = self._way_back(start, done)
            if way:
                cycles.append(way)
                done.update(way)
            done.add(start)
        return cycles

    def _way_back(self, start: str, done: set[str]) -> list[str]:
        """Return the shortest path from a step to itself through steps not visited yet."""
        came_from: dict[str, str] = {}
        pending = [start]
        for name in pending:
            for needed in self.inputs(name):
                if needed == start:
                    way = [name]
                    while way[-1] != start:
                        way.append(came_from[way[-1]])
                    return way[::-1]
                if needed not in came_from and needed not in done:
                    came_from[needed] = name
                    pending.append(needed)
        return []


def functions_of(spec: PipelineSpec) -> list[PythonStep]:
    """Return the steps that are Python functions."""
    return [step for step in spec.steps.values() if isinstance(step, PythonStep)]
