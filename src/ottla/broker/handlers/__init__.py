"""One module per API: `handle(node, request, context)` returns the response.

A handler that may take long is a generator, which yields after a little work and returns the
response in the end (`ottla.model.steps`).

SERVED says which APIs and versions this broker serves, and nothing else is advertised: the schemas
in `ottla.wire` may know more. It stands here, and not in the modules, because a client asks for
it before any of them is needed: they are imported with the first request of their API.

A module may have, beside `handle`:
    REQUEST                  the class of its requests, if that is not the one of Kafka's schema
    decoder_of(version)      the function that decodes a version, for requests with a codec of
                             their own (see `ottla.broker.api.Decode`)
    TAKES_LARGE              True if `handle` also takes the message of the schema, which large
                             requests are decoded to, in slices
    handle_large(node, request, context)
                             handles the message of the schema, if the API's own codec raises
                             LargeRequest (`ottla.broker.codecs.large_request`)
    Context                  for requests that keep state while they wait
    refuse(request, error, context)
                             returns the response to a request that fails as a whole, or answers
                             with the context and returns None. Without it the response has an
                             error code of its own, in every version.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.step_imports import (
    CONSUMER_GROUPS,
    GROUPS,
    LARGE_FETCH,
    LARGE_OFFSET_COMMIT,
    LARGE_PRODUCE,
    PRODUCERS,
    QUORUM,
    TOPICS,
    TRANSACTIONS,
)
from ottla.model.value import Value
from ottla.wire.api_table import ApiKey
from ottla.wire.decoding import MOST_ITEMS


class Served(Value):
    """Versions of an API, and how often it comes."""

    oldest: int
    newest: int
    is_hot: bool = False
    """True if its handler needs no client id, and not every request is timed."""
    is_sampled: bool = False
    """True if not every request is timed."""
    is_forwarded: bool = False
    """True if only the active controller decides, and other brokers pass the request on."""
    most_items: int = MOST_ITEMS
    """How many items all lists of a request may have. One with more closes its connection."""
    modules: tuple[str, ...] = ()
    """What is imported in steps before the first request is handled."""
    large_modules: tuple[str, ...] = ()
    """What is imported in steps before a large request is handled."""


SERVED: Final[dict[int, Served]] = {
    ApiKey.PRODUCE: Served(3, 13, is_hot=True, large_modules=LARGE_PRODUCE),
    ApiKey.FETCH: Served(4, 18, is_hot=True, large_modules=LARGE_FETCH),
    ApiKey.LIST_OFFSETS: Served(1, 11),
    ApiKey.METADATA: Served(0, 13),
    ApiKey.OFFSET_COMMIT: Served(
        2, 10, is_hot=True, most_items=1_000_000, modules=GROUPS, large_modules=LARGE_OFFSET_COMMIT
    ),
    ApiKey.OFFSET_FETCH: Served(1, 10, modules=GROUPS),
    ApiKey.FIND_COORDINATOR: Served(0, 6),
    ApiKey.JOIN_GROUP: Served(0, 9, modules=GROUPS),
    ApiKey.HEARTBEAT: Served(0, 4, is_sampled=True, modules=GROUPS),
    ApiKey.LEAVE_GROUP: Served(0, 5, modules=GROUPS),
    ApiKey.SYNC_GROUP: Served(0, 5, modules=GROUPS),
    ApiKey.DESCRIBE_GROUPS: Served(0, 6, modules=GROUPS),
    ApiKey.LIST_GROUPS: Served(0, 5, most_items=10_000, modules=GROUPS),
    ApiKey.API_VERSIONS: Served(0, 4),
    ApiKey.CREATE_TOPICS: Served(2, 7, is_forwarded=True, modules=TOPICS),
    ApiKey.DELETE_TOPICS: Served(1, 6, is_forwarded=True),
    ApiKey.DELETE_RECORDS: Served(0, 2),
    ApiKey.INIT_PRODUCER_ID: Served(0, 6, modules=PRODUCERS),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Served(2, 4),
    ApiKey.WRITE_TXN_MARKERS: Served(1, 2),
    ApiKey.ADD_PARTITIONS_TO_TXN: Served(0, 5, modules=TRANSACTIONS),
    ApiKey.ADD_OFFSETS_TO_TXN: Served(0, 4, modules=(*TRANSACTIONS, *GROUPS)),
    ApiKey.END_TXN: Served(0, 5, modules=TRANSACTIONS),
    ApiKey.TXN_OFFSET_COMMIT: Served(0, 5, modules=GROUPS),
    ApiKey.DESCRIBE_CONFIGS: Served(1, 4),
    ApiKey.ALTER_CONFIGS: Served(0, 2, is_forwarded=True),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Served(1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Served(1, 5),
    ApiKey.CREATE_PARTITIONS: Served(0, 3, is_forwarded=True),
    ApiKey.DELETE_GROUPS: Served(0, 2, modules=GROUPS),
    ApiKey.ELECT_LEADERS: Served(0, 2, is_forwarded=True),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served(0, 1, is_forwarded=True),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served(0, 1, is_forwarded=True),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served(0, 0, is_forwarded=True),
    ApiKey.OFFSET_DELETE: Served(0, 0, modules=GROUPS),
    ApiKey.DESCRIBE_QUORUM: Served(0, 2, is_forwarded=True, modules=QUORUM),
    ApiKey.UPDATE_FEATURES: Served(0, 2, is_forwarded=True, most_items=300),
    ApiKey.DESCRIBE_CLUSTER: Served(0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Served(0, 0),
    ApiKey.UNREGISTER_BROKER: Served(0, 0, is_forwarded=True),
    ApiKey.DESCRIBE_TRANSACTIONS: Served(0, 0, modules=TRANSACTIONS),
    ApiKey.LIST_TRANSACTIONS: Served(0, 2, most_items=10_000, modules=TRANSACTIONS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Served(0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Served(0, 1, is_sampled=True, modules=CONSUMER_GROUPS),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Served(0, 1, modules=GROUPS),
    ApiKey.ADD_RAFT_VOTER: Served(0, 1, is_forwarded=True, modules=QUORUM),
    ApiKey.REMOVE_RAFT_VOTER: Served(0, 0, is_forwarded=True, modules=QUORUM),
}

_OLDEST_ADVERTISED: Final = {ApiKey.PRODUCE: 0}
"""As Kafka 4 does: older librdkafka takes Produce version 0 for support of compression codecs."""


def advertised() -> list[tuple[int, int, int]]:
    """Return (key, oldest, newest version) of every API, as clients are told."""
    return [
        (int(key), _OLDEST_ADVERTISED.get(ApiKey(key), served.oldest), served.newest)
        for key, served in SERVED.items()
    ]
