"""Consumers: long polls over several partitions, with and without incremental sessions."""

from __future__ import annotations

from random import Random as Generator
from typing import NamedTuple

from ottla.model.errors import ErrorCode
from ottla.sim.clients.client import Client, Environment
from ottla.sim.judges.fetch import FIRST_TOPIC_ID, FetchNote, Followed, note_of
from ottla.sim.network.exchange import Exchange
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

_VERSIONS = (4, 6, 7, 9, 11, 12, 13, 15, 17, 18)
_FIRST_SESSION = 7
_FINAL_EPOCH = -1

PartitionKey = tuple[str, int]


class Session(NamedTuple):
    """An incremental fetch session: what the next request must say, and what the broker knows."""

    session_id: int
    epoch: int
    known: dict[PartitionKey, Followed]


class Consumer(Client):
    """Follows some partitions from some offsets; reads, seeks, changes its mind."""

    def __init__(self, name: str, environment: Environment, chance: Generator) -> None:
        super().__init__(name, environment, chance)
        self._version = _VERSIONS[0]
        self._positions: dict[PartitionKey, Followed] = {}
        self._session: Session | None = None
        self._uses_sessions = False

    def most_in_flight(self) -> int:
        return 1

    def act(self) -> None:
        if not self._positions or self.chance.random() < 0.05:
            self._subscribe()
        if not self._positions:
            return
        if self.chance.random() < 0.05:
            self._seek(self.chance.choice(sorted(self._positions)))
        self._fetch()

    def _subscribe(self) -> None:
        """Choose other partitions; a session continues with the changed set if it can."""
        places = self.environment.model.places()
        if self._session is None:
            self._version = self.chance.choice(_VERSIONS)
            self._uses_sessions = self._version >= _FIRST_SESSION and self.chance.random() < 0.7
        if self._version >= FIRST_TOPIC_ID:
            places = [place for place in places if place.topic.topic_id]
        chosen = self.chance.sample(places, k=self.chance.randint(0, min(len(places), 5)))
        wanted = {(place.topic.name, place.partition_index): place for place in chosen}
        self._positions = {
            key: followed
            for key, followed in self._positions.items()
            if key in wanted and (followed.topic_id or self._version < FIRST_TOPIC_ID)
        }
        for key, place in wanted.items():
            if key not in self._positions:
                limit = self.chance.choice((1, 200, 2000, 1_000_000))
                self._positions[key] = Followed(
                    key[0], place.topic.topic_id, key[1], place.partition.start, limit
                )

    def _seek(self, key: PartitionKey) -> None:
        place = self.environment.model.place(*key)
        if place is not None:
            partition = place.partition
            low, high = max(partition.start - 2, 0), partition.end + 2
            offset = self.chance.choice((partition.start, partition.end))
            if self.chance.random() < 0.5:
                offset = self.chance.randint(low, max(high, low))
            self._positions[key] = self._positions[key]._replace(fetch_offset=offset)

    def _fetch(self) -> None:
        session = self._session if self._uses_sessions else None
        known = session.known if session is not None else {}
        named = [each for key, each in self._positions.items() if known.get(key) != each]
        forgotten = [each for key, each in known.items() if not self._still_follows(key, each)]
        if session is not None:
            session_id, epoch = session.session_id, session.epoch
        else:
            session_id, epoch = 0, 0 if self._uses_sessions else _FINAL_EPOCH
        request = FetchRequest(
            max_wait=self.chance.choice((0, 1, 20, 500)),
            min_bytes=self.chance.choice((0, 1, 1, 300, 5000)),
            max_bytes=self.chance.choice((1, 500, 10_000, 1_000_000)),
            isolation_level=self.chance.choice((0, 1)),
            session_id=session_id,
            session_epoch=epoch,
            topics=[_topic(each) for each in named],
            forgotten_topics_data=[_forgotten(each) for each in forgotten],
        )
        followed = list(self._positions.values())
        note = FetchNote(followed, uses_session=session is not None)
        self.ask(request, self._version, note=note)

    def _still_follows(self, key: PartitionKey, known: Followed) -> bool:
        """Return whether the broker follows the same partition; another topic may have its name."""
        ours = self._positions.get(key)
        by_id = self._version >= FIRST_TOPIC_ID
        return ours is not None and (not by_id or ours.topic_id == known.topic_id)

    def received(self, exchange: Exchange) -> None:
        reply, request, note = exchange.reply, exchange.request, note_of(exchange)
        assert isinstance(reply, FetchResponse)
        assert isinstance(request, FetchRequest)
        if reply.error_code:
            self._session = None
            return
        self._continue_session(request, reply, note)
        for key, offset in note.next_offsets.items():
            if key in self._positions:
                self._positions[key] = self._positions[key]._replace(fetch_offset=offset)
        for key, code in note.errors.items():
            if code == ErrorCode.OFFSET_OUT_OF_RANGE and self.environment.model.place(*key):
                self._seek(key)
            elif code != ErrorCode.KAFKA_STORAGE_ERROR:
                self._positions.pop(key, None)

    def _continue_session(
        self, request: FetchRequest, reply: FetchResponse, note: FetchNote
    ) -> None:
        if not reply.session_id:
            self._session = None
            return
        known = {(each.name, each.partition_index): each for each in note.followed}
        self._session = Session(reply.session_id, request.session_epoch + 1, known)

    def disconnected(self, lost: list[Exchange]) -> None:
        if lost or self.chance.random() < 0.3:
            self._session = None


def _topic(followed: Followed) -> FetchTopic:
    return FetchTopic(
        topic=followed.name,
        topic_id=followed.topic_id,
        partitions=[
            FetchPartition(
                partition=followed.partition_index,
                fetch_offset=followed.fetch_offset,
                partition_max_bytes=followed.max_bytes,
            )
        ],
    )


def _forgotten(followed: Followed) -> ForgottenTopic:
    return ForgottenTopic(
        topic=followed.name, topic_id=followed.topic_id, partitions=[followed.partition_index]
    )
