/* Measures how long a group of librdkafka consumers takes until every member has its partitions.
 *
 *   group_settle PORT TOPIC PARTITIONS GROUP PROTOCOL MEMBERS
 *
 * PROTOCOL is classic (with the range assignor) or consumer. The time starts before the first
 * consumer is created and ends when each has PARTITIONS / MEMBERS partitions, which is possible only
 * with all members. One thread polls all consumers. At the end they leave the group together.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "common.h"
#include "rdkafka_group_min.h"

enum { ERROR_TEXT = 512, TIMEOUT_SECONDS = 120 };

static char error_text[ERROR_TEXT];

struct member {
    rd_kafka_t *rk;
    int owned;
};

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    if (rd_kafka_conf_set(conf, name, value, error_text, ERROR_TEXT) != RD_KAFKA_CONF_OK)
        fail("%s=%s: %s", name, value, error_text);
}

static void check(rd_kafka_error_t *error) {
    if (error) fail("assignment: %s", rd_kafka_error_string(error));
}

static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t event,
                         rd_kafka_topic_partition_list_t *partitions, void *opaque) {
    struct member *m = opaque;
    int given = event == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    if (!strcmp(rd_kafka_rebalance_protocol(rk), "COOPERATIVE")) {
        check((given ? rd_kafka_incremental_assign : rd_kafka_incremental_unassign)(rk, partitions));
        m->owned += given ? partitions->cnt : -partitions->cnt;
    } else {
        rd_kafka_resp_err_t error = rd_kafka_assign(rk, given ? partitions : NULL);
        if (error) fail("assignment: %s", rd_kafka_err2str(error));
        m->owned = given ? partitions->cnt : 0;
    }
}

static void start(struct member *m, const char *port, const char *group, const char *protocol,
                  const rd_kafka_topic_partition_list_t *topics) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%s", port);
    set(conf, "bootstrap.servers", address);
    set(conf, "broker.address.family", "v4");
    set(conf, "client.id", "bench");
    set(conf, "group.id", group);
    set(conf, "group.protocol", protocol);
    if (!strcmp(protocol, "classic")) set(conf, "partition.assignment.strategy", "range");
    set(conf, "enable.auto.commit", "false");
    rd_kafka_conf_set_opaque(conf, m);
    rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    m->rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error_text, ERROR_TEXT);
    if (!m->rk) fail("librdkafka: %s", error_text);
    rd_kafka_poll_set_consumer(m->rk);
    rd_kafka_resp_err_t error = rd_kafka_subscribe(m->rk, topics);
    if (error) fail("subscribe: %s", rd_kafka_err2str(error));
}

/* Handle the events of each consumer. Return whether there were any. */
static int poll_all(struct member *all, int members) {
    int happened = 0;
    for (int i = 0; i < members; i++) {
        int before = all[i].owned;
        rd_kafka_message_t *message = rd_kafka_consumer_poll(all[i].rk, 0);
        happened |= message != NULL || before != all[i].owned;
        if (message) rd_kafka_message_destroy(message);
        if (rd_kafka_fatal_error(all[i].rk, error_text, ERROR_TEXT)) fail("%s", error_text);
    }
    return happened;
}

static int settled(const struct member *all, int members, int share) {
    for (int i = 0; i < members; i++)
        if (all[i].owned != share) return 0;
    return 1;
}

static void await_settled(struct member *all, int members, int share) {
    int64_t deadline = now_ns() + seconds_to_ns(TIMEOUT_SECONDS);
    while (!settled(all, members, share)) {
        if (now_ns() > deadline) {
            int ready = 0, owned = 0;
            for (int i = 0; i < members; i++) ready += all[i].owned == share, owned += all[i].owned;
            fail("after %d s %d of %d members have their share, all together %d partitions",
                 TIMEOUT_SECONDS, ready, members, owned);
        }
        if (!poll_all(all, members)) sleep_until(now_ns() + 500000);
    }
}

static void *leave(void *argument) {
    struct member *m = argument;
    rd_kafka_consumer_close(m->rk);
    return NULL;
}

static void leave_all(struct member *all, int members) {
    pthread_t *threads = calloc((size_t)members, sizeof *threads);
    if (!threads) fail("no memory");
    for (int i = 0; i < members; i++)
        if (pthread_create(threads + i, NULL, leave, all + i)) fail("pthread_create");
    for (int i = 0; i < members; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    if (argc != 7) fail("usage: group_settle PORT TOPIC PARTITIONS GROUP PROTOCOL MEMBERS");
    int partitions = atoi(argv[3]), members = atoi(argv[6]);
    if (members < 1 || partitions % members) fail("MEMBERS must divide PARTITIONS");
    bound_run(2 * TIMEOUT_SECONDS);
    struct member *all = calloc((size_t)members, sizeof *all);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    if (!all || !topics) fail("no memory for %d members", members);
    rd_kafka_topic_partition_list_add(topics, argv[2], RD_KAFKA_PARTITION_UA);
    mark("begin");
    int64_t began = now_ns();
    for (int i = 0; i < members; i++) start(all + i, argv[1], argv[4], argv[5], topics);
    await_settled(all, members, partitions / members);
    double elapsed = (double)(now_ns() - began) / 1e9;
    mark("end");
    printf("{\"seconds\": %.6f}\n", elapsed);
    fflush(stdout);
    leave_all(all, members);
    _exit(0);
}
