"""A directory as object store: what other stores need not care about."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.ports import FileRange, ObjectNotFound, ObjectStoreDenied, ObjectStoreUnavailable
from ottla.server.object_stores.blocking_store import all_objects
from ottla.server.object_stores.directory_store import UPLOADS, DirectoryStore
from ottla.server.os_files import OsFiles


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(str(tmp_path / "cold"))


def test_a_deleted_object_leaves_no_empty_directories(
    store: DirectoryStore, tmp_path: Path
) -> None:
    store.put("t/0/a", b"1")
    store.put("t/1/a", b"1")
    store.delete("t/0/a")
    assert store.directories("t/") == ["1"]
    store.delete("t/1/a")
    assert store.directories("") == []
    assert (tmp_path / "cold").is_dir()


def test_unfinished_uploads_are_hidden_and_removed_later(
    store: DirectoryStore, tmp_path: Path
) -> None:
    uploads = tmp_path / "cold" / UPLOADS
    store.put("t/0/a", b"1")
    assert list(uploads.iterdir()) == []
    (uploads / "old").write_bytes(b"x")
    (uploads / "new").write_bytes(b"x")
    os.utime(uploads / "old", (1, 1))
    assert [each.key for each in all_objects(store, "")] == ["t/0/a"]
    assert store.directories("") == ["t"]
    assert store.list(f"{UPLOADS}/", "", 10) == []
    DirectoryStore(str(tmp_path / "cold"))
    assert [path.name for path in uploads.iterdir()] == ["new"]


def test_a_failed_upload_leaves_nothing(store: DirectoryStore, tmp_path: Path) -> None:
    file = OsFiles().open(f"{tmp_path}/f", create=True, writable=True)
    file.pwritev([b"0123"], 0)
    store.put("t/a", b"before")
    with pytest.raises(ObjectStoreUnavailable):
        store.put("t/a", FileRange(file, 2, 10))
    assert store.get("t/a", 0, 100) == b"before"
    assert list((tmp_path / "cold" / UPLOADS).iterdir()) == []


def test_a_directory_that_is_gone_is_not_created_again(
    store: DirectoryStore, tmp_path: Path
) -> None:
    (tmp_path / "cold").rmdir()
    with pytest.raises(ObjectStoreUnavailable, match="is gone"):
        store.put("t/a", b"1")
    with pytest.raises(ObjectStoreUnavailable, match="is gone"):
        store.list("", "", 10)
    assert not (tmp_path / "cold").exists()


def test_a_directory_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises((ObjectNotFound, ObjectStoreUnavailable)):
        DirectoryStore(str(tmp_path / "file" / "cold"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission(store: DirectoryStore, tmp_path: Path) -> None:
    (tmp_path / "cold").chmod(0o500)
    try:
        with pytest.raises(ObjectStoreDenied):
            store.put("t/a", b"1")
    finally:
        (tmp_path / "cold").chmod(0o700)


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", f"{UPLOADS}/a"])
def test_keys_that_lead_elsewhere_are_refused(store: DirectoryStore, key: str) -> None:
    with pytest.raises(ObjectStoreDenied, match="cannot be the key"):
        store.put(key, b"1")


def test_the_kernel_may_be_unable_to_copy(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    file = OsFiles().open(f"{tmp_path}/f", create=True, writable=True)
    file.pwritev([b"0123456789"], 0)
    store.put("a", FileRange(file, 2, 5))
    assert store.get("a", 0, 100) == b"23456"


def test_a_directory_needs_no_obstore(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["obstore"] = None
from ottla.server.object_stores.blocking_store import open_blocking_store
from ottla.tier_reader import open_topic
open_blocking_store("file:{tmp_path}").put("a/b", b"1")
try:
    open_blocking_store("s3://bucket/prefix")
except ImportError:
    print("only the cloud does")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"only the cloud does\n"


NAMES = st.text("ab-/.0", min_size=1, max_size=6).filter(
    lambda name: all(name.split("/")) and not {".", ".."} & set(name.split("/"))
)


@given(st.sets(NAMES, max_size=12), NAMES | st.just(""), st.integers(1, 4))
def test_listings_are_those_of_a_sorted_list_of_keys(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], after: str, limit: int
) -> None:
    keys = sorted(name for name in names if not any(n.startswith(name + "/") for n in names))
    store = DirectoryStore(str(tmp_path_factory.mktemp("store")))
    for key in keys:
        path = store._path(key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).touch()
    assert [e.key for e in store.list("", after, limit)] == [k for k in keys if k > after][:limit]
    assert [each.key for each in all_objects(store, "", limit)] == keys
    for prefix in {key.rpartition("/")[0] + "/" for key in keys if "/" in key}:
        expected = [key for key in keys if key.startswith(prefix)]
        assert [each.key for each in all_objects(store, prefix, limit)] == expected
        after_one = [key for key in expected if key > after]
        assert [each.key for each in store.list(prefix, after, 100)] == after_one


def test_a_part_of_a_file_where_the_system_cannot_send_to_nothing(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: int) -> int:
        raise OSError(errno.ENOTSOCK, "not a socket")

    store.put("a", bytes(300_000))
    monkeypatch.setattr(os, "sendfile", refuse, raising=False)
    assert store.get_file("a", 100, 400_000)[1:] == (100, 299_900)
