"""Offsets and partitions as JSON, in the format of Spark's own Kafka source.

Offsets and timestamps are `{"topic": {"0": 23, "1": -1}}`, partitions are
`{"topic": [0, 1]}`. Keys are written in sorted order, because Spark compares offsets as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ottla.model.ids import TopicPartition
from pyspark_ottla.options.option_values import MAX_LONG, OptionError

Offsets = dict[TopicPartition, int]
OffsetsDict = dict[str, dict[str, int]]
MAX_PARTITION = 2**31 - 1
OFFSETS_EXAMPLE = '{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
TIMESTAMPS_EXAMPLE = '{"topicA": {"0": 1700000000000}, "topicB": {"0": 1700000000000}}'
PARTITIONS_EXAMPLE = '{"topicA": [0, 1], "topicB": [2, 4]}'


def offsets_to_dict(offsets: Mapping[TopicPartition, int]) -> OffsetsDict:
    """Return the dict that Spark stores as the offset of a stream."""
    found: OffsetsDict = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def offsets_from_dict(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets in such a dict. Raise ValueError if it has another form."""
    return _offsets(value)


def offsets_from_json(name: str, text: str, example: str) -> Offsets:
    """Return the offsets (or timestamps) in option `name`. Raise OptionError with an example."""
    try:
        return _offsets(json.loads(text, object_pairs_hook=_unique_names))
    except ValueError as error:
        raise OptionError(f"{name} is {text!r} ({error}): expected e.g. {example}") from None


def partitions_from_json(name: str, text: str) -> frozenset[TopicPartition]:
    """Return the partitions in option `name`. Raise OptionError with an example."""
    try:
        return _partitions(json.loads(text, object_pairs_hook=_unique_names))
    except ValueError as error:
        raise OptionError(
            f"{name} is {text!r} ({error}): expected e.g. {PARTITIONS_EXAMPLE}"
        ) from None


def _unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def _offsets(value: object) -> Offsets:
    found: Offsets = {}
    for topic, by_partition in _object(value).items():
        for partition, offset in _object(by_partition).items():
            if type(offset) is not int or not -2 <= offset <= MAX_LONG:
                raise ValueError(f"{offset!r} is not an offset")
            found[TopicPartition(topic, _partition(partition))] = offset
    return found


def _partitions(value: object) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for topic, partitions in _object(value).items():
        if not isinstance(partitions, list):
            raise ValueError(f"{partitions!r} is not a list of partitions")
        for partition in partitions:
            if type(partition) is not int:
                raise ValueError(f"{partition!r} is not a partition")
            found.add(TopicPartition(topic, _partition(str(partition))))
    return frozenset(found)


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not an object")
    return value


def _partition(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > MAX_PARTITION:
        raise ValueError(f"{text!r} is not a partition")
    return int(text)
