"""The table of APIs, and the lazy import of their classes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.wire.apis import API_INFO, ApiKey, api_info, request_class, response_class


def test_every_api_has_its_messages() -> None:
    assert set(API_INFO) == {int(key) for key in ApiKey}
    for key, info in API_INFO.items():
        for message, side in ((request_class(key), "Request"), (response_class(key), "Response")):
            assert message.__name__ == info.name + side
            assert key == message.API_KEY
            assert info.min_version == message.MIN_VERSION
            assert info.max_version == message.MAX_VERSION
            assert info.first_flexible == message.FIRST_FLEXIBLE_VERSION


def test_well_known_rows() -> None:
    assert api_info(ApiKey.API_VERSIONS) == ("ApiVersions", 0, 4, 3)
    assert api_info(17) == ("SaslHandshake", 0, 1, None)


def test_unknown_keys() -> None:
    for look_up in (api_info, request_class, response_class):
        with pytest.raises(KeyError):
            look_up(999)


def test_messages_are_imported_only_when_asked_for() -> None:
    script = (
        "import sys, ottla.wire.apis as apis, ottla.wire.codec, ottla.wire.header\n"
        "loaded = lambda: [m for m in sys.modules if m.startswith('ottla.wire.messages.')]\n"
        "assert loaded() == [], loaded()\n"
        "apis.request_class(apis.ApiKey.METADATA)\n"
        "assert loaded() == ['ottla.wire.messages.metadata'], loaded()\n"
        "heavy = {'dataclasses', 'inspect', 'asyncio', 'kio', 'hypothesis'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    path = ["-c", f"import sys; sys.path[:0] = {sys.path!r}\n{script}"]
    result = subprocess.run([sys.executable, *path], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
