"""The APIs and versions that Ottla can decode, and the classes of their messages.

The table is generated with the messages. A message module is imported when its class is used
for the first time, so a broker imports only the APIs that its clients use. What a broker
advertises is decided in `broker/handlers`: an API with a codec may have no handler.
"""

from __future__ import annotations

from importlib import import_module

from ottla.wire.api_table import API_INFO, ApiInfo, ApiKey
from ottla.wire.message import Message

__all__ = ("API_INFO", "ApiInfo", "ApiKey", "api_info", "request_class", "response_class")

_classes: dict[str, type[Message]] = {}


def api_info(key: int) -> ApiInfo:
    """Return the name and versions of an API. Raise KeyError for an unknown key."""
    return API_INFO[key]


def request_class(key: int) -> type[Message]:
    """Return the request class of an API. Raise KeyError for an unknown key."""
    return _message_class(key, "Request")


def response_class(key: int) -> type[Message]:
    """Return the response class of an API. Raise KeyError for an unknown key."""
    return _message_class(key, "Response")


def _message_class(key: int, side: str) -> type[Message]:
    name = API_INFO[key].name + side
    found = _classes.get(name)
    if found is None:
        module = import_module("ottla.wire.messages." + ApiKey(key).name.lower())
        found = _classes[name] = getattr(module, name)
    return found
