/* Sends one-record Produce requests over plain sockets as fast as the broker responds.
 *
 *   raw_load PORT TOPIC CONNECTIONS DEPTH RECORD_BYTES WARM_SECONDS SECONDS
 *
 * Every connection keeps DEPTH requests (Produce v9, acks=1, partition 0) in flight. The program has
 * one thread and uses epoll, because a client library would be the bottleneck. It checks the length,
 * correlation id, format and error code of each response, and ends at the first wrong one.
 */
#define _GNU_SOURCE
#include "pipeline.h"

enum { PRODUCE = 0, PRODUCE_VERSION = 9, BATCH_HEADER = 61, MAX_TOPIC = 100 };

static const char *topic;
static uint8_t *frame;
static size_t frame_size;

static uint32_t crc32c(const uint8_t *p, size_t count) {
    uint32_t crc = ~0u;
    while (count--) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* ---- the request, built once: only its correlation id changes ---- */

static uint8_t *put_record(uint8_t *p, size_t value_size) {
    uint8_t head[16], *h = head;
    *h++ = 0;                /* attributes */
    h = put_svarint(h, 0);   /* timestamp delta */
    h = put_svarint(h, 0);   /* offset delta */
    h = put_svarint(h, -1);  /* no key */
    h = put_svarint(h, (int64_t)value_size);
    p = put_svarint(p, (int64_t)((size_t)(h - head) + value_size + 1));
    p = put_bytes(p, head, (size_t)(h - head));
    fill_random(p, value_size);
    p += value_size;
    *p++ = 0; /* no headers */
    return p;
}

static size_t build_batch(uint8_t *batch, size_t value_size) {
    uint8_t *end = put_record(batch + BATCH_HEADER, value_size), *p = batch;
    int64_t timestamp_ms = (int64_t)time(NULL) * 1000;
    p = put(p, 0, 8);                  /* base offset */
    p = put(p, end - batch - 12, 4);   /* batch length */
    p = put(p, -1, 4);                 /* partition leader epoch */
    *p++ = 2;                          /* magic */
    uint8_t *crc = p;
    p += 4;
    p = put(p, 0, 2);                  /* attributes */
    p = put(p, 0, 4);                  /* last offset delta */
    p = put(p, timestamp_ms, 8);       /* base timestamp */
    p = put(p, timestamp_ms, 8);       /* max timestamp */
    p = put(p, -1, 8);                 /* producer id */
    p = put(p, -1, 2);                 /* producer epoch */
    p = put(p, -1, 4);                 /* base sequence */
    put(p, 1, 4);                      /* record count */
    put(crc, crc32c(crc + 4, (size_t)(end - crc) - 4), 4);
    return (size_t)(end - batch);
}

static void build_frame(size_t value_size) {
    size_t topic_size = strlen(topic);
    uint8_t *batch = malloc(value_size + 128);
    uint8_t *p = frame = malloc(value_size + topic_size + 256);
    if (!batch || !p) fail("no memory for the request");
    size_t batch_size = build_batch(batch, value_size);
    p = put(p, 0, 4); /* size, below */
    p = put(p, PRODUCE, 2);
    p = put(p, PRODUCE_VERSION, 2);
    p = put(p, 0, 4); /* correlation id */
    p = put(p, 5, 2);
    p = put_bytes(p, "bench", 5); /* client id */
    *p++ = 0;                     /* header tags */
    *p++ = 0;                     /* no transactional id */
    p = put(p, 1, 2);             /* acks */
    p = put(p, 30000, 4);         /* timeout_ms */
    *p++ = 2;                     /* one topic */
    p = put_uvarint(p, topic_size + 1);
    p = put_bytes(p, topic, topic_size);
    *p++ = 2; /* one partition */
    p = put(p, 0, 4);
    p = put_uvarint(p, batch_size + 1);
    p = put_bytes(p, batch, batch_size);
    *p++ = 0, *p++ = 0, *p++ = 0; /* tags of partition, topic, request */
    frame_size = (size_t)(p - frame);
    put(frame, (int64_t)frame_size - 4, 4);
    free(batch);
}

/* Checks one Produce v9 response: header, topic array of one, its partition array of one. */
static void check_answer(struct connection *c, const uint8_t *answer, size_t size) {
    (void)c;
    size_t topic_size = strlen(topic);
    const uint8_t *partition = answer + 4 + 1 + 1 + 1 + topic_size + 1;
    if (size < (size_t)(partition - answer) + 6) fail("answer of %zu bytes is too short", size);
    if (answer[4] != 0 || answer[5] != 2 || answer[6] != topic_size + 1 || partition[-1] != 2)
        fail("answer is not a Produce v9 response for one partition");
    if (get_int16(partition + 4)) fail("Produce answered error code %d", get_int16(partition + 4));
}

int main(int argc, char **argv) {
    if (argc != 8) fail("usage: raw_load PORT TOPIC CONNECTIONS DEPTH RECORD_BYTES WARM_SECONDS SECONDS");
    topic = argv[2];
    if (strlen(topic) > MAX_TOPIC) fail("topic up to %d characters", MAX_TOPIC);
    open_pipeline(atoi(argv[1]), atoi(argv[3]), atoi(argv[4]));
    build_frame((size_t)atoi(argv[5]));
    pipeline.check = check_answer;
    for (int i = 0; i < pipeline.connections; i++) {
        pipeline.all[i].frame = frame;
        pipeline.all[i].frame_size = frame_size;
    }
    run_pipeline(atof(argv[6]), atof(argv[7]));
    return 0;
}
