"""S3 and compatible stores: `s3://BUCKET/PATH`, without Java.

Credentials and the address come from the usual environment: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL, profiles, and roles of the
machine. Each library reads the credentials itself. Here they are told only what they do not read.
Tasks of Spark get the variables of the driver, because a worker may have been started without them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SCHEME = "s3://"
_DEFAULT_REGION = "us-east-1"
_MARKS = re.compile(r"\x1b\[[0-9;]*m|↳")
_STORE_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
"""Colours and arrows in messages of delta-rs."""


def is_object_store(path: str) -> bool:
    """Return whether a path is in an object store that is used without Java."""
    return path.startswith(SCHEME)


def locate(path: str) -> tuple[FileSystem, str]:
    """Return Arrow's file system of a path in an object store, and the path in it."""
    return _s3(_endpoint(), _region()), path.removeprefix(SCHEME).rstrip("/")


def delta_options(path: str) -> dict[str, str] | None:
    """Return the storage options of delta-rs for a table; None for a local one."""
    if "://" in path:
        os.environ.setdefault("RUST_LOG", "off")  # errors are reported by whoever asks
    if not is_object_store(path):
        return None
    options = {"allow_http": "true"} if _endpoint().startswith("http://") else {}
    endpoint, region = _endpoint(), _region()
    options |= {"aws_endpoint_url": endpoint} if endpoint else {}
    return options | ({"aws_region": region} if region else {})


def unreachable(path: str, error: OSError) -> LoadError:
    """Return the error of a place that cannot be read, with the reason in one line.

    The libraries give a chain of causes in several lines. The last one says most. It may be an
    answer of the store in XML, with a message inside.
    """
    causes = [_MARKS.sub("", line).strip() for line in str(error).splitlines()]
    reason = next((cause for cause in reversed(causes) if cause), "no reason is known")
    answer = _STORE_MESSAGE.search(reason)
    where = f"cannot read {path}: {answer[1] if answer else reason}"
    if "://" not in path:
        return LoadError(where)
    return LoadError(
        f"{where} (credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION,"
        " or from the role of the machine; AWS_ENDPOINT_URL is the address of a compatible store)"
    )


def iceberg_properties() -> dict[str, str]:
    """Return the properties of a catalog's file system that pyiceberg does not find itself."""
    found = {"s3.endpoint": _endpoint(), "s3.region": _region()}
    return {name: value for name, value in found.items() if value}


def access() -> dict[str, str]:
    """Return the variables that a task needs to reach the object store."""
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def use_access(variables: Mapping[str, str]) -> None:
    """Take over the variables of the driver, in a worker."""
    os.environ.update(variables)


def _endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def _region() -> str:
    found = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    return found or (_DEFAULT_REGION if _endpoint() else "")


@cache
def _s3(endpoint: str, region: str) -> FileSystem:
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(endpoint_override=endpoint or None, region=region or None)
