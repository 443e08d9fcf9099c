"""A second server that speaks S3's protocol: Versity's gateway on a directory, built with Go."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.cache import cache_directory

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
BUILD_TIMEOUT_S = 900
START_TIMEOUT_S = 60
REGION = "us-east-1"
_KEYS = {"ROOT_ACCESS_KEY": "ottla", "ROOT_SECRET_KEY": "a secret of ottla"}
CLIENT_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": _KEYS["ROOT_ACCESS_KEY"],
    "AWS_SECRET_ACCESS_KEY": _KEYS["ROOT_SECRET_KEY"],
    "AWS_REGION": REGION,
    "AWS_ALLOW_HTTP": "true",
}
"""What a client of it needs, apart from AWS_ENDPOINT_URL."""


def gateway_program() -> Path:
    """Return the program, built if it is not in the cache; skip the test without Go."""
    program = cache_directory() / f"versitygw-{VERSION}" / "versitygw"
    if program.exists():
        return program
    if shutil.which("go") is None:
        pytest.skip("Go is missing")
    environment = os.environ | {"GOBIN": str(program.parent)}
    done = subprocess.run(
        ["go", "install", MODULE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"versitygw cannot be built: {done.stderr[-500:]}")
    return program


@contextmanager
def versity_gateway(directory: Path, bucket: str) -> Iterator[str]:
    """Yield the address of a server whose objects are files below a directory."""
    program = gateway_program()
    objects, metadata = directory / "objects", directory / "metadata"
    objects.mkdir(parents=True)
    metadata.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [str(program), "--port", f"127.0.0.1:{port}", "--region", REGION, "--quiet"]
    command += ["posix", "--sidecar", str(metadata), str(objects)]
    with subprocess.Popen(command, env=os.environ | _KEYS) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            _await_port(port, process)
            _create_bucket(address, bucket)
            yield address
        finally:
            process.kill()


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, "the gateway has ended"
            assert time.monotonic() < deadline, "the gateway does not listen"
            time.sleep(0.05)


def _create_bucket(address: str, bucket: str) -> None:
    import boto3  # type: ignore[import-untyped]

    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name=REGION,
        aws_access_key_id=_KEYS["ROOT_ACCESS_KEY"],
        aws_secret_access_key=_KEYS["ROOT_SECRET_KEY"],
    )
    client.create_bucket(Bucket=bucket)
