"""Who may do what (KIP-11). Without an authorizer everybody may do everything.

An authorizer is asked twice, see docs/adr/0010:

    the API        once for each request, before its handler, by the pipeline (`check`)
    a resource     by the handler, for each topic, group or other resource that the request names,
                   with `context.authorize` or `context.allows` (`allows`)

ApiVersions is open to everybody: clients send it before they are authenticated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.broker.context import RequestContext

if TYPE_CHECKING:
    from ottla.model.acl import AclOperation, AclResourceType


class Authorizer(Protocol):
    """Decides for the principal of a connection (`context.connection.principal`)."""

    def check(self, context: RequestContext) -> None:
        """Raise ApiError if the principal may not use the API (`context.api`) at all.

        For what Kafka asks of the cluster as a whole (CLUSTER_ACTION for the APIs between
        brokers) this calls `context.authorize`.
        """
        ...

    def allows(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        """Return True if the principal may do this with one resource."""
        ...
