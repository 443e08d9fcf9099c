"""A client of a schema registry, which returns schemas by id over HTTP.

Schemas never change, so each process fetches each schema once. If the registry does not answer, a
few retries follow, then the load stops. If the registry lacks an id, the record does not fit.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from ottla_spark.loads.errors import LoadError, LoadUsageError

TIMEOUT_S = 10
TRIES = 4
FIRST_PAUSE_S = 0.2
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
MAX_CACHED = 1000
NOT_FOUND = 404
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class UnknownSchema(Exception):
    """The registry has no schema with this id."""


@dataclass(frozen=True)
class Reference:
    """A reference to another schema, by the name it is imported with."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema: its text, its kind (AVRO, PROTOBUF or JSON) and its references."""

    text: str
    kind: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True)
class Registry:
    """A registry at `url`. `login` is USER:PASSWORD, or empty."""

    url: str
    login: str = ""

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in {"http", "https"}:
            raise LoadUsageError(
                f"the registry {self.url!r} should be a URL such as http://host:8081"
            )

    def __repr__(self) -> str:
        return f"Registry({self.url!r})"

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with this id; raise UnknownSchema if there is none."""
        return _fetch(self, f"/schemas/ids/{schema_id}", f"schema {schema_id}")

    def version(self, reference: Reference) -> RegisteredSchema:
        """Return the schema that a reference names."""
        subject = quote(reference.subject, safe="")
        path = f"/subjects/{subject}/versions/{reference.version}"
        return _fetch(self, path, f"{reference.subject} version {reference.version}")


@lru_cache(maxsize=MAX_CACHED)
def _fetch(registry: Registry, path: str, what: str) -> RegisteredSchema:
    content = _get(registry, path, what)
    try:
        return RegisteredSchema(
            text=str(content["schema"]),
            kind=str(content.get("schemaType") or "AVRO"),
            references=tuple(
                Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
                for each in content.get("references") or ()
            ),
        )
    except (KeyError, TypeError, ValueError):
        raise LoadError(f"{registry.url}{path} did not answer with a schema") from None


def _get(registry: Registry, path: str, what: str) -> dict[str, Any]:
    pause_s = FIRST_PAUSE_S
    for attempt in range(1, TRIES + 1):
        try:
            return _ask(registry, path)
        except HTTPError as error:
            error.close()
            if error.code == NOT_FOUND:
                raise UnknownSchema(f"{what} is not in the registry {registry.url}") from None
            if error.code < 500:
                raise LoadError(f"the registry {registry.url} refuses {path}: {error}") from None
            failure: Exception = error
        except (URLError, OSError, ValueError) as error:
            failure = error
        if attempt < TRIES:
            time.sleep(pause_s)
            pause_s *= 2
    raise LoadError(f"the registry {registry.url} does not answer: {failure}")


def _ask(registry: Registry, path: str) -> dict[str, Any]:
    request = Request(registry.url.rstrip("/") + path, headers={"Accept": _ACCEPT})
    if registry.login:
        token = base64.b64encode(registry.login.encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    with urlopen(request, timeout=TIMEOUT_S) as response:
        content = json.loads(response.read(MAX_RESPONSE_BYTES))
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content
