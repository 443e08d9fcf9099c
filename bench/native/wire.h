/* Kafka's primitive types: big-endian numbers, varints, strings of both encodings. */
#ifndef OTTLA_BENCH_WIRE_H
#define OTTLA_BENCH_WIRE_H

#include <stdint.h>
#include <string.h>

static inline uint8_t *put(uint8_t *p, int64_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) *p++ = (uint8_t)(value >> shift);
    return p;
}

static inline uint8_t *put_uvarint(uint8_t *p, uint64_t value) {
    for (; value >= 0x80; value >>= 7) *p++ = (uint8_t)(value | 0x80);
    *p++ = (uint8_t)value;
    return p;
}

static inline uint8_t *put_svarint(uint8_t *p, int64_t value) {
    return put_uvarint(p, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

static inline uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t count) {
    memcpy(p, bytes, count);
    return p + count;
}

static inline uint8_t *put_string(uint8_t *p, const char *text) {
    p = put(p, (int64_t)strlen(text), 2);
    return put_bytes(p, text, strlen(text));
}

static inline uint8_t *put_compact_string(uint8_t *p, const char *text) {
    p = put_uvarint(p, strlen(text) + 1);
    return put_bytes(p, text, strlen(text));
}

static inline int16_t get_int16(const uint8_t *p) { return (int16_t)(p[0] << 8 | p[1]); }

static inline int32_t get_int32(const uint8_t *p) {
    return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

#endif
