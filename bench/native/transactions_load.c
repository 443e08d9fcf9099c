/* Loads a broker with librdkafka's transactional producer, and reads what it wrote.
 *
 *   transactions_load commits PORTS TOPIC PARTITIONS RECORDS RECORD_BYTES WARM_SECONDS SECONDS
 *   transactions_load produce PORTS TOPIC PARTITIONS RUN RECORD_BYTES TRANSACTION_SECONDS TRANSACTIONS PAIRS
 *   transactions_load fill    PORTS TOPIC RECORDS RECORD_BYTES TOTAL_BYTES ABORT_EVERY
 *   transactions_load consume PORTS TOPIC LAST_OFFSET PASSES
 *
 * commits: one producer writes transactions one after the other, each with RECORDS messages to one
 * partition, the next one to the next partition. It reports the transactions per second, and the
 * times from the call of commit to its return; the messages are acknowledged before that call.
 * produce: one producer writes in TRANSACTIONS transactions of TRANSACTION_SECONDS, another one
 * (idempotent and with acks=all, too) for the same time without; PAIRS times in turn. fill: writes
 * transactions of RECORDS messages to partition 0, aborts the first of each ABORT_EVERY and commits
 * the last one. consume: reads partition 0 from its beginning to LAST_OFFSET, with read_uncommitted
 * and with read_committed, PASSES times in turn.
 */
#define _GNU_SOURCE
#include "rdkafka_client.h"

enum { COMMIT_MS = 60000, MAX_SAMPLES = 1000000 };

/* ---- transactions ---- */

static void check(rd_kafka_error_t *error, const char *step) {
    if (error) fail("%s: %s", step, rd_kafka_error_string(error));
}

static void begin_transaction(struct production *p) { check(rd_kafka_begin_transaction(p->rk), "begin"); }

static void commit(struct production *p) { check(rd_kafka_commit_transaction(p->rk, COMMIT_MS), "commit"); }

static void start_producer(struct production *p, const char *ports, const char *topic, int transactional) {
    rd_kafka_conf_t *conf = producer_conf(ports, "all", "5");
    set(conf, "enable.idempotence", "true");
    if (transactional) set(conf, "transactional.id", topic);
    start_with(p, new_client(RD_KAFKA_PRODUCER, conf), topic);
    if (transactional) check(rd_kafka_init_transactions(p->rk, COMMIT_MS), "init");
}

/* Write one transaction with `records` messages. Return the nanoseconds of its commit or abort. */
static int64_t transact(struct production *p, int records, int aborted) {
    begin_transaction(p);
    for (int i = 0; i < records; i++) produce_one(p);
    drain(p);
    int64_t began = now_ns();
    if (aborted)
        check(rd_kafka_abort_transaction(p->rk, COMMIT_MS), "abort");
    else
        commit(p);
    return now_ns() - began;
}

/* ---- commits ---- */

static void commits(char **argv) {
    struct production p = {
        .partitions = atoi(argv[4]), .run = (uint64_t)atol(argv[5]), .size = (size_t)atol(argv[6])};
    int records = atoi(argv[5]);
    double warm = atof(argv[7]), seconds = atof(argv[8]);
    bound_run(warm + seconds + COMMIT_MS / 1000.0);
    struct samples times;
    samples_init(&times, MAX_SAMPLES);
    start_producer(&p, argv[2], argv[3], 1);
    for (int64_t until = now_ns() + seconds_to_ns(warm); now_ns() < until;) transact(&p, records, 0);
    int64_t began = now_ns();
    mark("begin");
    while (now_ns() - began < seconds_to_ns(seconds)) samples_add(&times, transact(&p, records, 0));
    double elapsed = (double)(now_ns() - began) / 1e9;
    mark("end");
    samples_sort(&times);
    printf("{\"seconds\": %.6f, \"transactions\": %zu, \"per_s\": %.3f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, "
           "\"max_ms\": %.4f}\n",
           elapsed, times.count, (double)times.count / elapsed, percentile_us(&times, 0.5) / 1e3,
           percentile_us(&times, 0.99) / 1e3, percentile_us(&times, 1.0) / 1e3);
}

/* ---- produce ---- */

struct total {
    double bytes, seconds;
};

static void add_to(struct total *total, const struct production *p, uint64_t before, int64_t began) {
    total->bytes += (double)(acknowledged - before) * (double)p->size;
    total->seconds += (double)(now_ns() - began) / 1e9;
}

static void produce_in_transactions(struct production *p, int count, double seconds, struct total *total) {
    uint64_t before = acknowledged;
    int64_t began = now_ns();
    for (int i = 0; i < count; i++) {
        begin_transaction(p);
        produce_until(p, now_ns() + seconds_to_ns(seconds));
        commit(p);
    }
    add_to(total, p, before, began);
}

static void produce_without(struct production *p, double seconds, struct total *total) {
    uint64_t before = acknowledged;
    int64_t began = now_ns();
    produce_until(p, began + seconds_to_ns(seconds));
    drain(p);
    add_to(total, p, before, began);
}

static void produce(char **argv) {
    struct production in = {
        .partitions = atoi(argv[4]), .run = (uint64_t)atol(argv[5]), .size = (size_t)atol(argv[6])};
    struct production without = in;
    double seconds = atof(argv[7]);
    int transactions = atoi(argv[8]), pairs = atoi(argv[9]);
    bound_run(2 * pairs * transactions * (seconds + 2) + COMMIT_MS / 1000.0);
    start_producer(&in, argv[2], argv[3], 1);
    start_producer(&without, argv[2], argv[3], 0);
    struct total ignored = {0}, with = {0}, plain = {0};
    produce_in_transactions(&in, 1, seconds, &ignored);
    produce_without(&without, seconds, &ignored);
    mark("begin");
    for (int i = 0; i < pairs; i++) {
        if (i % 2) produce_without(&without, transactions * seconds, &plain);
        produce_in_transactions(&in, transactions, seconds, &with);
        if (i % 2 == 0) produce_without(&without, transactions * seconds, &plain);
    }
    mark("end");
    if (failed) fail("%llu messages failed", (unsigned long long)failed);
    printf("{\"mb_per_s\": %.3f, \"plain_mb_per_s\": %.3f}\n", with.bytes / with.seconds / 1e6,
           plain.bytes / plain.seconds / 1e6);
}

/* ---- fill ---- */

static void fill(char **argv) {
    struct production p = {.partitions = 1, .run = 1, .size = (size_t)atol(argv[5])};
    int records = atoi(argv[4]), abort_every = atoi(argv[7]);
    uint64_t messages = 0, wanted = (uint64_t)(atof(argv[6]) / (double)p.size);
    bound_run(240);
    start_producer(&p, argv[2], argv[3], 1);
    mark("begin");
    for (uint64_t i = 0; messages < wanted || (i - 1) % (uint64_t)abort_every == 0; i++) {
        int aborted = i % (uint64_t)abort_every == 0;
        transact(&p, records, aborted);
        messages += (uint64_t)records;
    }
    mark("end");
    printf("{\"messages\": %llu, \"last_offset\": %lld}\n", (unsigned long long)messages,
           (long long)last_offset);
}

/* ---- consume ---- */

struct pass {
    uint64_t messages;
    int64_t first_ns, last_offset;
};

static void on_message(rd_kafka_message_t *message, void *opaque) {
    struct pass *pass = opaque;
    if (message->err) fail("consume: %s", rd_kafka_err2str(message->err));
    if (pass->messages++ == 0)
        pass->first_ns = now_ns();
    else if (message->offset <= pass->last_offset)
        fail("offset %lld after %lld", (long long)message->offset, (long long)pass->last_offset);
    pass->last_offset = message->offset;
}

static rd_kafka_topic_t *new_reader(const char *ports, const char *topic, const char *isolation_level) {
    rd_kafka_conf_t *conf = common_conf(ports);
    set(conf, "isolation.level", isolation_level);
    set(conf, "fetch.wait.max.ms", "10"); /* the last fetch of a pass must not delay the next one */
    return topic_of(new_client(RD_KAFKA_CONSUMER, conf), topic);
}

/* Read the partition once. Add the seconds from the first message to the last, and the messages. */
static void read_all(rd_kafka_topic_t *rkt, int64_t last, double *seconds, uint64_t *messages) {
    struct pass pass = {.last_offset = -1};
    if (rd_kafka_consume_start(rkt, 0, 0)) fail("consume_start: %s", rd_kafka_err2str(rd_kafka_last_error()));
    int64_t last_progress = now_ns();
    while (pass.last_offset < last) {
        if (rd_kafka_consume_callback(rkt, 0, 100, on_message, &pass) > 0) last_progress = now_ns();
        if (now_ns() - last_progress > seconds_to_ns(STALL_SECONDS)) fail("no message for %d s", STALL_SECONDS);
    }
    *seconds += (double)(now_ns() - pass.first_ns) / 1e9;
    *messages += pass.messages;
    rd_kafka_consume_stop(rkt, 0);
}

static void consume(char **argv) {
    int64_t last = atoll(argv[4]);
    int passes = atoi(argv[5]);
    bound_run(180);
    rd_kafka_topic_t *all = new_reader(argv[2], argv[3], "read_uncommitted");
    rd_kafka_topic_t *only_committed = new_reader(argv[2], argv[3], "read_committed");
    double uncommitted_s = 0, committed_s = 0;
    uint64_t messages = 0, committed = 0;
    mark("begin");
    for (int i = 0; i < passes; i++) {
        if (i % 2) read_all(only_committed, last, &committed_s, &committed);
        read_all(all, last, &uncommitted_s, &messages);
        if (i % 2 == 0) read_all(only_committed, last, &committed_s, &committed);
    }
    mark("end");
    printf("{\"uncommitted_s\": %.6f, \"committed_s\": %.6f, \"messages\": %llu, \"committed\": %llu}\n",
           uncommitted_s, committed_s, (unsigned long long)messages, (unsigned long long)committed);
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        int arguments;
        void (*run)(char **);
    } works[] = {{"commits", 9, commits}, {"produce", 10, produce}, {"fill", 8, fill}, {"consume", 6, consume}};
    for (size_t i = 0; argc > 1 && i < sizeof works / sizeof *works; i++) {
        if (strcmp(argv[1], works[i].name) || argc != works[i].arguments) continue;
        works[i].run(argv);
        fflush(stdout);
        _exit(0); /* the shutdown of librdkafka is not measured */
    }
    fail("usage: transactions_load commits|produce|fill|consume ...; see the head of the source");
    return 1;
}
