/* Clients of librdkafka that the load generators share: their settings, and production. */
#ifndef OTTLA_BENCH_RDKAFKA_CLIENT_H
#define OTTLA_BENCH_RDKAFKA_CLIENT_H

#include "common.h"
#include "rdkafka_min.h"

enum { ERROR_TEXT = 512, DRAIN_MS = 30000, STALL_SECONDS = 30, POLL_EVERY = 64 };

static char error_text[ERROR_TEXT];
static uint64_t acknowledged, failed;
static int64_t last_offset; /* of the message that was acknowledged last */

/* ---- clients ---- */

static inline void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    if (rd_kafka_conf_set(conf, name, value, error_text, ERROR_TEXT) != RD_KAFKA_CONF_OK)
        fail("%s=%s: %s", name, value, error_text);
}

static inline rd_kafka_conf_t *common_conf(const char *ports) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char servers[512] = "";
    for (const char *at = ports; *at;) {
        size_t digits = strcspn(at, ","), used = strlen(servers);
        snprintf(servers + used, sizeof servers - used, "%s127.0.0.1:%.*s", used ? "," : "", (int)digits, at);
        at += digits + (at[digits] == ',');
    }
    set(conf, "bootstrap.servers", servers);
    set(conf, "broker.address.family", "v4");
    set(conf, "client.id", "bench");
    return conf;
}

static inline void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (!message->err)
        acknowledged++, last_offset = message->offset;
    else if (failed++ == 0)
        fprintf(stderr, "delivery: %s\n", rd_kafka_err2str(message->err));
}

static inline rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    rd_kafka_t *rk = rd_kafka_new(type, conf, error_text, ERROR_TEXT);
    if (!rk) fail("librdkafka: %s", error_text);
    return rk;
}

static inline rd_kafka_conf_t *producer_conf(const char *ports, const char *acks, const char *linger_ms) {
    rd_kafka_conf_t *conf = common_conf(ports);
    set(conf, "acks", acks);
    set(conf, "linger.ms", linger_ms);
    set(conf, "queue.buffering.max.messages", "1000000");
    set(conf, "queue.buffering.max.kbytes", "262144");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    return conf;
}

static inline rd_kafka_topic_t *topic_of(rd_kafka_t *rk, const char *topic) {
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, topic, NULL);
    if (!rkt) fail("topic %s: %s", topic, rd_kafka_err2str(rd_kafka_last_error()));
    return rkt;
}

/* ---- produce ---- */

struct production {
    rd_kafka_t *rk;
    rd_kafka_topic_t *rkt;
    int32_t partitions;
    uint64_t run;
    uint8_t *value;
    size_t size;
    uint64_t handed_over;
};

static inline void start_with(struct production *p, rd_kafka_t *rk, const char *topic) {
    p->rk = rk;
    p->rkt = topic_of(rk, topic);
    p->value = malloc(p->size + 1);
    if (!p->value || p->partitions < 1 || p->run < 1) fail("bad size, partition count or run");
    fill_random(p->value, p->size);
}

static inline void produce_one(struct production *p) {
    int32_t partition = (int32_t)(p->handed_over / p->run % (uint64_t)p->partitions);
    while (rd_kafka_produce(p->rkt, partition, RD_KAFKA_MSG_F_COPY, p->value, p->size, NULL, 0, NULL)) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            fail("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(p->rk, 1);
    }
    if (++p->handed_over % POLL_EVERY == 0) rd_kafka_poll(p->rk, 0);
}

static inline void produce_until(struct production *p, int64_t deadline_ns) {
    while (now_ns() < deadline_ns)
        for (int i = 0; i < POLL_EVERY; i++) produce_one(p);
}

static inline void drain(struct production *p) {
    if (rd_kafka_flush(p->rk, DRAIN_MS)) fail("%d messages not acknowledged", rd_kafka_outq_len(p->rk));
    if (failed) fail("%llu messages failed", (unsigned long long)failed);
}

#endif
