"""Object stores in the cloud, through obstore, which is in the extra `tier`.

Credentials come from where the tools of each cloud look for them: the environment (AWS_…,
GOOGLE_…, AZURE_…), `~/.aws`, Google's application default credentials, and the machine's own
identity. obstore repeats requests that failed, for half a minute at most.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from re import search
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from ottla.ports import (
    Buffer,
    FileRange,
    ObjectNotFound,
    ObjectStoreDenied,
    ObjectStoreError,
    ObjectStoreUnavailable,
    StoredObject,
)
from ottla.server.object_stores import blocking_store
from ottla.server.object_stores.aws_profile import profile_credentials, profile_setting
from ottla.server.object_stores.blocking_store import pieces_of
from ottla.server.object_stores.memory_file import memory_file

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config
    from obstore.store import ObjectStore as Store

T = TypeVar("T")

_PAGE: Final = 1000
_PARTS_AT_ONCE: Final = 4
_RETRIES: Final = 4
_RETRY_TIMEOUT: Final = timedelta(seconds=30)
_TIMEOUT: Final = timedelta(seconds=30)
"""How long one request may take: 8 MiB at 300 kB/s."""
_OPEN_AGAIN_S: Final = 10.0
_EXPIRED: Final = ("ExpiredToken", "TokenRefreshRequired", "RequestExpired")
_DENIED: Final = (*_EXPIRED, "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch")
"""Codes of S3 for credentials that it does not take. Some come with status 400."""
_NO_CREDENTIALS: Final = ("latest/api/token", "meta-data/iam", "metadata.google.internal")


class CloudStore:
    """A bucket, or the part of it under a prefix."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._store = open_store()
        self._opened_s = monotonic()

    def _do(self, key: str, work: Callable[[], T]) -> T:
        """Do work; raise one of the port's errors instead of obstore's.

        After a refusal the store is opened again, which looks for credentials again: obstore keeps
        those that it has for some minutes.
        """
        try:
            return work()
        except (BaseError, OSError) as error:
            translated = _error_for(key, error)
        if isinstance(translated, ObjectStoreDenied) and self._is_time_to_open:
            self._opened_s = monotonic()
            with suppress(BaseError):
                self._store = self._open()
        raise translated

    @property
    def _is_time_to_open(self) -> bool:
        return monotonic() >= self._opened_s + _OPEN_AGAIN_S

    def put(self, key: str, content: Buffer | FileRange) -> None:
        """Store an object. A large file is read and uploaded in parts, a few at a time."""
        part = blocking_store.PIECE_BYTES

        def put() -> None:
            if not isinstance(content, FileRange):
                obstore.put(self._store, key, bytes(content), use_multipart=False)
            elif content.length <= part:
                obstore.put(self._store, key, b"".join(pieces_of(content)), use_multipart=False)
            else:
                obstore.put(
                    self._store,
                    key,
                    pieces_of(content),
                    use_multipart=True,
                    chunk_size=part,
                    max_concurrency=_PARTS_AT_ONCE,
                )

        try:
            self._do(key, put)
        except ObjectNotFound as error:
            raise ObjectStoreUnavailable(f"the bucket does not exist: {error}") from None

    def get(self, key: str, position: int, length: int) -> bytes:
        """Read `length` bytes at `position`; fewer only at the end of the object."""
        if length == 0:
            return b""

        def get() -> bytes:
            try:
                return bytes(obstore.get_range(self._store, key, start=position, length=length))
            except BaseError as error:
                if _is_about_range(error):
                    with suppress(BaseError, OSError):
                        if obstore.head(self._store, key)["size"] <= position:
                            return b""
                raise

        return self._do(key, get)

    def get_file(self, key: str, position: int, length: int) -> FileRange:
        """Return what `get` reads as a file in memory."""
        content = self.get(key, position, length)
        try:
            return FileRange(memory_file(key, content), 0, len(content))
        except OSError as error:
            raise ObjectStoreUnavailable(
                f"no memory for a part of {key}: {error.strerror}"
            ) from None

    def size(self, key: str) -> int:
        """Return the size of an object."""
        return self._do(key, lambda: obstore.head(self._store, key)["size"])

    def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        """Return up to `limit` objects under a prefix whose keys are greater than `after`."""

        def page() -> list[StoredObject]:
            pages = obstore.list(
                self._store,
                prefix or None,
                offset=after or None,
                chunk_size=min(limit, _PAGE),
            )
            found = (StoredObject(meta["path"], meta["size"]) for page in pages for meta in page)
            return list(islice(found, limit))

        return self._do(prefix, page)

    def directories(self, prefix: str) -> Sequence[str]:
        """Return the distinct parts of keys between `prefix` and the next slash, sorted."""

        def names() -> Sequence[str]:
            found = obstore.list_with_delimiter(self._store, prefix or None)["common_prefixes"]
            return sorted(each.rstrip("/").rpartition("/")[2] for each in found)

        return self._do(prefix, names)

    def delete(self, key: str) -> None:
        """Remove an object; fine if it is not there."""
        try:
            self._do(key, lambda: obstore.delete(self._store, key))
        except ObjectNotFound:
            pass  # S3 does not tell either


def open_memory() -> CloudStore:
    """Return a store in memory."""
    store = MemoryStore()
    return CloudStore(lambda: store)


def open_cloud(scheme: str, bucket: str, prefix: str) -> CloudStore:
    """Return a bucket, or a part of it; raise ValueError if a setting is missing or wrong."""
    retries: RetryConfig = {"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT}
    client: ClientConfig = {"timeout": _TIMEOUT}
    within = prefix or None
    try:
        if scheme == "s3":
            return CloudStore(lambda: _open_s3(bucket, within, retries, client))
        make = GCSStore if scheme == "gs" else AzureStore
        return CloudStore(
            lambda: make(bucket, prefix=within, retry_config=retries, client_options=client)
        )
    except BaseError as error:
        reason = _first_line(error)
        if "Account must be specified" in reason:
            reason = "set AZURE_STORAGE_ACCOUNT_NAME to the name of the storage account"
        raise ValueError(f"{scheme}://{bucket} cannot be opened: {reason}") from None


def _open_s3(
    bucket: str, prefix: str | None, retries: RetryConfig, client: ClientConfig
) -> S3Store:
    environment = os.environ
    config: S3Config = {}
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    endpoint = endpoint or profile_setting("endpoint_url")
    if endpoint:
        config["endpoint"] = endpoint
        client = {**client, "allow_http": endpoint.startswith("http://")}
    region = profile_setting("region")
    if region and not environment.get("AWS_REGION") and not environment.get("AWS_DEFAULT_REGION"):
        config["region"] = region
    return S3Store(
        bucket,
        prefix=prefix,
        config=config,
        client_options=client,
        retry_config=retries,
        credential_provider=profile_credentials(),
    )


def _error_for(key: str, error: Exception) -> ObjectStoreError:
    text = f"{key}: {_first_line(error)}"
    if isinstance(error, FileNotFoundError):
        return ObjectNotFound(text)
    is_refused = isinstance(error, PermissionError | PermissionDeniedError | UnauthenticatedError)
    if is_refused or any(code in str(error) for code in _DENIED):
        return ObjectStoreDenied(f"{key}: {_refusal(error)}")
    if any(address in str(error) for address in _NO_CREDENTIALS):
        return ObjectStoreDenied(f"{key}: there are no credentials for the object store")
    return ObjectStoreUnavailable(text)


def _refusal(error: Exception) -> str:
    """Return why the store refuses a request, and what to do about it."""
    found = search(r"<Code>(\w+)</Code>", str(error))
    code = found[1] if found else type(error).__name__
    if code in _EXPIRED:
        return (
            f"the credentials have expired ({code}). Renew them in ~/.aws; if they come from the"
            " environment of the broker, restart it with new ones"
        )
    if code in _DENIED:
        return f"the store does not know these credentials ({code})"
    return f"the store denies access ({code}): {_first_line(error)}"


def _is_about_range(error: BaseError) -> bool:
    """Return True if the error may say that a range begins at or after the end of the object."""
    return search(r"\b416\b|range", str(error).lower()) is not None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
