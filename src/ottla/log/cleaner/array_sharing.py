"""The part of a copy of the helper process in a clean with arrays: both sides of it.

`shared_chunks.py` says who looks at which chunk. The copy is made when a pass has enough to do, so
that it knows the settings, and in the second pass what the first one has found. It is asked with
messages as in `task_messages.py`:

    map       find the keys of a chunk
    filter    find what stays of a chunk, and keep that
    write     write what was kept first to a file of the output

It answers `declined` if it cannot do that; see `shared_chunks.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from errno import EIO
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ottla.log.cleaner.array_key_offsets import FoundKeys
from ottla.log.cleaner.chunk_output import KeptBatches
from ottla.log.cleaner.cleaning_session import Chunk
from ottla.log.cleaner.shared_chunks import SharedChunks
from ottla.log.cleaner.task_messages import pack, unpack
from ottla.log.file_names import INDEX, LOG
from ottla.ports import Buffer, HelperFiles, SecondProcess, SharedFile, SharedOutput, Twin
from ottla.records.batch import CorruptBatch

if TYPE_CHECKING:
    from ottla.log.cleaner.array_session import ArraySession, ChunkKept, ChunkKeys

SHARED_FROM_BYTES: Final = 8 * 1024 * 1024
"""A task must be so large that a copy is made: that takes a few milliseconds."""
_INDEX_BYTES: Final = 128 * 1024
"""How much of an index is read at once."""
_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
_WORDS: Final = (np.uint64, np.uint64, np.int64, np.int64, np.int64)
_ERRORS: Final = (CorruptBatch, OSError, IndexError)


class Sharing:
    """The copy that works for a clean, if there is one."""

    def __init__(self) -> None:
        self._twin: Twin | None = None
        self._is_useful = True
        """False after it has declined something in this pass, or had no core."""
        self._positions: tuple[str, list[int]] = "", []

    def batch_positions(self, path: str) -> list[int]:
        """Return where some batches of a segment are, by its offset index; [] if it has none."""
        if SecondProcess.start is None or not self._is_useful:
            return []
        if self._positions[0] != path:
            self._positions = path, _indexed_positions(path)
        return self._positions[1]

    def add_keys(self, session: ArraySession, chunks: Sequence[Chunk]) -> int:
        """Collect the keys of chunks; return how many were done."""
        twin = self._started(session, chunks)
        if twin is None:
            return 0
        work = _MapWork(session)
        return self._done(session, SharedChunks(_alone(chunks), twin, work).run(), chunks)

    def filter(self, session: ArraySession, chunks: Sequence[Chunk], latest_offset: int) -> int:
        """Put what stays of chunks into the output; return how many were done."""
        twin = self._started(session, chunks)
        if twin is None:
            return 0
        work = _FilterWork(session, latest_offset)
        return self._done(session, SharedChunks(_alone(chunks), twin, work).run(), chunks)

    def _started(self, session: ArraySession, chunks: Sequence[Chunk]) -> Twin | None:
        if not self._is_useful or SecondProcess.start is None:
            return None
        shared = sum(chunk.size for chunk in chunks if chunk.place is not None)
        if self._twin is None and shared >= SHARED_FROM_BYTES:
            session.codecs.has_second_thread = False
            self._twin = SecondProcess.start(_TwinSide(session).serve)
        return self._twin

    def _done(self, session: ArraySession, count: int, chunks: Sequence[Chunk]) -> int:
        if count < len(chunks):
            self.close(session)
            self._is_useful = False
        return count

    def close(self, session: ArraySession) -> None:
        """End the copy. The next pass may have another one."""
        self._is_useful = True
        twin, self._twin = self._twin, None
        if twin is not None:
            twin.close()
            session.codecs.has_second_thread = True


def _alone(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return chunks that are read one by one."""
    return [chunk._replace(following=None) for chunk in chunks]


def _indexed_positions(path: str) -> list[int]:
    if HelperFiles.open is None:
        return []
    content, piece = b"", bytearray(_INDEX_BYTES)
    try:
        file = HelperFiles.open(path.removesuffix(LOG) + INDEX)
        try:
            while size := file.read_into(memoryview(piece), len(content)):
                content += piece[:size]
        finally:
            file.close()
    except OSError:
        return []
    entries = np.frombuffer(content, _ENTRY, len(content) // _ENTRY.itemsize)
    positions = entries["position"].astype(np.int64)
    rises = np.append(True, positions[1:] > positions[:-1])
    found: list[int] = positions[: len(rises) if rises.all() else int(rises.argmin())].tolist()
    return found


class _Work:
    """What both passes have in common: see `shared_chunks.ChunkWork`."""

    task = ""

    def __init__(self, session: ArraySession) -> None:
        self._session = session

    def request(self, chunk: Chunk) -> bytes:
        """Return what asks the copy to look at a chunk."""
        assert chunk.place is not None
        path, position = chunk.place
        stream = self._session.stream
        offsets = stream.first_offset, stream.end_offset
        place = {"path": path, "position": position, "size": chunk.size, "offsets": offsets}
        return pack({"task": self.task, **place, **self._more()})

    def _more(self) -> dict[str, Any]:
        return {}

    def written(self, answer: Buffer) -> None:
        """Raise the error of a write by the copy, if there was one."""
        fields, _ = unpack(answer)
        if "errno" in fields:
            raise OSError(fields["errno"], fields["error"])

    @property
    def has_rest(self) -> bool:
        """True if the last chunk that was looked at here has ended in the middle of a batch."""
        return self._session.stream.has_rest

    def drop_rest(self) -> None:
        """Begin the next chunk with a batch."""
        self._session.stream.drop_rest()

    @property
    def is_over(self) -> bool:
        """True if the map is full."""
        return self._session.is_full


class _MapWork(_Work):
    """The first pass."""

    task = "map"

    def do(self, chunk: Chunk) -> None:
        """Collect the keys of a chunk whose turn it is."""
        self._session.add_keys(chunk)

    def look_ahead(self, chunk: Chunk) -> ChunkKeys | None:
        """Find the keys of a chunk whose turn comes later."""
        try:
            return self._session.find_keys(chunk)
        except _ERRORS:
            return None

    def found_by_twin(self, answer: Buffer) -> ChunkKeys | None:
        """Return the keys that the copy has found."""
        from ottla.log.cleaner.array_session import ChunkKeys

        fields, parts = unpack(answer)
        if "declined" in fields:
            return None
        arrays = [np.frombuffer(*each) for each in zip(parts, _WORDS, strict=True)]
        return ChunkKeys(FoundKeys(fields["are_marks_useful"], *arrays), fields["last_offset"])

    def take(self, found: ChunkKeys) -> bytes | None:
        """Add the keys of the chunk whose turn it is."""
        return b"" if self._session.add_found_keys(found) else None


class _FilterWork(_Work):
    """The second pass."""

    task = "filter"

    def __init__(self, session: ArraySession, latest_offset: int) -> None:
        super().__init__(session)
        self._latest_offset = latest_offset

    def _more(self) -> dict[str, Any]:
        return {"latest_offset": self._latest_offset}

    def do(self, chunk: Chunk) -> None:
        """Write what stays of a chunk whose turn it is."""
        self._session.filter(chunk, self._latest_offset)
        self._write()

    def look_ahead(self, chunk: Chunk) -> ChunkKept | None:
        """Find what stays of a chunk whose turn comes later."""
        try:
            return self._session.find_kept(chunk, self._latest_offset)
        except _ERRORS:
            return None

    def found_by_twin(self, answer: Buffer) -> ChunkKept | None:
        """Return what the copy keeps, but not its bytes."""
        from ottla.log.cleaner.array_session import ChunkKept

        fields, parts = unpack(answer)
        if "declined" in fields:
            return None
        arrays = [np.frombuffer(part, np.int64) for part in parts]
        kept = KeptBatches([], fields["unchanged_bytes"], *arrays)
        return ChunkKept(kept, fields["records_read"], fields["records_kept"])

    def take(self, found: ChunkKept) -> bytes | None:
        """Write what stays of the chunk whose turn it is, or let the copy do so."""
        session = self._session
        position = session.output.size
        session.add_found_kept(found)
        if found.batches.content or session.output.size == position:
            self._write()
            return b""
        return pack({"task": "write", "path": session.output_path, "position": position})

    def _write(self) -> None:
        session = self._session
        batches = session.output.take_batches()
        assert session.output_file is not None
        position = session.output.size - sum(map(len, batches))
        session.output_file.write(batches, position)


class _TwinSide:
    """What runs in the copy."""

    def __init__(self, session: ArraySession) -> None:
        self._session = session
        self._input: tuple[str, SharedFile] | None = None
        self._output: tuple[str, SharedOutput] | None = None
        self._kept: deque[list[Buffer]] = deque()
        """What stays of chunks, until it is written."""

    def serve(self, request: Buffer) -> bytes:
        """Answer a request."""
        fields, _ = unpack(request)
        task = fields.pop("task")
        if task == "write":
            return self._write(fields["path"], fields["position"])
        try:
            return self._map(fields) if task == "map" else self._filter(fields)
        except _ERRORS:
            return pack({"declined": True})

    def _map(self, fields: dict[str, Any]) -> bytes:
        found = self._session.find_keys(self._chunk(fields))
        if found is None or self._session.stream.has_rest:
            return pack({"declined": True})
        are_useful, *arrays = found.keys
        fields = {"are_marks_useful": bool(are_useful), "last_offset": found.last_offset}
        parts = [array.astype(kind).data for array, kind in zip(arrays, _WORDS, strict=True)]
        return pack(fields, *(part.cast("B") for part in parts))

    def _filter(self, fields: dict[str, Any]) -> bytes:
        found = self._session.find_kept(self._chunk(fields), fields["latest_offset"])
        if found is None or self._session.stream.has_rest:
            return pack({"declined": True})
        content, unchanged_bytes, *arrays = found.batches
        if content:
            self._kept.append(content)
        fields = {
            "unchanged_bytes": unchanged_bytes,
            "records_read": found.records_read,
            "records_kept": found.records_kept,
        }
        return pack(fields, *(array.astype(np.int64).tobytes() for array in arrays))

    def _write(self, path: str, position: int) -> bytes:
        try:
            self._opened_output(path).write(self._kept.popleft(), position)
        except OSError as error:
            return pack({"errno": error.errno or EIO, "error": error.strerror or str(error)})
        return pack({})

    def _chunk(self, fields: dict[str, Any]) -> Chunk:
        """Return a chunk of a segment, which is read as if nothing were before it."""
        file, size = self._opened(fields["path"]), fields["size"]
        stream = self._session.stream
        stream.drop_rest()
        stream.first_offset, stream.end_offset = fields["offsets"]
        return Chunk(size, partial(_read, file, fields["position"]), 0)

    def _opened(self, path: str) -> SharedFile:
        if self._input is None or self._input[0] != path:
            _close(self._input)
            self._input = None
            assert HelperFiles.open is not None
            self._input = path, HelperFiles.open(path)
        return self._input[1]

    def _opened_output(self, path: str) -> SharedOutput:
        if self._output is None or self._output[0] != path:
            _close(self._output)
            self._output = None
            assert HelperFiles.open_output is not None
            self._output = path, HelperFiles.open_output(path)
        return self._output[1]


def _close(opened: tuple[str, SharedFile | SharedOutput] | None) -> None:
    if opened is not None:
        with suppress(OSError):
            opened[1].close()


def _read(file: SharedFile, position: int, target: memoryview) -> None:
    if file.read_into(target, position) < len(target):
        raise CorruptBatch(position, "the file is shorter than it was")
