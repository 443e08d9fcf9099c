"""Who may use which API (KIP-11). Without an authorizer everybody may do everything."""

from __future__ import annotations

from typing import Protocol

from ottla.broker.context import RequestContext


class Authorizer(Protocol):
    """Decides for the principal of a connection (`context.connection.principal`)."""

    def check(self, context: RequestContext) -> None:
        """Raise ApiError, with one of the AUTHORIZATION_FAILED codes, if the API is denied."""
        ...
