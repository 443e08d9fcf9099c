"""The header checksum of an LZ4 frame, which Kafka's clients got wrong in messages of magic 0.

They included the frame's magic number in the checksum (KAFKA-3160), so decoders refuse such
frames. `repair` corrects the byte: it is the second one of an xxHash-32 over the frame
descriptor, which has fewer than 16 bytes, so that a short form of the hash is enough.
"""

from __future__ import annotations

from typing import Final

_MASK: Final = 0xFFFFFFFF
_PRIME_1: Final = 2654435761
_PRIME_2: Final = 2246822519
_PRIME_3: Final = 3266489917
_PRIME_4: Final = 668265263
_PRIME_5: Final = 374761393

_DESCRIPTOR_START: Final = 4
_CONTENT_SIZE_FLAG: Final = 0x08


def repair(frame: bytes) -> bytes:
    """Return the frame with the right header checksum; one that is too short is unchanged."""
    if len(frame) <= _DESCRIPTOR_START:
        return frame
    descriptor_bytes = 10 if frame[_DESCRIPTOR_START] & _CONTENT_SIZE_FLAG else 2
    end = _DESCRIPTOR_START + descriptor_bytes
    if len(frame) <= end:
        return frame
    checksum = _xxh32(frame[_DESCRIPTOR_START:end]) >> 8 & 0xFF
    return frame[:end] + bytes((checksum,)) + frame[end + 1 :]


def _xxh32(data: bytes) -> int:
    """Return the xxHash-32, seed 0, of fewer than 16 bytes."""
    whole = len(data) & ~3
    state = _PRIME_5 + len(data)
    for position in range(0, whole, 4):
        lane = int.from_bytes(data[position : position + 4], "little")
        state = _rotate(state + lane * _PRIME_3, 17) * _PRIME_4
    for byte in data[whole:]:
        state = _rotate(state + byte * _PRIME_5, 11) * _PRIME_1
    return _avalanche(state & _MASK)


def _rotate(number: int, bits: int) -> int:
    number &= _MASK
    return number << bits | number >> (32 - bits)


def _avalanche(state: int) -> int:
    state = (state ^ state >> 15) * _PRIME_2 & _MASK
    state = (state ^ state >> 13) * _PRIME_3 & _MASK
    return state ^ state >> 16
