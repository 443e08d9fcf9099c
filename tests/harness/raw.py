"""One TCP connection that sends exactly the request a test wants and reads exactly one answer."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from tests.harness.entities import decode_response, encode_request

API_KEYS = {
    "produce": 0,
    "fetch": 1,
    "list_offsets": 2,
    "metadata": 3,
    "offset_commit": 8,
    "offset_fetch": 9,
    "find_coordinator": 10,
    "join_group": 11,
    "heartbeat": 12,
    "leave_group": 13,
    "sync_group": 14,
    "describe_groups": 15,
    "list_groups": 16,
    "api_versions": 18,
    "create_topics": 19,
    "delete_topics": 20,
    "delete_records": 21,
    "init_producer_id": 22,
    "offset_for_leader_epoch": 23,
    "add_partitions_to_txn": 24,
    "add_offsets_to_txn": 25,
    "end_txn": 26,
    "write_txn_markers": 27,
    "txn_offset_commit": 28,
    "describe_configs": 32,
    "alter_configs": 33,
    "alter_replica_log_dirs": 34,
    "describe_log_dirs": 35,
    "create_partitions": 37,
    "delete_groups": 42,
    "elect_leaders": 43,
    "incremental_alter_configs": 44,
    "alter_partition_reassignments": 45,
    "list_partition_reassignments": 46,
    "offset_delete": 47,
    "describe_quorum": 55,
    "update_features": 57,
    "describe_cluster": 60,
    "describe_producers": 61,
    "unregister_broker": 64,
    "describe_transactions": 65,
    "list_transactions": 66,
    "consumer_group_heartbeat": 68,
    "consumer_group_describe": 69,
    "describe_topic_partitions": 75,
    "add_raft_voter": 80,
    "remove_raft_voter": 81,
}


class ConnectionClosed(Exception):
    """The broker closed the connection instead of answering."""


class Answer:
    """A decoded response body whose fields are read as attributes, however deep."""

    def __init__(self, body: object) -> None:
        self._body = body

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def __repr__(self) -> str:
        return repr(self._body)


def split_address(bootstrap_servers: str) -> tuple[str, int]:
    """Return the host and the port of the first bootstrap server."""
    host, _, port = bootstrap_servers.split(",", maxsplit=1)[0].rpartition(":")
    return host.strip("[]"), int(port)


CONNECT_S = 10.0


class RawConnection:
    """Frames in and out of one socket; every wait ends at `timeout_s`."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        timeout_s: float = 10.0,
        client_id: str | None = "raw",
        receive_buffer: int | None = None,
    ) -> None:
        self.client_id = client_id
        self._next_correlation_id = 0
        host, port = split_address(bootstrap_servers)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            if receive_buffer is not None:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            # If the backlog is full for a moment, the system tries again only after a second.
            self.socket.settimeout(max(timeout_s, CONNECT_S))
            self.socket.connect((host, port))
            self.socket.settimeout(timeout_s)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def request(self, api: str, version: int, **fields: object) -> Answer:
        """Send one request and return its decoded answer."""
        correlation_id = self.send(api, version, **fields)
        return self.receive(api, version, correlation_id)

    def send(self, api: str, version: int, **fields: object) -> int:
        """Send one request; its correlation id."""
        self._next_correlation_id += 1
        self.send_frame(
            encode_request(
                API_KEYS[api], version, self._next_correlation_id, self.client_id, fields
            )
        )
        return self._next_correlation_id

    def receive(self, api: str, version: int, correlation_id: int) -> Answer:
        """Return the next answer, which must be the one to `correlation_id`."""
        answered, body = decode_response(API_KEYS[api], version, self.receive_frame())
        assert answered == correlation_id, f"answer to {answered}, expected {correlation_id}"
        return Answer(body)

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        """Return the next frame without its size; raise ConnectionClosed if none comes."""
        (size,) = struct.unpack(">i", self.receive_exactly(4))
        return self.receive_exactly(size)

    def receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError as error:
                raise ConnectionClosed(str(error)) from error
            if not part:
                raise ConnectionClosed(f"closed after {len(data)} of {size} bytes")
            data += part
        return bytes(data)

    def is_closed_by_peer(self) -> bool:
        """Return whether the broker closes this connection unanswered, before the timeout."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False
