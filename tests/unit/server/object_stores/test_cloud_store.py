"""Stores in the cloud: their URLs, credentials and errors, with a server that acts like S3."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ottla.ports import (
    ObjectNotFound,
    ObjectStoreDenied,
    ObjectStoreError,
    ObjectStoreUnavailable,
)
from ottla.server.object_stores import cloud_store
from ottla.server.object_stores.blocking_store import BlockingStore, open_blocking_store
from ottla.server.object_stores.directory_store import DirectoryStore

ANSWERS = {
    "206": (206, b"0123"),
    "404": (404, b""),
    "403": (403, b"<Error><Code>AccessDenied</Code></Error>"),
    "401": (401, b""),
    "expired": (400, b"<Error><Code>ExpiredToken</Code><Message>It has.</Message></Error>"),
    "500": (500, b""),
    "503": (503, b"<Error><Code>SlowDown</Code></Error>"),
}


class S3Server(BaseHTTPRequestHandler):
    """Says what the key asks for, as S3 does; notes who asks."""

    authorizations: list[str] = []
    failures_left = 0

    def do_GET(self) -> None:
        self.authorizations.append(self.headers.get("Authorization", ""))
        name = self.path.rpartition("/")[2]
        if name == "slow":
            time.sleep(3)  # longer than the client waits
            return
        status, body = ANSWERS.get(name, (404, b""))
        if S3Server.failures_left:
            S3Server.failures_left -= 1
            status, body = 503, b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 206:
            self.send_header("Content-Range", "bytes 0-3/10")
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Mon, 16 Nov 2026 16:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Yield a server, and an environment that has nothing else for clients of S3."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), S3Server)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    S3Server.authorizations = []
    S3Server.failures_left = 0
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def s3(server: str, monkeypatch: pytest.MonkeyPatch) -> BlockingStore:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id-of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr(cloud_store, "_RETRIES", 0)
    return open_blocking_store("s3://bucket/prefix")


def test_a_range(s3: BlockingStore) -> None:
    assert s3.get("206", 0, 4) == b"0123"


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("404", ObjectNotFound),
        ("403", ObjectStoreDenied),
        ("401", ObjectStoreDenied),
        ("expired", ObjectStoreDenied),
        ("500", ObjectStoreUnavailable),
        ("503", ObjectStoreUnavailable),
    ],
)
def test_errors(s3: BlockingStore, key: str, error: type[ObjectStoreError]) -> None:
    with pytest.raises(error) as raised:
        s3.get(key, 0, 4)
    assert str(raised.value).startswith(f"{key}: ")
    assert "\n" not in str(raised.value)


def test_a_bucket_that_is_not_there_is_not_a_missing_object(s3: BlockingStore) -> None:
    with pytest.raises(ObjectStoreUnavailable, match="the bucket does not exist"):
        s3.put("404", b"x")


def test_requests_are_repeated(s3: BlockingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_store, "_RETRIES", 4)
    store = open_blocking_store("s3://bucket/prefix")
    S3Server.failures_left = 2
    assert store.get("206", 0, 4) == b"0123"
    assert len(S3Server.authorizations) == 3


def test_a_store_that_does_not_answer_in_time(
    s3: BlockingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_store, "_TIMEOUT", timedelta(milliseconds=200))
    store = open_blocking_store("s3://bucket/prefix")
    with pytest.raises(ObjectStoreUnavailable):
        store.get("slow", 0, 4)


def test_a_store_that_is_away(s3: BlockingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    store = open_blocking_store("s3://bucket/prefix")
    calls: list[Callable[[], object]] = [
        lambda: store.get("a", 0, 1),
        lambda: store.put("a", b""),
        lambda: store.size("a"),
        lambda: store.list("", "", 10),
        lambda: store.delete("a"),
    ]
    for call in calls:
        with pytest.raises(ObjectStoreUnavailable):
            call()


def test_no_credentials_at_all(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(cloud_store, "_RETRIES", 0)
    store = open_blocking_store("s3://bucket/prefix")
    with pytest.raises(ObjectStoreDenied, match="there are no credentials for the object store"):
        store.get("206", 0, 4)


def test_credentials_of_a_profile_are_read_again_when_they_change(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.object_stores.aws_profile._VALID_FOR", timedelta(seconds=0))
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_PROFILE", "cold")
    (tmp_path / "config").write_text(
        f"[profile cold]\nregion = eu-north-1\nendpoint_url = {server}\n"
    )
    keys = "[other]\naws_access_key_id = no\n[cold]\naws_access_key_id = {}\n"
    secret = "aws_secret_access_key = 50%s\naws_session_token = token\n"
    (tmp_path / "credentials").write_text(keys.format("first") + secret)
    store = open_blocking_store("s3://bucket/prefix")
    store.get("206", 0, 4)
    (tmp_path / "credentials").write_text(keys.format("second") + secret)
    store.get("206", 0, 4)
    first, second = S3Server.authorizations
    assert "Credential=first/" in first
    assert "/eu-north-1/s3/" in first
    assert "Credential=second/" in second


def test_credentials_that_expire_are_named_and_looked_for_again(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_store, "_RETRIES", 0)
    monkeypatch.setattr(cloud_store, "_OPEN_AGAIN_S", 0.0)
    keys = "[default]\naws_access_key_id = {}\naws_secret_access_key = b\n"
    (tmp_path / "credentials").write_text(keys.format("first"))
    store = open_blocking_store("s3://bucket/prefix")
    with pytest.raises(ObjectStoreDenied, match=r"have expired \(ExpiredToken\)") as raised:
        store.get("expired", 0, 4)
    assert "<" not in str(raised.value), "it is not the answer of the store"
    (tmp_path / "credentials").write_text(keys.format("second"))
    with pytest.raises(ObjectStoreDenied):
        store.get("expired", 0, 4)
    assert store.get("206", 0, 4) == b"0123"
    first, _, third = S3Server.authorizations
    assert "Credential=first/" in first
    assert "Credential=second/" in third, "although the first ones count as valid for minutes"


def test_the_environment_comes_before_a_profile(s3: BlockingStore, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    open_blocking_store("s3://bucket/prefix").get("206", 0, 4)
    assert "Credential=id-of-environment/" in S3Server.authorizations[0]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "the scheme is none of"),
        ("bucket", "the scheme is none of"),
        ("http://x/y", "the scheme is none of"),
        ("hdfs://x/y", "the scheme is none of"),
        ("s3:", "the bucket or container is missing"),
        ("s3:///prefix", "the bucket or container is missing"),
        ("gs://", "the bucket or container is missing"),
        ("s3://key:secret@bucket/p", "it must have no user, password"),
        ("s3://bucket/p?region=x", "it must have no user, password, query"),
        ("file:", "the directory is missing"),
        ("file://cold/x", "a directory has no host; write file:cold/x"),
    ],
)
def test_urls_that_are_no_store(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match="is not an object store") as raised:
        open_blocking_store(url)
    assert reason in str(raised.value)


def test_urls_of_google_and_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ValueError, match="set AZURE_STORAGE_ACCOUNT_NAME"):
        open_blocking_store("az://container/prefix")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    open_blocking_store("az://container/prefix")
    open_blocking_store("gs://bucket/prefix")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "missing.json"))
    with pytest.raises(ValueError, match="gs://bucket cannot be opened"):
        open_blocking_store("gs://bucket/prefix")


def test_a_relative_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_blocking_store("file:./a%20b/cold")
    assert isinstance(store, DirectoryStore)
    store.put("t/x", b"1")
    assert (tmp_path / "a b" / "cold" / "t" / "x").read_bytes() == b"1"
