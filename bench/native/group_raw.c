/* Offset commits and heartbeats of consumer groups, over plain sockets.
 *
 *   group_raw commit PORT TOPIC CONNECTIONS DEPTH WARM_SECONDS SECONDS
 *       OffsetCommit v8 of one partition, as fast as the broker answers, DEPTH in flight on each
 *       connection; every connection commits increasing offsets for its own group.
 *   group_raw heartbeat PORT TOPIC MEMBERS RATE WARM_SECONDS SECONDS
 *       Members, each alone in its classic group, that send RATE heartbeats a second between them.
 *   group_raw heartbeat-consumer PORT TOPIC MEMBERS RATE WARM_SECONDS SECONDS
 *       The same in the new protocol (KIP-848).
 *
 * The program checks the format and the error code of each response, and ends at the first wrong one.
 */
#define _GNU_SOURCE
#include "pipeline.h"

enum {
    OFFSET_COMMIT = 8, FIND_COORDINATOR = 10, JOIN_GROUP = 11, HEARTBEAT = 12, SYNC_GROUP = 14,
    CONSUMER_GROUP_HEARTBEAT = 68,
    MAX_TOPIC = 100, MAX_FRAME = 1024, MAX_NAME = 256,
    SESSION_TIMEOUT_MS = 45000, ATTEMPTS = 200,
    NOT_READY_FIRST = 14, NOT_READY_LAST = 16 /* loading, no coordinator yet, elsewhere */
};

static const char *topic;

/* ---- frames ---- */

static uint8_t *begin_frame(uint8_t *frame, int api, int version, int flexible) {
    uint8_t *p = put(frame, 0, 4); /* size, in end_frame */
    p = put(p, api, 2);
    p = put(p, version, 2);
    p = put(p, 0, 4); /* correlation id */
    p = put_string(p, "bench");
    if (flexible) *p++ = 0; /* header tags */
    return p;
}

static size_t end_frame(uint8_t *frame, uint8_t *end) {
    put(frame, end - frame - 4, 4);
    return (size_t)(end - frame);
}

static void group_name(char *name, const char *kind, int number) {
    snprintf(name, MAX_NAME, "bench-%s-%d-%d", kind, getpid(), number);
}

/* ---- one request and its response ---- */

static void receive_exactly(int fd, uint8_t *into, size_t count) {
    while (count) {
        ssize_t n = recv(fd, into, count, 0);
        if (n <= 0) fail("connection lost: %s", n ? strerror(errno) : "closed by the broker");
        into += n;
        count -= (size_t)n;
    }
}

static void send_frame(int fd, const uint8_t *frame, size_t size) {
    if (send(fd, frame, size, MSG_NOSIGNAL) != (ssize_t)size) fail("send: %s", strerror(errno));
}

/* Read a response, from its correlation id on. Return its length. */
static size_t receive_answer(int fd, uint8_t *answer, size_t room) {
    uint8_t prefix[4];
    receive_exactly(fd, prefix, 4);
    int32_t length = get_int32(prefix);
    if (length < 4 || (size_t)length > room) fail("answer of impossible size %d", length);
    receive_exactly(fd, answer, (size_t)length);
    return (size_t)length;
}

static size_t exchange(int fd, const uint8_t *frame, size_t size, uint8_t *answer, size_t room) {
    send_frame(fd, frame, size);
    return receive_answer(fd, answer, room);
}

static int is_not_ready(int error) { return error >= NOT_READY_FIRST && error <= NOT_READY_LAST; }

static void pause_a_little(void) { sleep_until(now_ns() + 50 * 1000000); }

/* Ask for the coordinator until there is one. This creates the topic __consumer_offsets. */
static void await_coordinator(int fd, const char *group) {
    uint8_t frame[MAX_FRAME], answer[MAX_FRAME];
    uint8_t *p = begin_frame(frame, FIND_COORDINATOR, 0, 0);
    size_t size = end_frame(frame, put_string(p, group));
    for (int i = 0; i < ATTEMPTS; i++, pause_a_little()) {
        exchange(fd, frame, size, answer, sizeof answer);
        int error = get_int16(answer + 4);
        if (!error) return;
        if (!is_not_ready(error)) fail("FindCoordinator answered error code %d", error);
    }
    fail("there is no coordinator");
}

/* ---- commits ---- */

enum { COMMIT_VERSION = 8, COMMITTED_OFFSET_FROM_END = 8 + 4 + 1 + 3 };

static size_t build_commit(uint8_t *frame, const char *group) {
    uint8_t *p = begin_frame(frame, OFFSET_COMMIT, COMMIT_VERSION, 1);
    p = put_compact_string(p, group);
    p = put(p, -1, 4);              /* generation: not a member */
    p = put_compact_string(p, "");  /* member id */
    *p++ = 0;                       /* no instance id */
    *p++ = 2;                       /* one topic */
    p = put_compact_string(p, topic);
    *p++ = 2;                       /* one partition */
    p = put(p, 0, 4);               /* partition */
    p = put(p, 0, 8);               /* offset: next_offset */
    p = put(p, -1, 4);              /* leader epoch */
    p = put_compact_string(p, "");  /* metadata */
    *p++ = 0, *p++ = 0, *p++ = 0;   /* tags of partition, topic, request */
    return end_frame(frame, p);
}

static void next_offset(struct connection *c) {
    put(c->frame + c->frame_size - COMMITTED_OFFSET_FROM_END, c->next_id, 8);
}

/* Correlation id, tags, throttle time, one topic with its name, one partition, its error. */
static int commit_error(const uint8_t *answer, size_t size) {
    size_t topic_size = strlen(topic);
    const uint8_t *partition = answer + 4 + 1 + 4 + 1 + 1 + topic_size + 1;
    if (size < (size_t)(partition - answer) + 6) fail("answer of %zu bytes is too short", size);
    if (answer[9] != 2 || answer[10] != topic_size + 1 || partition[-1] != 2)
        fail("answer is not an OffsetCommit v8 response for one partition");
    return get_int16(partition + 4);
}

static void check_commit(struct connection *c, const uint8_t *answer, size_t size) {
    (void)c;
    int error = commit_error(answer, size);
    if (error) fail("OffsetCommit answered error code %d", error);
}

/* Wait until the coordinator of this group accepts commits: it may still load its partition. */
static void await_ready(int fd, const char *group) {
    uint8_t frame[MAX_FRAME], answer[MAX_FRAME];
    size_t size = build_commit(frame, group);
    await_coordinator(fd, group);
    for (int i = 0; i < ATTEMPTS; i++, pause_a_little()) {
        int error = commit_error(answer, exchange(fd, frame, size, answer, sizeof answer));
        if (!error) return;
        if (!is_not_ready(error)) fail("OffsetCommit answered error code %d", error);
    }
    fail("commits are not taken");
}

static void run_commits(int port, int connections, int depth, double warm, double seconds) {
    open_pipeline(port, connections, depth);
    pipeline.check = check_commit;
    pipeline.prepare = next_offset;
    int fd = connect_to(port);
    for (int i = 0; i < connections; i++) {
        struct connection *c = pipeline.all + i;
        char group[MAX_NAME];
        group_name(group, "commit", i);
        await_ready(fd, group);
        if (!(c->frame = malloc(MAX_FRAME))) fail("no memory for the request");
        c->frame_size = build_commit(c->frame, group);
    }
    close(fd);
    run_pipeline(warm, seconds);
}

/* ---- members ---- */

struct member {
    int fd;
    char group[MAX_NAME], id[MAX_NAME];
    int32_t epoch; /* or generation */
    uint8_t beat[MAX_FRAME];
    size_t beat_size;
};

static void copy_name(char *into, const uint8_t *from, int size) {
    if (size < 0 || size >= MAX_NAME) fail("a name of %d bytes", size);
    memcpy(into, from, (size_t)size);
    into[size] = 0;
}

static void send_classic_join(const struct member *m) {
    uint8_t frame[MAX_FRAME];
    uint8_t *p = begin_frame(frame, JOIN_GROUP, 0, 0);
    p = put_string(p, m->group);
    p = put(p, SESSION_TIMEOUT_MS, 4);
    p = put_string(p, ""); /* no member id yet */
    p = put_string(p, "consumer");
    p = put(p, 1, 4); /* one protocol */
    p = put_string(p, "range");
    uint8_t subscription[MAX_NAME], *s = subscription;
    s = put(s, 0, 2);
    s = put(s, 1, 4);
    s = put_string(s, topic);
    s = put(s, -1, 4); /* no user data */
    p = put(p, s - subscription, 4);
    p = put_bytes(p, subscription, (size_t)(s - subscription));
    send_frame(m->fd, frame, end_frame(frame, p));
}

/* JoinGroup v0: error, generation, protocol, leader, member id, members. */
static int receive_classic_join(struct member *m) {
    uint8_t answer[MAX_FRAME * 4];
    receive_answer(m->fd, answer, sizeof answer);
    const uint8_t *at = answer + 4;
    int error = get_int16(at);
    m->epoch = get_int32(at + 2);
    at += 6;
    at += 2 + get_int16(at); /* protocol */
    at += 2 + get_int16(at); /* leader */
    copy_name(m->id, at + 2, get_int16(at));
    return error;
}

static int sync_classic(struct member *m) {
    uint8_t frame[MAX_FRAME], answer[MAX_FRAME];
    uint8_t *p = begin_frame(frame, SYNC_GROUP, 0, 0);
    p = put_string(p, m->group);
    p = put(p, m->epoch, 4);
    p = put_string(p, m->id);
    p = put(p, 1, 4); /* one assignment: to itself, of nothing */
    p = put_string(p, m->id);
    p = put(p, 0, 4);
    exchange(m->fd, frame, end_frame(frame, p), answer, sizeof answer);
    return get_int16(answer + 4);
}

static size_t build_classic_beat(uint8_t *frame, const struct member *m) {
    uint8_t *p = begin_frame(frame, HEARTBEAT, 4, 1);
    p = put_compact_string(p, m->group);
    p = put(p, m->epoch, 4);
    p = put_compact_string(p, m->id);
    *p++ = 0; /* no instance id */
    *p++ = 0; /* tags */
    return end_frame(frame, p);
}

static size_t build_new_beat(uint8_t *frame, const struct member *m, int joining) {
    uint8_t *p = begin_frame(frame, CONSUMER_GROUP_HEARTBEAT, 0, 1);
    p = put_compact_string(p, m->group);
    p = put_compact_string(p, m->id);
    p = put(p, joining ? 0 : m->epoch, 4);
    *p++ = 0; /* no instance id */
    *p++ = 0; /* no rack */
    p = put(p, joining ? SESSION_TIMEOUT_MS : -1, 4); /* rebalance timeout */
    if (joining) {
        *p++ = 2; /* one topic */
        p = put_compact_string(p, topic);
    } else {
        *p++ = 0; /* topics as before */
    }
    *p++ = 0;                   /* no wish for an assignor */
    *p++ = joining ? 1 : 0;     /* owned partitions: none; as before */
    *p++ = 0;                   /* tags */
    return end_frame(frame, p);
}

/* ConsumerGroupHeartbeat v0: tags, throttle time, error, message, member id, epoch. */
static int receive_new_join(struct member *m) {
    uint8_t answer[MAX_FRAME * 4];
    receive_answer(m->fd, answer, sizeof answer);
    const uint8_t *at = answer + 4 + 1 + 4;
    int error = get_int16(at);
    if (error) return error;
    at += 2;
    at += *at ? *at : 1; /* message: its length plus one, or null */
    if (*at) {
        copy_name(m->id, at + 1, *at - 1);
        at += *at;
    } else {
        at++;
    }
    m->epoch = get_int32(at);
    return 0;
}

static void send_join(struct member *m, int classic) {
    uint8_t frame[MAX_FRAME];
    if (classic)
        send_classic_join(m);
    else
        send_frame(m->fd, frame, build_new_beat(frame, m, 1));
}

static void finish_join(struct member *m, int classic) {
    int error = classic ? receive_classic_join(m) : receive_new_join(m);
    if (!error && classic) error = sync_classic(m);
    if (error) fail("joining group %s: error code %d", m->group, error);
    m->beat_size = classic ? build_classic_beat(m->beat, m) : build_new_beat(m->beat, m, 0);
}

/* Send all requests before reading, because a new group waits for more members. */
static void join_all(struct member *all, int members, int classic, int port) {
    for (int i = 0; i < members; i++) {
        all[i].fd = connect_to(port);
        group_name(all[i].group, classic ? "heartbeat" : "heartbeat-consumer", i);
        await_ready(all[i].fd, all[i].group);
    }
    for (int i = 0; i < members; i++) send_join(all + i, classic);
    for (int i = 0; i < members; i++) finish_join(all + i, classic);
}

/* Both kinds of response begin with correlation id, tags, throttle time, error. */
static void beat(struct member *m) {
    uint8_t answer[MAX_FRAME * 4];
    size_t size = exchange(m->fd, m->beat, m->beat_size, answer, sizeof answer);
    if (size < 11) fail("answer of %zu bytes is too short", size);
    if (get_int16(answer + 9)) fail("heartbeat answered error code %d", get_int16(answer + 9));
}

/* Send heartbeats at the rate for this long. Return how many were sent. */
static uint64_t beat_for(struct member *all, int members, double rate, double seconds) {
    int64_t began = now_ns(), end = began + seconds_to_ns(seconds);
    uint64_t count = 0;
    while (now_ns() < end) {
        beat(all + count % (uint64_t)members);
        count++;
        sleep_until(began + (int64_t)((double)count * 1e9 / rate));
    }
    return count;
}

static void run_heartbeats(int classic, int port, int members, double rate, double warm, double seconds) {
    struct member *all = calloc((size_t)members, sizeof *all);
    if (!all || members < 1 || rate <= 0) fail("at least one member, a rate above 0");
    bound_run(warm + seconds);
    sleep_precisely();
    join_all(all, members, classic, port);
    beat_for(all, members, rate, warm);
    int64_t began = now_ns();
    mark("begin");
    uint64_t count = beat_for(all, members, rate, seconds);
    double elapsed = (double)(now_ns() - began) / 1e9;
    mark("end");
    printf("{\"seconds\": %.6f, \"requests\": %llu, \"requests_per_s\": %.1f}\n", elapsed,
           (unsigned long long)count, (double)count / elapsed);
}

int main(int argc, char **argv) {
    if (argc != 8) fail("usage: group_raw commit|heartbeat|heartbeat-consumer PORT TOPIC N N WARM_SECONDS SECONDS");
    const char *mode = argv[1];
    int port = atoi(argv[2]), first = atoi(argv[4]);
    double warm = atof(argv[6]), seconds = atof(argv[7]);
    topic = argv[3];
    if (strlen(topic) > MAX_TOPIC) fail("topic up to %d characters", MAX_TOPIC);
    if (!strcmp(mode, "commit"))
        run_commits(port, first, atoi(argv[5]), warm, seconds);
    else if (!strcmp(mode, "heartbeat") || !strcmp(mode, "heartbeat-consumer"))
        run_heartbeats(!strcmp(mode, "heartbeat"), port, first, atof(argv[5]), warm, seconds);
    else
        fail("no mode %s", mode);
    return 0;
}
