"""WriteTxnMarkers, versions 1 and 2: a coordinator ends transactions on partitions led here.

`ottla transactions abort` and Kafka's own tool send it too, for transactions that nobody ends.
"""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.transaction_markers import MarkerResults, markers_response, write_markers
from ottla.model.acl import CLUSTER_NAME, AclOperation, AclResourceType
from ottla.model.errors import ApiError
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(node: Node, request: WriteTxnMarkersRequest, context: RequestContext) -> None:
    """Append the markers; answer when they are committed."""
    if not context.allows(AclOperation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        context.authorize(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
    reply = context.defer()

    def done(results: MarkerResults) -> None:
        reply.run_in_slices(reply.send_in_slices(markers_response(results)))

    write_markers(node, request, done)


def refuse(
    request: WriteTxnMarkersRequest, error: ApiError, context: RequestContext
) -> WriteTxnMarkersResponse:
    """Return the error for every partition."""

    def refused(index: int) -> WritableTxnMarkerPartitionResult:
        return WritableTxnMarkerPartitionResult(partition_index=index, error_code=error.code)

    return WriteTxnMarkersResponse(
        markers=LazyList(
            lambda marker: WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=LazyList(
                    lambda topic: WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=LazyList(refused, topic.partition_indexes),
                    ),
                    marker.topics,
                ),
            ),
            request.markers,
        )
    )
