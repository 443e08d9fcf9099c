"""Records of `__transaction_state`: transactional ids, their producers and transactions."""

from __future__ import annotations

from ottla.cli.dump_log.findings import Fields
from ottla.cli.dump_log.records import message_as_json
from ottla.coordinator.runtime.record import RecordError
from ottla.coordinator.transactions.records import TransactionLogValue, decode
from ottla.coordinator.transactions.transaction_state import TransactionState
from ottla.records.batch import CorruptBatch
from ottla.records.record import Record


def transaction_record(record: Record) -> Fields:
    """Return the fields of a record of the transaction log. An unknown kind is shown as bytes."""
    try:
        decoded = decode(record.key, record.value)
    except RecordError as error:
        raise CorruptBatch(0, f"the record at offset {record.offset}: {error}") from None
    if decoded is None:
        assert record.key is not None
        return {
            "type": f"kind {int.from_bytes(record.key[:2], 'big', signed=True)}",
            "version": _version(record),
            "key": {"hex": record.key.hex()},
            "value": None if record.value is None else {"hex": record.value.hex()},
        }
    key, value = decoded
    shown = None if value is None else message_as_json(value)
    if shown is not None and isinstance(value, TransactionLogValue):
        shown["transactionStatus"] = _state(value.transaction_status)
    return {
        "type": "TransactionLog",
        "version": _version(record),
        "key": message_as_json(key),
        "value": shown,
    }


def _version(record: Record) -> int | None:
    return None if record.value is None else int.from_bytes(record.value[:2], "big", signed=True)


def _state(number: int) -> str | int:
    try:
        return TransactionState(number).name
    except ValueError:
        return number
