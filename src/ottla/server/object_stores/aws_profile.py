"""Credentials and settings of a profile in `~/.aws`, which obstore does not read by itself.

The environment comes first: keys, a web identity or a container's credentials are obstore's. Only
if there is none of these, the keys of the profile are used (AWS_PROFILE, or `default`). The files
are read again every few minutes, so that keys that a tool renews there are found.
"""

from __future__ import annotations

import os
from configparser import ConfigParser
from configparser import Error as ParseError
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from obstore.store import S3Credential

_VALID_FOR: Final = timedelta(minutes=5)
_OTHER_SOURCES: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


class ProfileCredentials:
    """Gives obstore the keys of the profile, as they are in the file now."""

    def __call__(self) -> S3Credential:
        """Return the keys; raise ValueError if they are gone."""
        keys = _profile_keys()
        if keys is None:
            raise ValueError(f"profile {_profile()} in ~/.aws has no keys any more")
        access_key_id, secret_access_key, token = keys
        return {
            "access_key_id": access_key_id,
            "secret_access_key": secret_access_key,
            "token": token,
            "expires_at": datetime.now(UTC) + _VALID_FOR,
        }


def profile_credentials() -> ProfileCredentials | None:
    """Return the credentials of the profile, or None if obstore should look elsewhere."""
    if any(name in os.environ for name in _OTHER_SOURCES) or _profile_keys() is None:
        return None
    return ProfileCredentials()


def profile_setting(name: str) -> str | None:
    """Return a setting of the profile, such as `region`, or None."""
    return _sections()[1].get(name)


def _profile() -> str:
    return os.environ.get("AWS_PROFILE") or "default"


def _profile_keys() -> tuple[str, str, str | None] | None:
    credentials, config = _sections()
    for section in (credentials, config):
        if "aws_access_key_id" in section and "aws_secret_access_key" in section:
            token = section.get("aws_session_token")
            return section["aws_access_key_id"], section["aws_secret_access_key"], token
    return None


def _sections() -> tuple[dict[str, str], dict[str, str]]:
    """Return the profile's part of `credentials` and of `config`."""
    profile = _profile()
    in_config = profile if profile == "default" else f"profile {profile}"
    return (
        _section("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", profile),
        _section("AWS_CONFIG_FILE", "~/.aws/config", in_config),
    )


def _section(variable: str, default: str, name: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None, default_section="")
    try:
        parser.read(os.path.expanduser(os.environ.get(variable) or default), encoding="utf-8")
    except (ParseError, OSError, UnicodeDecodeError):
        return {}
    return dict(parser[name]) if parser.has_section(name) else {}
