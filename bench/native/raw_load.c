/* One-record Produce requests as fast as the broker answers them, over plain sockets.
 *
 *   raw_load PORT TOPIC CONNECTIONS DEPTH RECORD_BYTES WARM_SECONDS SECONDS
 *
 * Every connection keeps DEPTH requests (Produce v9, acks=1, partition 0) in flight. One thread and
 * one epoll set: a client library would be the bottleneck here. Each answer's length, correlation
 * id, shape and error code are checked; the first wrong one ends the run.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common.h"

enum {
    PRODUCE = 0,
    PRODUCE_VERSION = 9,
    BATCH_HEADER = 61,
    MAX_TOPIC = 100,
    MAX_DEPTH = 64,
    MAX_SAMPLES = 1000000,
    RECEIVE_BUFFER = 65536,
    CORRELATION_AT = 8
};

struct connection {
    int fd;
    int waiting_to_write;
    size_t sent;                  /* bytes of the frame in progress already sent */
    int32_t next_id, expected_id; /* correlation ids */
    int64_t sent_ns[MAX_DEPTH];
    size_t received;
    uint8_t in[RECEIVE_BUFFER];
};

static struct load {
    int port, depth, epoll;
    const char *topic;
    uint8_t *frame;
    size_t frame_size;
    uint64_t acknowledged;
    struct samples latencies;
} load;

/* ---- big-endian and varint writing ---- */

static uint8_t *put(uint8_t *p, int64_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) *p++ = (uint8_t)(value >> shift);
    return p;
}

static uint8_t *put_uvarint(uint8_t *p, uint64_t value) {
    for (; value >= 0x80; value >>= 7) *p++ = (uint8_t)(value | 0x80);
    *p++ = (uint8_t)value;
    return p;
}

static uint8_t *put_svarint(uint8_t *p, int64_t value) {
    return put_uvarint(p, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

static uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t count) {
    memcpy(p, bytes, count);
    return p + count;
}

static int32_t get_int32(const uint8_t *p) {
    return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

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
    size_t topic_size = strlen(load.topic);
    uint8_t *batch = malloc(value_size + 128);
    uint8_t *p = load.frame = malloc(value_size + topic_size + 256);
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
    p = put_bytes(p, load.topic, topic_size);
    *p++ = 2; /* one partition */
    p = put(p, 0, 4);
    p = put_uvarint(p, batch_size + 1);
    p = put_bytes(p, batch, batch_size);
    *p++ = 0, *p++ = 0, *p++ = 0; /* tags of partition, topic, request */
    load.frame_size = (size_t)(p - load.frame);
    put(load.frame, (int64_t)load.frame_size - 4, 4);
    free(batch);
}

/* ---- connections ---- */

static void watch(struct connection *c, int operation, int writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(load.epoll, operation, c->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
    c->waiting_to_write = writing;
}

static void open_connection(struct connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)load.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (void *)&address, sizeof address))
        fail("connect to port %d: %s", load.port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLL_CTL_ADD, 0);
}

/* Sends until DEPTH requests are in flight or the socket is full. */
static void pump(struct connection *c) {
    while (c->next_id - c->expected_id < load.depth) {
        if (c->sent == 0) c->sent_ns[c->next_id % MAX_DEPTH] = now_ns();
        put(load.frame + CORRELATION_AT, c->next_id, 4);
        ssize_t n = send(c->fd, load.frame + c->sent, load.frame_size - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) fail("send: %s", strerror(errno));
        if (n > 0) c->sent += (size_t)n;
        if (c->sent < load.frame_size) {
            if (!c->waiting_to_write) watch(c, EPOLL_CTL_MOD, 1);
            return;
        }
        c->sent = 0;
        c->next_id++;
    }
    if (c->waiting_to_write) watch(c, EPOLL_CTL_MOD, 0);
}

/* Checks one Produce v9 response: header, topic array of one, its partition array of one. */
static void check_answer(struct connection *c, const uint8_t *answer, size_t size) {
    size_t topic_size = strlen(load.topic);
    const uint8_t *partition = answer + 4 + 1 + 1 + 1 + topic_size + 1;
    if (size < (size_t)(partition - answer) + 6) fail("answer of %zu bytes is too short", size);
    if (get_int32(answer) != c->expected_id)
        fail("correlation id %d, expected %d", get_int32(answer), c->expected_id);
    if (answer[4] != 0 || answer[5] != 2 || answer[6] != topic_size + 1 || partition[-1] != 2)
        fail("answer is not a Produce v9 response for one partition");
    int error = partition[4] << 8 | partition[5];
    if (error) fail("Produce answered error code %d", error);
}

static void take_answers(struct connection *c) {
    ssize_t n = recv(c->fd, c->in + c->received, sizeof c->in - c->received, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) fail("connection lost: %s", n ? strerror(errno) : "closed by the broker");
    c->received += (size_t)n;
    size_t at = 0;
    int64_t now = now_ns();
    while (c->received - at >= 4) {
        int32_t size = get_int32(c->in + at);
        if (size < 0 || size > RECEIVE_BUFFER - 4) fail("answer of impossible size %d", size);
        if (c->received - at < 4 + (size_t)size) break;
        check_answer(c, c->in + at + 4, (size_t)size);
        samples_add(&load.latencies, now - c->sent_ns[c->expected_id % MAX_DEPTH]);
        c->expected_id++;
        load.acknowledged++;
        at += 4 + (size_t)size;
    }
    memmove(c->in, c->in + at, c->received - at);
    c->received -= at;
}

static void serve_until(int64_t deadline_ns) {
    struct epoll_event events[256];
    while (now_ns() < deadline_ns) {
        int count = epoll_wait(load.epoll, events, 256, 100);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & ~(uint32_t)EPOLLOUT) take_answers(c);
            pump(c);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 8) fail("usage: raw_load PORT TOPIC CONNECTIONS DEPTH RECORD_BYTES WARM_SECONDS SECONDS");
    load.port = atoi(argv[1]);
    load.topic = argv[2];
    int connections = atoi(argv[3]);
    load.depth = atoi(argv[4]);
    double warm = atof(argv[6]), seconds = atof(argv[7]);
    if (strlen(load.topic) > MAX_TOPIC || load.depth < 1 || load.depth > MAX_DEPTH || connections < 1)
        fail("topic up to %d characters, depth 1 to %d, at least one connection", MAX_TOPIC, MAX_DEPTH);
    bound_run(warm + seconds);
    samples_init(&load.latencies, MAX_SAMPLES);
    build_frame((size_t)atoi(argv[5]));
    load.epoll = epoll_create1(0);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    if (!all) fail("no memory for %d connections", connections);
    for (int i = 0; i < connections; i++) open_connection(all + i);
    for (int i = 0; i < connections; i++) pump(all + i);

    serve_until(now_ns() + seconds_to_ns(warm));
    load.acknowledged = load.latencies.count = load.latencies.dropped = 0;
    int64_t began = now_ns();
    mark("begin");
    serve_until(began + seconds_to_ns(seconds));
    double elapsed = (double)(now_ns() - began) / 1e9;
    mark("end");
    samples_sort(&load.latencies);
    printf("{\"seconds\": %.6f, \"requests\": %llu, \"requests_per_s\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
           elapsed, (unsigned long long)load.acknowledged, (double)load.acknowledged / elapsed,
           percentile_us(&load.latencies, 0.5), percentile_us(&load.latencies, 0.99));
    return 0;
}
