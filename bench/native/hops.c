/* The least that a replicated write takes on a machine: the hops of a message, with no broker.
 *
 *   hops raw   RECORD_BYTES RATE WARM_SECONDS SECONDS WRITES
 *   hops serve WRITES
 *
 * Three processes stand for three brokers: a leader and two followers, each one thread with epoll,
 * in C. A message goes from the client to the leader, to both followers, back to the leader, and to
 * a consumer in the client: the way of a Produce with acks=all that a consumer waits for. The frames
 * have the sizes of Kafka's, and nothing else is done: no checks, no index, no metrics. With WRITES=1
 * each of the three writes the batch to a file (the page cache) before it goes on, as a broker must.
 *
 * raw: the client is a thread that sends RATE messages per second, and one that receives them.
 * serve: prints the port of a leader that speaks as much of Kafka's protocol as `rdkafka_load latency`
 * needs (one topic of any name, one partition), and serves until its standard input is closed. The
 * difference between both is what librdkafka adds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common.h"
#include "wire.h"

enum {
    PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3, API_VERSIONS = 18,
    FOLLOWERS = 2, CONNECTIONS = 64, WAITING = 64, BUFFER = 1 << 20, BATCHES = 1 << 20,
    BATCH_HEADER = 61, LAST_DELTA_AT = 23, UNSUPPORTED_VERSION = 35,
    FETCH_REQUEST_BYTES = 110, FETCH_RESPONSE_BYTES = 75, /* of a follower, without the batch */
    FOLLOWER_HELLO = 0x464f4c4c
};

static int writes;
static size_t log_bytes = (size_t)1 << 30;

/* ---- sockets and files ---- */

static void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int listen_anywhere(int *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (void *)&address, size) || listen(fd, CONNECTIONS) ||
        getsockname(fd, (void *)&address, &size))
        fail("listen: %s", strerror(errno));
    *port = ntohs(address.sin_port);
    return fd;
}

static int connect_to(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (void *)&address, sizeof address)) fail("connect: %s", strerror(errno));
    no_delay(fd);
    return fd;
}

static void send_all(int fd, const void *bytes, size_t count) {
    for (const char *at = bytes; count;) {
        ssize_t n = send(fd, at, count, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) fail("send: %s", strerror(errno));
        if (n > 0) at += n, count -= (size_t)n;
    }
}

static int open_log(void) {
    char name[] = "/tmp/ottla-hops-XXXXXX";
    int fd = writes ? mkstemp(name) : -1;
    if (writes && (fd < 0 || unlink(name))) fail("a file in /tmp: %s", strerror(errno));
    return fd;
}

static void append_to_log(int fd, const void *bytes, size_t count) {
    if (writes && write(fd, bytes, count) != (ssize_t)count) fail("write: %s", strerror(errno));
}

/* Receive what is there and return the bytes of the buffer; 0 if the peer has gone. */
struct incoming {
    int fd;
    size_t filled;
    uint8_t bytes[BUFFER];
};

static int receive(struct incoming *in) {
    ssize_t n = recv(in->fd, in->bytes + in->filled, BUFFER - in->filled, 0);
    if (n <= 0) return 0;
    in->filled += (size_t)n;
    return 1;
}

/* Return the size of the first frame with its length, 0 if it is not complete. */
static size_t whole_frame(const struct incoming *in, size_t at) {
    if (in->filled - at < 4) return 0;
    size_t size = 4 + (size_t)get_int32(in->bytes + at);
    if (size > BUFFER) fail("a frame of %zu bytes", size);
    return in->filled - at < size ? 0 : size;
}

static void drop(struct incoming *in, size_t count) {
    memmove(in->bytes, in->bytes + count, in->filled - count);
    in->filled -= count;
}

static int64_t get_int64(const uint8_t *p) {
    return (int64_t)((uint64_t)(uint32_t)get_int32(p) << 32 | (uint32_t)get_int32(p + 4));
}

/* ---- a follower ---- */

static void put_fetch(uint8_t *frame, int64_t offset) {
    memset(frame, 0, FETCH_REQUEST_BYTES);
    put(frame, FETCH_REQUEST_BYTES - 4, 4);
    put(put(frame + 4, FOLLOWER_HELLO, 4), offset, 8);
}

static void follow(int port) {
    static struct incoming in;
    struct epoll_event event = {.events = EPOLLIN};
    uint8_t frame[FETCH_REQUEST_BYTES];
    int epoll = epoll_create1(0), log = open_log();
    in.fd = connect_to(port);
    epoll_ctl(epoll, EPOLL_CTL_ADD, in.fd, &event);
    put_fetch(frame, 0);
    send_all(in.fd, frame, sizeof frame);
    for (size_t size;;) {
        if (epoll_wait(epoll, &event, 1, -1) < 1) continue;
        if (!receive(&in)) _exit(0);
        while ((size = whole_frame(&in, 0))) {
            append_to_log(log, in.bytes + FETCH_RESPONSE_BYTES, size - FETCH_RESPONSE_BYTES);
            put_fetch(frame, get_int64(in.bytes + 4));
            send_all(in.fd, frame, sizeof frame);
            drop(&in, size);
        }
    }
}

/* ---- the leader ---- */

struct batch {
    int64_t base, next;
    uint8_t *bytes;
    size_t size;
};

struct request { /* that waits for followers, or for records */
    struct incoming *from;
    int32_t id;
    int64_t offset;
    char topic[256];
};

static struct {
    int port, epoll, log, listener;
    struct batch *batches;
    size_t count, committed; /* batches */
    uint8_t *room;
    struct incoming *follower[FOLLOWERS];
    int64_t follower_end[FOLLOWERS];
    int is_fetching[FOLLOWERS];
    size_t sent_to[FOLLOWERS]; /* batches */
    struct request produce[WAITING], fetch[WAITING];
    int produces, fetches;
} leader;

static int64_t end_offset(void) { return leader.count ? leader.batches[leader.count - 1].next : 0; }

static uint8_t *begin_answer(uint8_t *frame, int32_t id) { return put(frame + 4, id, 4); }

static void answer(int fd, uint8_t *frame, uint8_t *end) {
    put(frame, end - frame - 4, 4);
    send_all(fd, frame, (size_t)(end - frame));
}

static void answer_produce(const struct request *r) {
    uint8_t frame[512], *p = begin_answer(frame, r->id);
    p = put(p, 1, 4);
    p = put_string(p, r->topic);
    p = put(p, 1, 4);
    p = put(p, 0, 4);          /* partition */
    p = put(p, 0, 2);          /* error */
    p = put(p, r->offset, 8);  /* base offset */
    p = put(p, -1, 8);         /* append time */
    p = put(p, 0, 4);          /* throttle time */
    answer(r->from->fd, frame, p);
}

static void answer_fetch(const struct request *r, const struct batch *first, const struct batch *end) {
    static uint8_t frame[BUFFER];
    uint8_t *p = begin_answer(frame, r->id);
    int64_t high_watermark = leader.committed ? leader.batches[leader.committed - 1].next : 0;
    p = put(p, 0, 4); /* throttle time */
    p = put(p, 1, 4);
    p = put_string(p, r->topic);
    p = put(p, 1, 4);
    p = put(p, 0, 4); /* partition */
    p = put(p, 0, 2); /* error */
    p = put(p, high_watermark, 8);
    p = put(p, high_watermark, 8); /* last stable offset */
    p = put(p, 0, 4);              /* aborted transactions */
    uint8_t *size = p;
    p += 4;
    for (const struct batch *each = first; each < end && p + each->size < frame + BUFFER; each++)
        p = put_bytes(p, each->bytes, each->size);
    put(size, p - size - 4, 4);
    answer(r->from->fd, frame, p);
}

/* Answer a consumer if there is something to read; else let it wait. */
static int serve_fetch(const struct request *r) {
    size_t first = leader.committed;
    while (first > 0 && leader.batches[first - 1].next > r->offset) first--;
    if (first == leader.committed) return 0;
    answer_fetch(r, leader.batches + first, leader.batches + leader.committed);
    return 1;
}

static void send_to_follower(int n) {
    if (!leader.is_fetching[n] || leader.sent_to[n] == leader.count) return;
    static uint8_t frame[BUFFER];
    struct batch *b = leader.batches + leader.sent_to[n]++;
    memset(frame, 0, FETCH_RESPONSE_BYTES);
    put(put(frame, (int64_t)(FETCH_RESPONSE_BYTES - 4 + b->size), 4), b->next, 8);
    memcpy(frame + FETCH_RESPONSE_BYTES, b->bytes, b->size);
    leader.is_fetching[n] = 0;
    send_all(leader.follower[n]->fd, frame, FETCH_RESPONSE_BYTES + b->size);
}

static void append(const uint8_t *records, size_t size) {
    if (leader.count == BATCHES || size > log_bytes) fail("the log of the leader is full");
    struct batch *b = leader.batches + leader.count;
    b->base = end_offset();
    b->next = b->base + get_int32(records + LAST_DELTA_AT) + 1;
    b->bytes = put_bytes(leader.room, records, size) - size;
    b->size = size;
    put(b->bytes, b->base, 8);
    leader.room += size, log_bytes -= size;
    leader.count++;
    append_to_log(leader.log, b->bytes, size);
    for (int n = 0; n < FOLLOWERS; n++) send_to_follower(n);
}

static void commit(void) {
    int64_t end = leader.follower_end[0] < leader.follower_end[1] ? leader.follower_end[0] : leader.follower_end[1];
    size_t before = leader.committed;
    while (leader.committed < leader.count && leader.batches[leader.committed].next <= end) leader.committed++;
    if (leader.committed == before) return;
    int left = 0;
    for (int i = 0; i < leader.fetches; i++)
        if (!serve_fetch(leader.fetch + i)) leader.fetch[left++] = leader.fetch[i];
    leader.fetches = left, left = 0;
    for (int i = 0; i < leader.produces; i++)
        if (leader.produce[i].offset < end)
            answer_produce(leader.produce + i);
        else
            leader.produce[left++] = leader.produce[i];
    leader.produces = left;
}

static void take_follower(struct incoming *in, const uint8_t *frame) {
    int n = leader.follower[0] == in || !leader.follower[0] ? 0 : 1;
    leader.follower[n] = in;
    leader.follower_end[n] = get_int64(frame + 8);
    leader.is_fetching[n] = 1;
    commit();
    send_to_follower(n);
}

static const uint8_t *get_topic(const uint8_t *p, char *topic) {
    size_t size = (size_t)get_int16(p);
    if (size > 250) fail("a topic name of %zu bytes", size);
    memcpy(topic, p + 2, size);
    topic[size] = 0;
    return p + 2 + size;
}

static void answer_versions(struct incoming *in, int32_t id, int version) {
    static const int ranges[][3] = {
        {PRODUCE, 0, 3}, {FETCH, 0, 4}, {LIST_OFFSETS, 0, 1}, {METADATA, 0, 1}, {API_VERSIONS, 0, 0}};
    uint8_t frame[128], *p = begin_answer(frame, id);
    p = put(p, version ? UNSUPPORTED_VERSION : 0, 2);
    p = put(p, sizeof ranges / sizeof *ranges, 4);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        for (int field = 0; field < 3; field++) p = put(p, ranges[i][field], 2);
    answer(in->fd, frame, p);
}

static void answer_metadata(struct incoming *in, int32_t id, const uint8_t *body) {
    uint8_t frame[1024], *p = begin_answer(frame, id);
    char topic[256];
    int32_t topics = get_int32(body);
    p = put(p, 1, 4);
    p = put(p, 1, 4); /* the broker's id */
    p = put_string(p, "127.0.0.1");
    p = put(p, leader.port, 4);
    p = put(p, -1, 2); /* no rack */
    p = put(p, 1, 4);  /* the controller */
    p = put(p, topics > 0, 4);
    if (topics > 0) {
        get_topic(body + 4, topic);
        p = put(p, 0, 2);
        p = put_string(p, topic);
        *p++ = 0;         /* not internal */
        p = put(p, 1, 4); /* one partition */
        p = put(p, 0, 2);
        p = put(p, 0, 4);
        p = put(p, 1, 4); /* its leader */
        p = put(put(p, 1, 4), 1, 4);
        p = put(put(p, 1, 4), 1, 4);
    }
    answer(in->fd, frame, p);
}

static void answer_offsets(struct incoming *in, int32_t id, const uint8_t *body) {
    uint8_t frame[512], *p = begin_answer(frame, id);
    char topic[256];
    get_topic(body + 8, topic); /* after the replica and the number of topics */
    p = put(p, 1, 4);
    p = put_string(p, topic);
    p = put(p, 1, 4);
    p = put(p, 0, 4);
    p = put(p, 0, 2);
    p = put(p, -1, 8);
    p = put(p, end_offset(), 8);
    answer(in->fd, frame, p);
}

static struct request *new_request(struct request *waiting, int *count, struct incoming *in, int32_t id) {
    if (*count == WAITING) fail("too many requests wait");
    struct request *r = waiting + (*count)++;
    r->from = in, r->id = id;
    return r;
}

static void take_produce(struct incoming *in, int32_t id, const uint8_t *body) {
    int16_t transactional = get_int16(body);
    const uint8_t *p = body + 2 + (transactional > 0 ? transactional : 0) + 2 + 4 + 4;
    struct request *r = new_request(leader.produce, &leader.produces, in, id);
    p = get_topic(p, r->topic) + 4 + 4; /* the number of partitions, the partition */
    r->offset = end_offset();
    append(p + 4, (size_t)get_int32(p));
}

static void take_fetch(struct incoming *in, int32_t id, const uint8_t *body) {
    struct request *r = new_request(leader.fetch, &leader.fetches, in, id);
    const uint8_t *p = body + 4 + 4 + 4 + 4 + 1; /* replica, wait, min, max, isolation */
    if (get_int32(p) < 1) {                      /* no topics: it waits for nothing */
        leader.fetches--;
        return;
    }
    p = get_topic(p + 4, r->topic) + 4 + 4;
    r->offset = get_int64(p);
    if (serve_fetch(r)) leader.fetches--;
}

static void take_frame(struct incoming *in, const uint8_t *frame) {
    if (get_int32(frame + 4) == FOLLOWER_HELLO) {
        take_follower(in, frame);
        return;
    }
    int key = get_int16(frame + 4), version = get_int16(frame + 6);
    int32_t id = get_int32(frame + 8);
    int16_t client = get_int16(frame + 12);
    const uint8_t *body = frame + 14 + (client > 0 ? client : 0);
    if (key == PRODUCE) take_produce(in, id, body);
    else if (key == FETCH) take_fetch(in, id, body);
    else if (key == LIST_OFFSETS) answer_offsets(in, id, body);
    else if (key == METADATA) answer_metadata(in, id, body);
    else if (key == API_VERSIONS) answer_versions(in, id, version);
    else fail("request %d version %d", key, version);
}

static void watch(int fd, void *data) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = data};
    if (epoll_ctl(leader.epoll, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl: %s", strerror(errno));
}

static void accept_one(void) {
    struct incoming *in = calloc(1, sizeof *in);
    if (!in || (in->fd = accept(leader.listener, NULL, NULL)) < 0) fail("accept: %s", strerror(errno));
    no_delay(in->fd);
    watch(in->fd, in);
}

static void forget(struct incoming *in) {
    int left = 0;
    for (int i = 0; i < leader.fetches; i++)
        if (leader.fetch[i].from != in) leader.fetch[left++] = leader.fetch[i];
    leader.fetches = left, left = 0;
    for (int i = 0; i < leader.produces; i++)
        if (leader.produce[i].from != in) leader.produce[left++] = leader.produce[i];
    leader.produces = left;
    close(in->fd); /* its memory stays: it is small and the program is short */
}

static void lead(void) {
    struct epoll_event events[CONNECTIONS];
    leader.epoll = epoll_create1(0);
    leader.log = open_log();
    leader.batches = calloc(BATCHES, sizeof *leader.batches);
    leader.room = malloc(log_bytes);
    if (!leader.batches || !leader.room) fail("no memory for the log");
    watch(leader.listener, NULL);
    for (;;) {
        int count = epoll_wait(leader.epoll, events, CONNECTIONS, -1);
        for (int i = 0; i < count; i++) {
            struct incoming *in = events[i].data.ptr;
            if (!in) {
                accept_one();
            } else if (!receive(in)) {
                forget(in);
            } else {
                size_t at = 0, size;
                for (; (size = whole_frame(in, at)); at += size) take_frame(in, in->bytes + at);
                drop(in, at);
            }
        }
    }
}

static pid_t child(void (*run)(void)) {
    pid_t pid = fork();
    if (pid < 0) fail("fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run();
        _exit(0);
    }
    return pid;
}

static void run_follower(void) { follow(leader.port); }

static void start_nodes(void) {
    leader.listener = listen_anywhere(&leader.port);
    child(lead);
    for (int n = 0; n < FOLLOWERS; n++) child(run_follower);
    usleep(200000);
}

/* ---- the client ---- */

static struct samples latencies;
static volatile int is_measured;
static volatile uint64_t received;

static size_t put_request(uint8_t *frame, int key, int version) {
    uint8_t *p = put(put(put(frame + 4, key, 2), version, 2), 1, 4);
    return (size_t)(put_string(p, "bench") - frame);
}

static size_t put_consumer_fetch(uint8_t *frame, int64_t offset) {
    uint8_t *p = frame + put_request(frame, FETCH, 4);
    p = put(put(put(put(p, -1, 4), 500, 4), 1, 4), 52428800, 4);
    *p++ = 0;
    p = put_string(put(p, 1, 4), "hops");
    p = put(put(put(put(p, 1, 4), 0, 4), offset, 8), 1048576, 4);
    put(frame, p - frame - 4, 4);
    return (size_t)(p - frame);
}

static size_t put_produce(uint8_t *frame, size_t value_bytes) {
    uint8_t *p = frame + put_request(frame, PRODUCE, 3);
    size_t batch = BATCH_HEADER + 10 + value_bytes;
    p = put(put(put(p, -1, 2), -1, 2), 30000, 4);
    p = put_string(put(p, 1, 4), "hops");
    p = put(put(put(p, 1, 4), 0, 4), (int64_t)batch, 4);
    memset(p, 0, batch);
    p += batch;
    put(frame, p - frame - 4, 4);
    return (size_t)(p - frame);
}

/* The time of the producer's call is in the last bytes of the message. */
static void *consume(void *unused) {
    static struct incoming in;
    uint8_t frame[256];
    int64_t offset = 0;
    (void)unused;
    in.fd = connect_to(leader.port);
    for (size_t size;;) {
        send_all(in.fd, frame, put_consumer_fetch(frame, offset));
        while (!(size = whole_frame(&in, 0)))
            if (!receive(&in)) fail("the leader has gone");
        const uint8_t *p = in.bytes + 8 + 4 + 4 + 6 + 4 + 4 + 2; /* to the high watermark */
        offset = get_int64(p);
        if (is_measured) samples_add(&latencies, now_ns() - get_int64(in.bytes + size - 8));
        received++;
        drop(&in, size);
    }
    return NULL;
}

static void send_paced(int fd, uint8_t *frame, size_t size, double rate, double seconds) {
    uint8_t acks[4096];
    int64_t began = now_ns();
    for (uint64_t i = 0; i < (uint64_t)(rate * seconds); i++) {
        sleep_until(began + (int64_t)((double)i * 1e9 / rate));
        while (recv(fd, acks, sizeof acks, MSG_DONTWAIT) > 0) {
        }
        put(frame + size - 8, now_ns(), 8);
        send_all(fd, frame, size);
    }
}

static void raw(char **argv) {
    size_t value_bytes = (size_t)atol(argv[2]);
    double rate = atof(argv[3]), warm = atof(argv[4]), seconds = atof(argv[5]);
    writes = atoi(argv[6]);
    bound_run(warm + seconds);
    start_nodes();
    sleep_precisely();
    samples_init(&latencies, (size_t)(rate * seconds) + 1);
    pthread_t thread;
    if (pthread_create(&thread, NULL, consume, NULL)) fail("no thread");
    uint8_t *frame = malloc(value_bytes + 256);
    if (!frame) fail("no memory for the request");
    size_t size = put_produce(frame, value_bytes);
    int fd = connect_to(leader.port);
    send_paced(fd, frame, size, rate, warm);
    is_measured = 1;
    mark("begin");
    send_paced(fd, frame, size, rate, seconds);
    mark("end");
    usleep(100000);
    samples_sort(&latencies);
    printf("{\"messages\": %zu, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f}\n", latencies.count,
           percentile_us(&latencies, 0.5) / 1e3, percentile_us(&latencies, 0.99) / 1e3,
           percentile_us(&latencies, 1.0) / 1e3);
}

static void serve(char **argv) {
    char byte;
    writes = atoi(argv[2]);
    start_nodes();
    printf("%d\n", leader.port);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

int main(int argc, char **argv) {
    if (argc == 7 && !strcmp(argv[1], "raw"))
        raw(argv);
    else if (argc == 3 && !strcmp(argv[1], "serve"))
        serve(argv);
    else
        fail("usage: hops raw|serve ...; see the head of the source");
    fflush(stdout);
    _exit(0); /* the nodes end with their parent */
}
