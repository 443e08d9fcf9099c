"""The APIs on the listener of controllers, one module each, named like Kafka's message.

`CONTROLLER_SERVED` has the versions of each. A handler is like those in `ottla.broker.handlers`.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.handlers import SERVED, Served
from ottla.wire.api_table import ApiKey

CONTROLLER_SERVED: Final[dict[int, Served]] = {
    ApiKey.FETCH: Served(12, 18),
    ApiKey.API_VERSIONS: Served(0, 4),
    ApiKey.VOTE: Served(0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: Served(0, 1),
    ApiKey.END_QUORUM_EPOCH: Served(0, 1),
    ApiKey.ALTER_PARTITION: Served(2, 3),
    ApiKey.ENVELOPE: Served(0, 0),
    ApiKey.FETCH_SNAPSHOT: Served(0, 1),
    ApiKey.DESCRIBE_CLUSTER: Served(0, 2),
    ApiKey.CONTROLLER_REGISTRATION: Served(0, 0),
    ApiKey.BROKER_REGISTRATION: Served(0, 4),
    ApiKey.BROKER_HEARTBEAT: Served(0, 2),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Served(0, 0),
    ApiKey.UPDATE_RAFT_VOTER: Served(0, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: Served(0, 0),
    **{key: served for key, served in SERVED.items() if served.is_forwarded},
}
