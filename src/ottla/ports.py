"""Interfaces to the outside world: everything that the core does not decide itself.

The core (every package below `server`) reads no clock, opens no file and starts no
thread by itself: it asks these ports. `ottla.server` implements them on the operating
system, `ottla.sim` on virtual time and a disk that fails on purpose.

Storage failures surface as OSError from the calls below, never as a special value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import ENETUNREACH
from importlib import import_module
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    """Wall time for record timestamps, monotonic time for deadlines; both in milliseconds."""

    def wall_ms(self) -> int: ...

    def monotonic_ms(self) -> float: ...


class Random(Protocol):
    """The source of ids and jitter."""

    def uuid(self) -> bytes:
        """Return 16 random bytes that never start with a dash in Kafka's text form."""
        ...

    def below(self, limit: int) -> int:
        """Return a number in [0, limit)."""
        ...


class Mapping(Protocol):
    """A file's bytes as mutable memory of fixed size (mmap, or a bytearray in memory)."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: slice, /) -> bytes: ...

    def __setitem__(self, key: slice, value: bytes, /) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class File(Protocol):
    """An open file. It closes when `close` is called or the last reference goes."""

    @property
    def path(self) -> str: ...

    def fileno(self) -> int:
        """Return the descriptor for sendfile, or -1 if the file is not the operating system's."""
        ...

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Return `length` bytes at `position`; fewer only at the end of the file."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers one after the other at `position`, or raise OSError.

        After an error any prefix may have been written.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros, sparsely) to `size`; frees what was allocated beyond it."""
        ...

    def allocate(self, position: int, length: int) -> None:
        """Make room on the disk for bytes to come, without a change of what the file holds.

        A hint: it may do nothing, and never fails.
        """
        ...

    def sync(self) -> None:
        """Force to disk what was written before: it survives a power failure."""
        ...

    def map(self, *, writable: bool) -> Mapping:
        """Return the whole file as memory, which may outlive the File. It must not be empty."""
        ...

    def close(self) -> None: ...


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    is_dir: bool
    size: int
    mtime_ms: int


class Files(Protocol):
    """A file system. Paths are plain strings; parents must exist unless said otherwise."""

    is_shared: bool
    """True if helper processes find the same files under the same paths."""

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> File:
        """Open a file; FileNotFoundError unless it exists or `create` is set."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[Entry]:
        """Return the entries of a directory, in no particular order."""
        ...

    def stat(self, path: str) -> Entry: ...

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents; fine if it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give `source` the name `target` atomically, replacing it."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; fine if it is not there."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; fine if it is not there."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in a directory survive a power failure."""
        ...

    def sync_volume(self, path: str) -> bool:
        """Force everything on the volume that holds `path` to disk: files, names, directories.

        Return False if the system cannot do that and report errors; then sync one by one.
        """
        ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes of the volume that holds `path`."""
        ...


class Background(Protocol):
    """Work off the loop: blocking system calls (fsync, unlink), never Python-heavy."""

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Run `work` elsewhere, then `done` with its result, or its OSError, on the loop."""
        ...


class Response(NamedTuple):
    """The body of a peer's response: [start, end) of the buffer it was received into.

    The bytes are valid until the wake-up ends. What is appended to a log before that need not
    be copied; what is kept for longer must be.
    """

    buffer: bytearray
    view: memoryview
    start: int
    end: int


class Peer(Protocol):
    """Another broker or controller: one connection, and a pipeline of requests on it.

    It connects when there is something to send. After a failure it connects again with the
    next request, with a growing delay while it does not succeed.
    """

    on_lost: Callable[[], None] | None
    """Called when a connection was lost or refused, after the requests in flight have failed."""

    def send(
        self,
        api_key: int,
        api_version: int,
        body: bytes,
        timeout_ms: float,
        done: Callable[[Response | OSError], None],
    ) -> None:
        """Send a request that has a response; raise BlockingIOError if too many are in flight.

        `done` is called once, later, on the loop. It gets the response, in the order of the
        requests, or the reason why there is none: TimeoutError, or another OSError if the
        connection could not be made or was lost. A request that times out closes the connection.
        If `done` raises DecodeError, the connection is closed.
        """
        ...

    def close(self) -> None:
        """Close the connection. Requests in flight fail; nothing more may be sent."""
        ...


class Network(Protocol):
    """Connections to other brokers and controllers."""

    def connect(self, host: str, port: int, client_id: str, longest_backoff_ms: int = 1000) -> Peer:
        """Return a new connection to an endpoint, which is opened with the first request.

        `longest_backoff_ms` limits the delay before it is opened again after failures.
        """
        ...


class NoNetwork:
    """The Network of a node that has no peers."""

    def connect(self, host: str, port: int, client_id: str, longest_backoff_ms: int = 1000) -> Peer:
        raise OSError(ENETUNREACH, f"there is no network to reach {host}:{port}")


class TaskFailed(Exception):
    """A task was not done: its process ended or took too long, or too much waits already."""


class HelperProcesses(Protocol):
    """Work off the loop that takes the processor: whatever looks at every record.

    A task is a function of an importable module, named "module:function". It takes and returns
    bytes and knows nothing of the broker.
    """

    def submit(
        self,
        task: str,
        data: Buffer,
        done: Callable[[bytes | TaskFailed], None],
        lane: str = "",
    ) -> None:
        """Run a task elsewhere, then `done` with its result on the loop.

        `data` must not change until then. Results may come in any order. Raise TaskFailed if
        too much waits already. Tasks of one lane run in the same process, one after the other,
        and may leave something there for the next one. It is lost if that process ends. Long
        work has a lane of its own, so that others do not wait behind it.
        """
        ...


class NoHelperProcesses:
    """The HelperProcesses of a node that has none."""

    def submit(
        self,
        task: str,
        data: Buffer,
        done: Callable[[bytes | TaskFailed], None],
        lane: str = "",
    ) -> None:
        raise TaskFailed("there are no helper processes")


class SharedFile(Protocol):
    """A file that a task in a helper process reads."""

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill `target` from a position on; return how many bytes there were."""
        ...

    def close(self) -> None: ...


class SharedOutput(Protocol):
    """A file that a task in a helper process writes."""

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write these bytes from a position on. They may change afterwards."""
        ...

    def close(self) -> None: ...


class HelperFiles:
    """How tasks open shared files. A helper process sets these; elsewhere there are none."""

    open: Callable[[str], SharedFile] | None = None

    open_output: Callable[[str], SharedOutput] | None = None
    """Opens an empty file that the broker has created; OSError if the broker is gone."""


class SecondThread:
    """How a task does two things at a time, one of which holds no lock of the interpreter."""

    start: Callable[[Callable[[], T]], Callable[[], T]] | None = None
    """Starts work in a second thread, and returns what waits for its result or raises its error.

    A helper process sets this; elsewhere there is no second thread.
    """


class CopyEnded(Exception):
    """The process at the other end has ended. Not an OSError: no disk has failed."""


class CopyLink(Protocol):
    """One end of the way between a helper process and a copy of it.

    All methods but `close` raise CopyEnded.
    """

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send bytes."""
        ...

    def receive(self, size: int) -> bytearray:
        """Wait for so many bytes."""
        ...

    def send_files(self, file: SharedFile, output: SharedOutput | None) -> None:
        """Let the copy have files, in between the bytes."""
        ...

    def receive_files(self) -> tuple[SharedFile, SharedOutput | None]:
        """Return what `send_files` has sent."""
        ...

    def offer(self, count: int) -> None:
        """Let both processes claim the numbers up to before `count`."""
        ...

    def claim(self) -> int | None:
        """Return the next number that neither process has claimed; None if there is none left."""
        ...

    def close(self) -> None:
        """End the copy, and wait until it has ended."""
        ...


class HelperCopies:
    """How a task has a part of its work done by a copy of its process."""

    start: Callable[[Callable[[CopyLink], None]], CopyLink] | None = None
    """Makes a copy, which does some work and ends. OSError if that is not possible.

    A helper process sets this if it may run on several processors.
    """


class HelperPace:
    """How the tasks of a helper process share the machine with the broker and its clients."""

    beside_clients = False
    """True while clients are served: tasks use one thread and short system calls."""

    stores_soon = False
    """True if somebody will wait until what is written now is on disk."""

    has_copy = False
    """True while a copy of the process works as well: each of them uses one thread."""


def start_beside(work: Callable[[], T]) -> Callable[[], T]:
    """Start work in a second thread if there is one, otherwise do it when its result is needed."""
    start = SecondThread.start
    if start is None or HelperPace.beside_clients or HelperPace.has_copy:
        return work
    return start(work)


def run_task(task: str, data: Buffer) -> bytes:
    """Run a task here, and import its module if that has not happened yet."""
    module, _, function = task.partition(":")
    result: bytes = getattr(import_module(module), function)(data)
    return result


class ObjectStoreError(OSError):
    """An object store could not do what it was asked to."""


class ObjectNotFound(ObjectStoreError):
    """There is no object with this key."""


class ObjectStoreUnavailable(ObjectStoreError):
    """The store does not answer, or cannot at the moment. It may have done what was asked."""


class ObjectStoreDenied(ObjectStoreError):
    """The store does not let us do this."""


class FileRange(NamedTuple):
    """A part of an open file."""

    file: File
    position: int
    length: int


class StoredObject(NamedTuple):
    """One entry of a listing."""

    key: str
    size: int


class ObjectStore(Protocol):
    """Named objects that are written once as a whole (S3 and its like).

    Keys are paths with slashes, without a slash at the start or the end. Each `done` is called
    once, later, on the loop, with the result or an ObjectStoreError. Results may come in any
    order.
    """

    def put(
        self,
        key: str,
        content: Buffer | FileRange,
        done: Callable[[ObjectStoreError | None], None],
    ) -> None:
        """Store an object, replacing one of the same key. Readers see all of it or nothing.

        The content must not change until `done` is called.
        """
        ...

    def get(
        self,
        key: str,
        position: int,
        length: int,
        done: Callable[[bytes | ObjectStoreError], None],
    ) -> None:
        """Read `length` bytes at `position`; fewer only at the end of the object."""
        ...

    def get_file(
        self,
        key: str,
        position: int,
        length: int,
        done: Callable[[FileRange | ObjectStoreError], None],
    ) -> None:
        """Read what `get` reads; `done` gets it as a part of a file, to be sent without a copy."""
        ...

    def size(self, key: str, done: Callable[[int | ObjectStoreError], None]) -> None:
        """Return the size of an object."""
        ...

    def list(
        self,
        prefix: str,
        after: str,
        limit: int,
        done: Callable[[list[StoredObject] | ObjectStoreError], None],
    ) -> None:
        """Return up to `limit` objects whose keys begin with `prefix`, sorted by key.

        `prefix` ends with a slash, or is empty. Only keys greater than `after` are returned, so
        the last key of a page asks for the next one. A page may be short; only an empty one is
        the last.
        """
        ...

    def delete(self, key: str, done: Callable[[ObjectStoreError | None], None]) -> None:
        """Remove an object; fine if it is not there."""
        ...


class Ports(NamedTuple):
    """All of the outside world, as one thing to hand to a node."""

    files: Files
    clock: Clock
    random: Random
    background: Background
    report: Callable[[str], None]  # one message for the operator
    network: Network = NoNetwork()
    helpers: HelperProcesses = NoHelperProcesses()
    object_store: ObjectStore | None = None
    """The store of the remote tier, if the broker has one."""


def read_file(files: Files, path: str, limit: int = 64 * 1024 * 1024) -> bytes:
    """Return the content of a small file; raise ValueError if it is larger than `limit`."""
    file = files.open(path)
    try:
        size = file.size()
        if size > limit:
            raise ValueError(f"{path} has {size} bytes, more than the {limit} expected at most")
        return file.pread(size, 0)
    finally:
        file.close()


def write_file_atomically(files: Files, path: str, content: bytes) -> None:
    """Replace a small file so that a crash leaves the old or the new content, never a mix."""
    temporary = path + ".tmp"
    file = files.open(temporary, create=True, writable=True)
    try:
        file.truncate(0)
        file.pwritev([content], 0)
        file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_dir(path.rpartition("/")[0])
