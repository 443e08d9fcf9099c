"""Plans of replicas for `ottla reassign`: chosen so that little moves, and Kafka's JSON files.

Replicas stay where they are as long as their broker is among the wanted ones and has no more than
its share. The others go to the brokers with the least, into racks that the partition does not
have yet. Preferred leaders are spread in the same way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.model.ids import TopicPartition

ANY_LOG_DIR: Final = "any"
Plan: TypeAlias = dict[TopicPartition, tuple[int, ...]]
"""The replicas of each partition, the preferred leader first."""


class Placement(NamedTuple):
    """A plan, and the log directories that it names."""

    plan: Plan
    log_dirs: dict[tuple[int, TopicPartition], str]
    """The path of the directory for a replica, by broker and partition."""

    def only(self, partitions: Collection[TopicPartition]) -> Placement:
        """Return the part of the plan for some of its partitions."""
        return Placement(
            {name: ids for name, ids in self.plan.items() if name in partitions},
            {key: path for key, path in self.log_dirs.items() if key[1] in partitions},
        )


class PlanError(ValueError):
    """A plan is not possible, or its file is not valid. The message says why."""


def make_plan(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    replication_factor: int | None = None,
) -> Plan:
    """Return replicas on the brokers in `racks`; as many as now, or `replication_factor`."""
    factors = {name: replication_factor or len(ids) for name, ids in current.items()}
    most = max(factors.values(), default=0)
    if most > len(racks):
        raise PlanError(f"{most} replicas need as many brokers, but there are {len(racks)}")
    share = -(-sum(factors.values()) // max(len(racks), 1))
    planner = _Planner(racks, share)
    kept = {name: planner.kept(ids, factors[name]) for name, ids in current.items()}
    chosen = {name: planner.filled(ids, factors[name]) for name, ids in kept.items()}
    # First those that are copied anyway, then, if need be, those that could stay.
    chosen = {name: planner.evened(ids, kept[name]) for name, ids in chosen.items()}
    chosen = {name: planner.evened(ids, ()) for name, ids in chosen.items()}
    return planner.with_leaders(chosen)


class _Planner:
    """How many replicas each broker has got so far."""

    def __init__(self, racks: Mapping[int, str | None], share: int) -> None:
        self._racks = racks
        self._share = share
        self._load: Counter[int] = Counter()

    def kept(self, current: Sequence[int], factor: int) -> list[int]:
        """Return the replicas of a partition that may stay where they are."""
        chosen: list[int] = []
        for broker_id in current:
            if len(chosen) < factor and self._may_stay(broker_id, chosen):
                chosen.append(broker_id)
                self._load[broker_id] += 1
        return chosen

    def filled(self, kept: Sequence[int], factor: int) -> tuple[int, ...]:
        """Return a partition's replicas with those that it lacks."""
        chosen = list(kept)
        while len(chosen) < factor:
            uses = Counter(self._racks[each] for each in chosen)
            best = min(
                (each for each in self._racks if each not in chosen),
                key=lambda each: (uses[self._racks[each]], self._load[each], each),
            )
            chosen.append(best)
            self._load[best] += 1
        return tuple(chosen)

    def _may_stay(self, broker_id: int, chosen: Sequence[int]) -> bool:
        if broker_id not in self._racks or self._load[broker_id] >= self._share:
            return False
        used = {self._racks[each] for each in chosen}
        return self._racks[broker_id] not in used or used >= set(self._racks.values())

    def evened(self, replicas: tuple[int, ...], kept: Sequence[int]) -> tuple[int, ...]:
        """Move replicas from brokers with more than others have, if the racks allow it."""
        found = list(replicas)
        for place, broker_id in enumerate(replicas):
            if broker_id in kept:
                continue
            others = {self._racks[each] for each in found if each != broker_id}
            candidates = [
                each
                for each, rack in self._racks.items()
                if each not in found
                and self._load[each] < self._load[broker_id] - 1
                and (rack == self._racks[broker_id] or rack not in others)
            ]
            if candidates:
                found[place] = min(candidates, key=lambda each: (self._load[each], each))
                self._load[broker_id] -= 1
                self._load[found[place]] += 1
        return tuple(found)

    def with_leaders(self, chosen: Mapping[TopicPartition, tuple[int, ...]]) -> Plan:
        """Put a replica first where the present first one leads more than its share."""
        share = -(-len(chosen) // max(len(self._racks), 1))
        leads: Counter[int] = Counter()
        plan: Plan = {}
        for name, replicas in chosen.items():
            leader = replicas[0]
            if leads[leader] >= share:
                leader = min(replicas, key=lambda each: leads[each])
            leads[leader] += 1
            plan[name] = (leader, *(each for each in replicas if each != leader))
        return plan


def plan_to_json(plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return a plan as Kafka's tools write it."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas)}
        for (topic, index), replicas in plan.items()
    ]
    lines = ",\n".join("  " + json.dumps(each) for each in partitions)
    return f'{{"version":1,"partitions":[\n{lines}\n]}}'


def plan_from_json(text: str) -> Placement:
    """Return the plan in a file of Kafka's format. Raise PlanError if it is not valid."""
    plan: Plan = {}
    log_dirs: dict[tuple[int, TopicPartition], str] = {}
    for each in _list(text, "partitions"):
        topic, index, replicas = (each.get(key) for key in ("topic", "partition", "replicas"))
        if (
            not isinstance(topic, str)
            or type(index) is not int
            or not isinstance(replicas, list)
            or not replicas
            or any(type(replica) is not int for replica in replicas)
        ):
            raise PlanError(f"not a partition with its replicas: {json.dumps(each)}")
        name = TopicPartition(topic, index)
        if name in plan:
            raise PlanError(f"{name} is there twice")
        plan[name] = tuple(replicas)
        paths = _log_dirs(each, len(replicas))
        log_dirs |= {
            (replica, name): path
            for replica, path in zip(replicas, paths, strict=False)
            if path != ANY_LOG_DIR
        }
    return Placement(plan, log_dirs)


def _log_dirs(each: Mapping[str, object], count: int) -> list[str]:
    """Return the directories of a partition's replicas; none if the file does not name them."""
    paths = each.get("log_dirs", [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise PlanError(f"log_dirs should be a list of paths: {json.dumps(each)}")
    if paths and len(paths) != count:
        raise PlanError(f"{count} replicas need as many log_dirs: {json.dumps(each)}")
    relative = [path for path in paths if path != ANY_LOG_DIR and not path.startswith("/")]
    if relative:
        raise PlanError(f'"{relative[0]}" is neither an absolute path nor "{ANY_LOG_DIR}"')
    return paths


def partitions_from_json(text: str) -> list[TopicPartition]:
    """Return the partitions in a file for elections. Raise PlanError if it is not valid."""
    found = []
    for each in _list(text, "partitions"):
        topic, index = each.get("topic"), each.get("partition")
        if not isinstance(topic, str) or type(index) is not int:
            raise PlanError(f"not a partition: {json.dumps(each)}")
        found.append(TopicPartition(topic, index))
    return found


def topics_from_json(text: str) -> list[str]:
    """Return the topics in a file of topics to move. Raise PlanError if it is not valid."""
    names = []
    for each in _list(text, "topics"):
        if not isinstance(each.get("topic"), str):
            raise PlanError(f"not a topic: {json.dumps(each)}")
        names.append(str(each["topic"]))
    return names


def _list(text: str, key: str) -> list[dict[str, object]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PlanError(f"not JSON: {error}") from None
    items = document.get(key) if isinstance(document, dict) else None
    if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
        raise PlanError(f'it should be like {{"version": 1, "{key}": [...]}}')
    return items
