/* Loads a broker with librdkafka, as an ordinary client does.
 *
 *   rdkafka_load produce PORTS TOPIC ACKS PARTITIONS RUN RECORD_BYTES LINGER_MS WARM_SECONDS SECONDS
 *   rdkafka_load fill    PORTS TOPIC ACKS RECORD_BYTES TOTAL_BYTES
 *   rdkafka_load consume PORTS TOPIC TOTAL_BYTES PASSES
 *   rdkafka_load latency PORTS TOPIC ACKS RATE RECORD_BYTES WARM_SECONDS SECONDS
 *   rdkafka_load gap     PORTS TOPIC RATE SECONDS LONGEST_SECONDS
 *
 * PORTS are those of the brokers on 127.0.0.1, separated by commas. produce: RUN messages to one
 * partition, then RUN to the next, and so on; counts the acknowledged messages. fill: writes
 * TOTAL_BYTES to partition 0. consume: reads TOTAL_BYTES of partition 0 from its beginning, PASSES
 * times. latency: sends RATE messages per second with linger 0, each with the time of the producer's
 * call, and consumes them in the same process. gap: sends RATE messages per second with acks=all to
 * partition 0, prints "begin" when they are acknowledged steadily, and reports the longest time
 * between two acknowledgements after that. It ends after SECONDS, but not while it waits for an
 * acknowledgement, nor shortly after a long wait.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>

#include "rdkafka_client.h"

/* ---- produce ---- */

static void start_production(struct production *p, char **argv, const char *acks, const char *linger_ms) {
    start_with(p, new_client(RD_KAFKA_PRODUCER, producer_conf(argv[2], acks, linger_ms)), argv[3]);
}

static void report_bytes(uint64_t messages, uint64_t bytes, double seconds) {
    printf("{\"seconds\": %.6f, \"messages\": %llu, \"bytes\": %llu, \"mb_per_s\": %.2f}\n", seconds,
           (unsigned long long)messages, (unsigned long long)bytes, (double)bytes / seconds / 1e6);
}

static void produce(char **argv) {
    struct production p = {
        .partitions = atoi(argv[5]), .run = (uint64_t)atol(argv[6]), .size = (size_t)atol(argv[7])};
    double warm = atof(argv[9]), seconds = atof(argv[10]);
    bound_run(warm + seconds + DRAIN_MS / 1000.0);
    start_production(&p, argv, argv[4], argv[8]);
    produce_until(&p, now_ns() + seconds_to_ns(warm));
    uint64_t before = acknowledged;
    int64_t began = now_ns();
    mark("begin");
    produce_until(&p, began + seconds_to_ns(seconds));
    uint64_t messages = acknowledged - before;
    double elapsed = (double)(now_ns() - began) / 1e9;
    mark("end");
    drain(&p);
    report_bytes(messages, messages * p.size, elapsed);
}

static void fill(char **argv) {
    struct production p = {.partitions = 1, .run = 1, .size = (size_t)atol(argv[5])};
    uint64_t messages = (uint64_t)(atof(argv[6]) / (double)p.size);
    bound_run(240);
    start_production(&p, argv, argv[4], "5");
    int64_t began = now_ns();
    mark("begin");
    while (p.handed_over < messages) produce_one(&p);
    drain(&p);
    double elapsed = (double)(now_ns() - began) / 1e9;
    mark("end");
    report_bytes(messages, messages * p.size, elapsed);
}

/* ---- consume ---- */

struct pass {
    uint64_t bytes, messages;
    int64_t first_ns, next_offset;
};

static void check_message(const rd_kafka_message_t *message) {
    if (message->err) fail("consume: %s", rd_kafka_err2str(message->err));
}

static void on_message(rd_kafka_message_t *message, void *opaque) {
    struct pass *pass = opaque;
    check_message(message);
    if (message->offset != pass->next_offset)
        fail("offset %lld where %lld was expected", (long long)message->offset, (long long)pass->next_offset);
    if (pass->messages == 0) pass->first_ns = now_ns();
    pass->next_offset++;
    pass->messages++;
    pass->bytes += message->len;
}

/* Read the partition once. The time runs from the first message to the last. */
static double consume_pass(rd_kafka_topic_t *rkt, uint64_t total, struct pass *pass) {
    if (rd_kafka_consume_start(rkt, 0, 0)) fail("consume_start: %s", rd_kafka_err2str(rd_kafka_last_error()));
    int64_t last_progress = now_ns();
    while (pass->bytes < total) {
        if (rd_kafka_consume_callback(rkt, 0, 100, on_message, pass) > 0) last_progress = now_ns();
        if (now_ns() - last_progress > seconds_to_ns(STALL_SECONDS)) fail("no message for %d s", STALL_SECONDS);
    }
    double elapsed = (double)(now_ns() - pass->first_ns) / 1e9;
    rd_kafka_consume_stop(rkt, 0);
    return elapsed;
}

static void consume(char **argv) {
    uint64_t total = (uint64_t)atof(argv[4]);
    int passes = atoi(argv[5]);
    bound_run(120);
    rd_kafka_conf_t *conf = common_conf(argv[2]);
    /* The last fetch of a pass must not delay the next one. */
    set(conf, "fetch.wait.max.ms", "10");
    rd_kafka_topic_t *rkt = topic_of(new_client(RD_KAFKA_CONSUMER, conf), argv[3]);
    uint64_t bytes = 0, messages = 0;
    double elapsed = 0;
    mark("begin");
    for (int i = 0; i < passes; i++) {
        struct pass pass = {0};
        elapsed += consume_pass(rkt, total, &pass);
        bytes += pass.bytes, messages += pass.messages;
    }
    mark("end");
    report_bytes(messages, bytes, elapsed);
}

/* ---- latency ---- */

struct stamp {
    int64_t sent_ns;
    int32_t measured;
};

static struct samples latencies;
static atomic_ullong received;

static void on_stamped(rd_kafka_message_t *message, void *opaque) {
    (void)opaque;
    struct stamp stamp;
    check_message(message);
    if (message->len < sizeof stamp) fail("message of %zu bytes", message->len);
    memcpy(&stamp, message->payload, sizeof stamp);
    if (stamp.measured) samples_add(&latencies, now_ns() - stamp.sent_ns);
    atomic_fetch_add(&received, 1);
}

static void *consume_stamped(void *opaque) {
    for (;;) rd_kafka_consume_callback(opaque, 0, 100, on_stamped, NULL);
    return NULL;
}

static void send_stamped(struct production *p, int measured) {
    struct stamp stamp = {now_ns(), measured};
    memcpy(p->value, &stamp, sizeof stamp);
    produce_one(p);
}

/* Send at the given rate. If late, catch up: the load does not wait for the broker. */
static void send_paced(struct production *p, double rate, double seconds, int measured) {
    int64_t began = now_ns();
    uint64_t count = (uint64_t)(rate * seconds);
    for (uint64_t i = 0; i < count; i++) {
        sleep_until(began + (int64_t)((double)i * 1e9 / rate));
        send_stamped(p, measured);
    }
}

static void await_received(uint64_t count) {
    int64_t deadline = now_ns() + seconds_to_ns(STALL_SECONDS);
    while (atomic_load(&received) < count) {
        if (now_ns() > deadline)
            fail("received %llu of %llu messages", atomic_load(&received), (unsigned long long)count);
        usleep(1000);
    }
}

/* The consumer starts at the end of the partition: send until it receives a message. */
static void await_consumer(struct production *p) {
    int64_t deadline = now_ns() + seconds_to_ns(STALL_SECONDS);
    while (atomic_load(&received) == 0) {
        if (now_ns() > deadline) fail("nothing was consumed for %d s", STALL_SECONDS);
        send_stamped(p, 0);
        usleep(20000);
    }
    drain(p);
    usleep(200000);
    p->handed_over = 0;
    atomic_store(&received, 0);
}

static void latency(char **argv) {
    double rate = atof(argv[5]), warm = atof(argv[7]), seconds = atof(argv[8]);
    struct production p = {.partitions = 1, .run = 1, .size = (size_t)atol(argv[6])};
    bound_run(warm + seconds + 2 * STALL_SECONDS);
    sleep_precisely();
    if (p.size < sizeof(struct stamp)) fail("messages need at least %zu bytes", sizeof(struct stamp));
    samples_init(&latencies, (size_t)(rate * seconds) + 1);
    start_production(&p, argv, argv[4], "0");
    rd_kafka_topic_t *consumed = topic_of(new_client(RD_KAFKA_CONSUMER, common_conf(argv[2])), argv[3]);
    pthread_t thread;
    if (rd_kafka_consume_start(consumed, 0, RD_KAFKA_OFFSET_END) ||
        pthread_create(&thread, NULL, consume_stamped, consumed))
        fail("the consumer did not start");
    await_consumer(&p);
    send_paced(&p, rate, warm, 0);
    mark("begin");
    send_paced(&p, rate, seconds, 1);
    mark("end");
    await_received(p.handed_over);
    if (failed) fail("%llu messages failed", (unsigned long long)failed);
    samples_sort(&latencies);
    printf("{\"messages\": %zu, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f}\n", latencies.count,
           percentile_us(&latencies, 0.5) / 1e3, percentile_us(&latencies, 0.99) / 1e3,
           percentile_us(&latencies, 1.0) / 1e3);
}

/* ---- gap ---- */

enum { GAP_RECORD_BYTES = 100, LONG_GAP_MS = 50, AFTER_LONG_GAP_SECONDS = 2, STEADY_MESSAGES = 500 };

static atomic_llong last_ack_ns, longest_gap_ns, long_gap_ended_ns;
static atomic_ullong acks_seen;

static void on_gap_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err) fail("delivery: %s", rd_kafka_err2str(message->err));
    int64_t now = now_ns(), gap = now - atomic_exchange(&last_ack_ns, now);
    if (gap > atomic_load(&longest_gap_ns)) atomic_store(&longest_gap_ns, gap);
    if (gap > (int64_t)LONG_GAP_MS * 1000000) atomic_store(&long_gap_ended_ns, now);
    atomic_fetch_add(&acks_seen, 1);
}

static void *poll_forever(void *opaque) {
    for (;;) rd_kafka_poll(opaque, 100);
    return NULL;
}

static void gap(char **argv) {
    int64_t every_ns = (int64_t)(1e9 / atof(argv[4]));
    double seconds = atof(argv[5]), longest = atof(argv[6]);
    bound_run(longest);
    rd_kafka_conf_t *conf = common_conf(argv[2]);
    set(conf, "acks", "all");
    set(conf, "linger.ms", "0");
    rd_kafka_conf_set_dr_msg_cb(conf, on_gap_delivery);
    struct production p = {.rk = new_client(RD_KAFKA_PRODUCER, conf), .partitions = 1, .run = 1};
    p.rkt = topic_of(p.rk, argv[3]);
    uint8_t value[GAP_RECORD_BYTES] = {0};
    pthread_t thread;
    if (pthread_create(&thread, NULL, poll_forever, p.rk)) fail("no thread");
    int64_t began = 0, next = now_ns(), stop = next + seconds_to_ns(longest);
    for (; next < stop; next += every_ns) {
        sleep_until(next);
        if (rd_kafka_produce(p.rkt, 0, RD_KAFKA_MSG_F_COPY, value, sizeof value, NULL, 0, NULL))
            fail("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        int64_t now = now_ns();
        int waits = now - atomic_load(&last_ack_ns) > (int64_t)LONG_GAP_MS * 1000000;
        int settled = now - atomic_load(&long_gap_ended_ns) > seconds_to_ns(AFTER_LONG_GAP_SECONDS);
        if (!began && !waits && settled && atomic_load(&acks_seen) > STEADY_MESSAGES) {
            began = now;
            atomic_store(&longest_gap_ns, 0);
            mark("begin");
        } else if (began && now - began > seconds_to_ns(seconds) && !waits && settled) {
            break;
        }
    }
    if (next >= stop) fail("no steady acknowledgements within %g s", longest);
    mark("end");
    printf("{\"gap_s\": %.6f, \"messages\": %llu}\n", (double)atomic_load(&longest_gap_ns) / 1e9,
           atomic_load(&acks_seen));
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        int arguments;
        void (*run)(char **);
    } works[] = {{"produce", 11, produce}, {"fill", 7, fill}, {"consume", 6, consume}, {"latency", 9, latency}, {"gap", 7, gap}};
    for (size_t i = 0; argc > 1 && i < sizeof works / sizeof *works; i++) {
        if (strcmp(argv[1], works[i].name) || argc != works[i].arguments) continue;
        works[i].run(argv);
        fflush(stdout);
        _exit(0); /* the shutdown of librdkafka is not measured */
    }
    fail("usage: rdkafka_load produce|fill|consume|latency|gap ...; see the head of the source");
    return 1;
}
