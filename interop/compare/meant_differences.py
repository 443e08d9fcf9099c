"""The differences from Apache Kafka that are meant, each with its reason.

A `*` in a title or path stands for any text. The comparison fails for a difference that is not
listed here, and for an entry that no longer covers any.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cached_property

from compare.difference import Difference
from compare.normalise import Plain


class Meant:
    """Differences that are meant: the requests and the places in the answers, and why."""

    def __init__(
        self, reason: str, title: str, *paths: str, where_kafka: Collection[Plain] | None = None
    ) -> None:
        """Take the patterns. `where_kafka` limits the entry to these answers of Kafka."""
        self.reason = reason
        self.title = title
        self.paths = paths or ("*",)
        self.where_kafka = where_kafka

    def covers(self, difference: Difference) -> bool:
        """Return True if this entry is about the difference."""
        if self.where_kafka is not None and difference.kafka not in self.where_kafka:
            return False
        return bool(self._title.fullmatch(difference.title)) and any(
            path.fullmatch(difference.path) for path in self._paths
        )

    @cached_property
    def _title(self) -> re.Pattern[str]:
        return _pattern(self.title)

    @cached_property
    def _paths(self) -> list[re.Pattern[str]]:
        return [_pattern(path) for path in self.paths]

    def __str__(self) -> str:
        return f"{self.title} at {', '.join(self.paths)}: {self.reason}"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\*", ".*"), re.DOTALL)


_ONCE = "Ottla answers once for what is there twice, so that a request costs no more than its size."
_FAILS = "Kafka fails with an exception. Ottla refuses the request with a code that says why."
_TELLS = "Kafka gives no text, or one that says nothing. Ottla says what is wrong."
_GENERAL = "Kafka's text is the general one of its code. Ottla says what is wrong."
_ALL_MISTAKES = "Kafka names the first mistake. Ottla names all of them."
_HINT = "Ottla adds similar names that exist."
_MISTYPED = "Kafka accepts and stores unknown broker settings. Ottla finds typing mistakes."
_NO_METRICS = "Ottla does not have client metrics yet."
_NO_LOGGERS = "Ottla does not have Log4j loggers."

API_VERSIONS = (
    Meant(
        "Ottla does not serve share and streams groups, logins, quotas, ACLs and tokens yet.",
        "ApiVersions *: plain",
        *(
            f"api_keys[{key}]"
            for key in (
                *(17, *range(29, 32), 36, *range(38, 42), *range(48, 52)),
                *(74, 76, 77, 78, 79, *range(83, 93)),
            )
        ),
    ),
    Meant(
        "Ottla writes the metadata records of metadata.version 25, and has no other feature yet.",
        "ApiVersions *: plain",
        "supported_features*",
        "finalized_features*",
    ),
)

CONFIGS = (
    Meant(
        "Kafka 4.3 no longer has the setting. Ottla's controller follows it.",
        "DescribeConfigs *: broker",
        "*configs[leader.imbalance.per.broker.percentage]",
    ),
    Meant(
        "Kafka comes without a store for the remote tier, and passes settings of its metadata"
        " manager on without describing them.",
        "DescribeConfigs *: broker",
        "*configs[remote.log.storage.url]",
        "*configs[rlmm.config.*",
    ),
    Meant(
        "Kafka leaves out the sources before the first that has the very name of the setting. So"
        " a log.retention.hours of the file looks like a default of log.retention.ms.",
        "DescribeConfigs *",
        "*configs[retention.ms].config_source",
        "*configs[retention.ms].synonyms[*",
    ),
    Meant(
        "Ottla binds its listeners when it starts.",
        "DescribeConfigs *: broker",
        "*configs[listener.security.protocol.map].read_only",
        "*configs[listeners].read_only",
    ),
    Meant(
        "Ottla binds its listeners when it starts.",
        "IncrementalAlterConfigs *: listeners=*",
        "*error_message",
    ),
    Meant(
        "Kafka does not start without the setting. Ottla has a default.",
        "DescribeConfigs *: broker",
        "*configs[process.roles].synonyms[*",
    ),
    Meant(
        "Ottla leaves the buffers to the operating system: Kafka's size costs throughput.",
        "DescribeConfigs *: broker",
        "*configs[socket.*.buffer.bytes]*",
    ),
    Meant(
        "Ottla does not have share groups and streams groups yet.",
        "DescribeConfigs *: group*",
        "*configs[share.*",
        "*configs[streams.*",
    ),
    Meant(_NO_METRICS, "* client metrics"),
    Meant(_NO_METRICS, "IncrementalAlterConfigs *: metrics without a name", "*error_message"),
    Meant(_NO_LOGGERS, "* loggers of another broker", "*error_message"),
    Meant(_ONCE, "DescribeConfigs *: resource twice", "results[*"),
    Meant(_GENERAL, "DescribeConfigs *: unknown type", "*error_message"),
    Meant(_GENERAL, "DescribeConfigs *: type 0", "*error_message"),
    Meant(_TELLS, "DescribeConfigs *: unknown topic", "*error_message"),
    Meant(_FAILS, "IncrementalAlterConfigs *: unknown operation"),
    Meant(_FAILS, "IncrementalAlterConfigs *: negative operation"),
    Meant("Kafka never answers.", "AlterConfigs v2: resource twice"),
    Meant(_MISTYPED, "IncrementalAlterConfigs *: no.such=5"),
    Meant(_MISTYPED, "IncrementalAlterConfigs *: retention.ms=5"),
    Meant(
        "Kafka's text is that of a failed assertion.",
        "IncrementalAlterConfigs *: log.retention.ms=0",
        "*error_message",
    ),
    Meant(_ALL_MISTAKES, "IncrementalAlterConfigs *: group: *", "*error_message"),
)

TOPICS = (
    Meant(
        "Ottla does not have cordoned log directories.",
        "CreateTopics *: replication factor *",
        "*error_message",
    ),
    Meant(_ALL_MISTAKES, "CreateTopics *: unknown and bad setting", "*error_message"),
    Meant(_ALL_MISTAKES, "CreateTopics *: two unknown settings", "*error_message"),
    Meant(_HINT, "CreateTopics *: broker setting", "*error_message"),
    Meant(
        "Kafka invents an id for a topic that is not created.",
        "CreateTopics *",
        "topics[t].topic_id",
        "topics[v].topic_id",
        "topics[c*c].topic_id",
    ),
    Meant(
        "Kafka repeats the text of the request. Ottla shows the value that it has read.",
        "CreateTopics *: validate *",
        "topics[v].configs[*].value",
    ),
    Meant(
        "Kafka does not see a collision within one request.",
        "CreateTopics *: two that collide",
        "topics[c_c]*",
    ),
    Meant(_TELLS, "CreatePartitions *: unknown topic", "*error_message"),
    Meant(_TELLS, "CreatePartitions *: bad name", "*error_message"),
    Meant(_TELLS, "CreatePartitions *: empty name", "*error_message"),
    Meant(_FAILS, "DescribeTopicPartitions *: empty name"),
    Meant(_FAILS, "Metadata *: null name and no id", "*error_code"),
    Meant(
        "Kafka ignores names if there are ids. Ottla answers for both.",
        "Metadata *: a name and an id",
        "topics[full]",
    ),
)

RECORDS = (
    Meant(_TELLS, "Produce *", "*error_message", where_kafka=(None,)),
    Meant(
        "Kafka adds the log start offset to some refusals. Clients read it after"
        " UNKNOWN_PRODUCER_ID only, which Ottla does not send.",
        "Produce *",
        "*log_start_offset",
        where_kafka=(0,),
    ),
    Meant("Kafka never answers.", "Produce *: null records"),
    Meant("Ottla repeats a topic without partitions.", "Produce *: no partitions", "*[refused]"),
    Meant(
        "Kafka shows the batch's own time as that of its append.",
        "Produce *: idempotent: second again",
        "*log_append_time",
    ),
    Meant(
        "Kafka shows the batch's own time as that of its append.",
        "Produce *: in a transaction, again",
        "*log_append_time",
    ),
    Meant(
        "Ottla refuses a negative producer epoch whatever it knows about the producer.",
        "Produce *: idempotent: old epoch",
        "*error_code",
    ),
    Meant(_FAILS, "Produce *: codec 5", "*error_code"),
    Meant(_FAILS, "Produce *: codec 1 over plain records", "*error_code"),
    Meant("Ottla says which record it is.", "Produce *: garbage as records", "*record_errors[0]"),
    Meant("Ottla has other words.", "Produce *: magic 3", "*message"),
    Meant("Ottla's text names the settings.", "Produce *: too old", "*message"),
    Meant("Ottla's text names the settings.", "Produce *: in the future", "*message"),
    Meant("Ottla has other words.", "Produce *: no key to a compacted topic", "*message"),
    Meant(
        "Kafka sends null without transactions, Ottla an empty list. Clients treat both alike.",
        "Fetch *",
        "*aborted_transactions",
    ),
    Meant(
        "Kafka fails with an exception. For Ottla each level but 0 is read_committed.",
        "Fetch *: isolation level 3",
    ),
    Meant(
        "Kafka fails with an exception. For Ottla each level but 0 is read_committed.",
        "ListOffsets *: isolation level *",
    ),
    Meant(_ONCE, "DescribeProducers *: partition twice", "topics[empty].partitions[*"),
    Meant(
        "Kafka answers once for what is there twice. Ottla refuses both.",
        "ListOffsets *: * twice",
        "topics[*",
    ),
    Meant(
        "The libraries compress the same records to other sizes.",
        "DescribeLogDirs *: all",
        "*topics[zstd].partitions[0].partition_size",
    ),
)

GROUPS = (
    Meant(
        "Kafka sends a text with a success too: NONE, or an empty one.",
        "FindCoordinator *",
        "*error_message",
    ),
    Meant(_ONCE, "FindCoordinator *: group twice", "coordinators[*"),
    Meant(_ONCE, "ConsumerGroupDescribe *: group twice", "groups[*"),
    Meant(_ONCE, "DescribeGroups *: group twice", "groups[*"),
    Meant(_ONCE, "OffsetFetch *: group twice", "groups[*"),
    Meant(
        "The text is that of the library for regular expressions.",
        "ConsumerGroupHeartbeat *: bad regular expression",
        "error_message",
    ),
    Meant(
        "Kafka sends null with an error, Ottla an empty text. Clients read it after a success.",
        "JoinGroup *",
        "protocol_name",
    ),
    Meant("Kafka begins with group epoch 2, Ottla with 1.", "ConsumerGroup*", "*epoch"),
    Meant(
        "Kafka begins with group epoch 2, Ottla with 1.",
        "JoinGroup *: consumer group, unknown member",
        "generation_id",
    ),
    Meant(
        "Kafka counts the epochs from 2 on, Ottla from 1, and the text has the epoch.",
        "ConsumerGroupHeartbeat *: epoch too new",
        "error_message",
    ),
    Meant(
        "Ottla asks for the next heartbeat sooner while a group changes.",
        "ConsumerGroupHeartbeat *",
        "heartbeat_interval",
    ),
)

_WORDS = "Ottla has other words."

QUORUM = (
    Meant(_WORDS, "ElectLeaders *", "*error_message"),
    Meant(
        "Ottla answers once for each topic, in one list of its partitions.",
        "ElectLeaders v2: unknown partition",
        "replica_election_results[*",
    ),
    Meant(
        "Ottla answers once for each topic, in one list of its partitions.",
        "ElectLeaders v2: partition twice",
        "replica_election_results[*",
    ),
    Meant(
        "Kafka names every topic of the cluster, also those without an election. Ottla names those"
        " that have one.",
        "ElectLeaders *: all",
        "replica_election_results[*",
    ),
    Meant(_TELLS, "AlterPartitionReassignments *: cancel none", "*error_message"),
    Meant(_WORDS, "AlterPartitionReassignments *: unknown *", "*error_message"),
    Meant(
        "Kafka takes the last one without a word. Ottla refuses both.",
        "AlterPartitionReassignments *: partition twice",
    ),
    Meant(
        "Kafka sends an empty text instead of null if there is nothing to say.",
        "AlterPartitionReassignments *: nothing",
        "error_message",
    ),
    Meant(
        "The two write other records of the same meaning.",
        "DescribeQuorum *: metadata",
        "*high_watermark",
        "*log_end_offset",
    ),
    Meant(
        "A broker that is a cluster of its own has no listener for controllers.",
        "DescribeQuorum v2: metadata",
        "nodes[1].listeners[CONTROLLER]",
    ),
    Meant(_GENERAL, "DescribeQuorum *", "*error_message"),
    Meant(
        "Kafka takes the last one without a word. Ottla refuses the request.",
        "UpdateFeatures *: feature twice",
        "error_code",
        "error_message",
    ),
    Meant(
        "Kafka's text is the name of the code, also if there is no error.",
        "UpdateFeatures v1: *",
        "results[*].error_message",
        where_kafka=("NONE",),
    ),
    Meant(_WORDS, "AddRaftVoter *", "error_message"),
    Meant(_WORDS, "RemoveRaftVoter *", "error_message"),
)

_TWO_PHASE = "Kafka has the version for two-phase commit (KIP-939) only with unstable versions."

TRANSACTIONS = (
    Meant(
        "Kafka refuses until it has created the topic. Ottla answers when it has.",
        "FindCoordinator *: a transaction",
    ),
    Meant(_TWO_PHASE, "ApiVersions *: plain", "api_keys[22].max_version"),
    Meant(_TWO_PHASE, "InitProducerId v6: *"),
)

MEANT: tuple[Meant, ...] = (
    *API_VERSIONS,
    *CONFIGS,
    *TOPICS,
    *RECORDS,
    *GROUPS,
    *QUORUM,
    *TRANSACTIONS,
)
