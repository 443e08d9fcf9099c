/* Sends requests over plain sockets as fast as the broker responds, with one thread and epoll.
 *
 * Every connection sends its frame again and again and keeps `depth` requests in flight. `check`
 * gets each response; the first wrong one ends the run.
 */
#ifndef OTTLA_BENCH_PIPELINE_H
#define OTTLA_BENCH_PIPELINE_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common.h"
#include "wire.h"

enum { MAX_DEPTH = 64, MAX_SAMPLES = 1000000, RECEIVE_BUFFER = 65536, CORRELATION_AT = 8 };

struct connection {
    int fd;
    int waiting_to_write;
    uint8_t *frame; /* size and header included; only its correlation id changes */
    size_t frame_size;
    size_t sent;                  /* bytes of the frame in progress already sent */
    int32_t next_id, expected_id; /* correlation ids */
    int64_t sent_ns[MAX_DEPTH];
    size_t received;
    uint8_t in[RECEIVE_BUFFER];
};

static struct pipeline {
    int port, depth, epoll, connections;
    struct connection *all;
    void (*prepare)(struct connection *c);       /* before each request; may be NULL */
    void (*check)(struct connection *c, const uint8_t *answer, size_t size);
    uint64_t answered;
    struct samples latencies;
} pipeline;

static inline int connect_to(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (void *)&address, sizeof address))
        fail("connect to port %d: %s", port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static inline void watch(struct connection *c, int operation, int writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(pipeline.epoll, operation, c->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
    c->waiting_to_write = writing;
}

/* Sends until `depth` requests are in flight or the socket is full. */
static inline void pump(struct connection *c) {
    while (c->next_id - c->expected_id < pipeline.depth) {
        if (c->sent == 0) {
            c->sent_ns[c->next_id % MAX_DEPTH] = now_ns();
            if (pipeline.prepare) pipeline.prepare(c);
        }
        put(c->frame + CORRELATION_AT, c->next_id, 4); /* each time: frames may be shared */
        ssize_t n = send(c->fd, c->frame + c->sent, c->frame_size - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) fail("send: %s", strerror(errno));
        if (n > 0) c->sent += (size_t)n;
        if (c->sent < c->frame_size) {
            if (!c->waiting_to_write) watch(c, EPOLL_CTL_MOD, 1);
            return;
        }
        c->sent = 0;
        c->next_id++;
    }
    if (c->waiting_to_write) watch(c, EPOLL_CTL_MOD, 0);
}

static inline void take_answers(struct connection *c) {
    ssize_t n = recv(c->fd, c->in + c->received, sizeof c->in - c->received, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) fail("connection lost: %s", n ? strerror(errno) : "closed by the broker");
    c->received += (size_t)n;
    size_t at = 0;
    int64_t now = now_ns();
    while (c->received - at >= 4) {
        int32_t size = get_int32(c->in + at);
        if (size < 4 || size > RECEIVE_BUFFER - 4) fail("answer of impossible size %d", size);
        if (c->received - at < 4 + (size_t)size) break;
        const uint8_t *answer = c->in + at + 4;
        if (get_int32(answer) != c->expected_id)
            fail("correlation id %d, expected %d", get_int32(answer), c->expected_id);
        pipeline.check(c, answer, (size_t)size);
        samples_add(&pipeline.latencies, now - c->sent_ns[c->expected_id % MAX_DEPTH]);
        c->expected_id++;
        pipeline.answered++;
        at += 4 + (size_t)size;
    }
    memmove(c->in, c->in + at, c->received - at);
    c->received -= at;
}

static inline void serve_until(int64_t deadline_ns) {
    struct epoll_event events[256];
    while (now_ns() < deadline_ns) {
        int count = epoll_wait(pipeline.epoll, events, 256, 100);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & ~(uint32_t)EPOLLOUT) take_answers(c);
            pump(c);
        }
    }
}

/* Allocate the connections. The caller sets the frame of each before `run_pipeline`. */
static inline void open_pipeline(int port, int connections, int depth) {
    if (depth < 1 || depth > MAX_DEPTH || connections < 1)
        fail("depth 1 to %d, at least one connection", MAX_DEPTH);
    pipeline.port = port;
    pipeline.depth = depth;
    pipeline.connections = connections;
    pipeline.all = calloc((size_t)connections, sizeof *pipeline.all);
    if (!pipeline.all) fail("no memory for %d connections", connections);
    samples_init(&pipeline.latencies, MAX_SAMPLES);
}

/* Loads the broker for `warm` seconds, then measures for `seconds` and prints the report. */
static inline void run_pipeline(double warm, double seconds) {
    bound_run(warm + seconds);
    pipeline.epoll = epoll_create1(0);
    for (int i = 0; i < pipeline.connections; i++) {
        struct connection *c = pipeline.all + i;
        c->fd = connect_to(pipeline.port);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        watch(c, EPOLL_CTL_ADD, 0);
    }
    for (int i = 0; i < pipeline.connections; i++) pump(pipeline.all + i);
    serve_until(now_ns() + seconds_to_ns(warm));
    pipeline.answered = pipeline.latencies.count = pipeline.latencies.dropped = 0;
    int64_t began = now_ns();
    mark("begin");
    serve_until(began + seconds_to_ns(seconds));
    double elapsed = (double)(now_ns() - began) / 1e9;
    mark("end");
    samples_sort(&pipeline.latencies);
    printf("{\"seconds\": %.6f, \"requests\": %llu, \"requests_per_s\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
           elapsed, (unsigned long long)pipeline.answered, (double)pipeline.answered / elapsed,
           percentile_us(&pipeline.latencies, 0.5), percentile_us(&pipeline.latencies, 0.99));
}

#endif
