"""Merges the small files of a Parquet table, and keeps the old files for a while.

Spark's readers use the sink's log, which is replaced by one rename. Other readers list the
directory, so the old files stay for ten minutes.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import TYPE_CHECKING
from uuid import uuid4

from ottla_spark.loads.state.load_directory import HIDDEN
from ottla_spark.loads.state.storage import Storage
from ottla_spark.loads.targets.parquet_sink_log import SinkFile, SinkLog, sink_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPLACED_KEPT_MS = 10 * 60 * 1000
"""How long compacted files are kept for readers that listed them before."""


class ParquetCompaction:
    """Compacts the table in `directory`."""

    def __init__(self, spark: SparkSession, storage: Storage, log: SinkLog, directory: str) -> None:
        self._spark = spark
        self._storage = storage
        self._log = log
        self._directory = directory

    def run(self, target_file_size: int) -> int:
        """Rewrite the small files that each log file lists, then replace the log file.

        Return how many files were replaced.
        """
        gone = 0
        for name in self._log.names():
            files = self._log.read(name)
            small = self._small(files, target_file_size)
            if not small:
                continue
            fresh = [file for group in small for file in self._rewrite(group)]
            replaced = {file.path for group in small for file in group}
            self._note_replaced(replaced)
            self._log.replace(name, [f for f in files if f.path not in replaced] + fresh)
            gone += len(replaced)
        return gone

    def recently_replaced(self) -> set[str]:
        """Return compacted files that are still kept for readers."""
        kept: set[str] = set()
        for name in self._storage.children(f"{self._directory}/{HIDDEN}"):
            if not name.startswith("replaced-"):
                continue
            path = f"{self._directory}/{HIDDEN}/{name}"
            if int(name.removeprefix("replaced-").removesuffix(".json")) < time.time() * 1000:
                self._storage.remove(path)
            else:
                kept |= set(json.loads(self._storage.read_text(path)))
        return kept

    @staticmethod
    def _small(files: list[SinkFile], target_file_size: int) -> list[list[SinkFile]]:
        """Return groups of small files of one directory, each about `target_file_size` in sum."""
        by_directory: defaultdict[str, list[SinkFile]] = defaultdict(list)
        for file in files:
            if file.size < target_file_size / 2:
                by_directory[file.path.rpartition("/")[0]].append(file)
        groups = []
        for found in by_directory.values():
            group: list[SinkFile] = []
            for file in found:
                if group and sum(f.size for f in group) + file.size > target_file_size:
                    groups.append(group)
                    group = []
                group.append(file)
            groups.append(group)
        return [group for group in groups if len(group) > 1]

    def _rewrite(self, group: list[SinkFile]) -> list[SinkFile]:
        """Write one file with the rows of a group elsewhere, then move it beside the old files."""
        aside = f"{self._directory}/{HIDDEN}/compact-{uuid4().hex[:8]}"
        paths = [self._storage.canonical(file.path) for file in group]
        rows = self._spark.read.option("mergeSchema", "true").parquet(*paths)
        rows.coalesce(1).write.parquet(aside)
        directory = paths[0].rpartition("/")[0]
        fresh = []
        for stored in self._storage.data_files(aside):
            place = f"{directory}/{stored.uri.rpartition('/')[2]}"
            self._storage.move(stored.uri, place)
            encoded = f"{group[0].path.rpartition('/')[0]}/{place.rpartition('/')[2]}"
            fresh.append(sink_file(encoded, stored.size, stored.modified_ms, like=group[0]))
        self._storage.remove(aside)
        return fresh

    def _note_replaced(self, paths: set[str]) -> None:
        """Write down until when these files are kept, before the log stops listing them."""
        until_ms = int(time.time() * 1000) + REPLACED_KEPT_MS
        name = f"{self._directory}/{HIDDEN}/replaced-{until_ms}.json"
        self._storage.write_text(name, json.dumps(sorted(map(self._storage.canonical, paths))))
