/* Shared code of the load generators: the clock, percentiles, and the protocol with the harness.
 *
 * A generator prints the line "begin" when the measurement starts and "end" when it ends, so that
 * the harness can read the broker's CPU time at those moments. Then it prints one line of JSON. On
 * an error it prints a message on stderr and ends with exit code 1. An alarm limits the whole run.
 */
#ifndef OTTLA_BENCH_COMMON_H
#define OTTLA_BENCH_COMMON_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define GRACE_SECONDS 60

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t seconds_to_ns(double seconds) { return (int64_t)(seconds * 1e9); }

static inline void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    _exit(1);
}

static inline void mark(const char *event) {
    puts(event);
    fflush(stdout);
}

/* SIGALRM's default action ends a generator whose broker hangs. */
static inline void bound_run(double seconds) { alarm((unsigned)seconds + GRACE_SECONDS); }

/* Sleeps of a paced loop would otherwise be rounded up by 50 us. */
static inline void sleep_precisely(void) { prctl(PR_SET_TIMERSLACK, 1UL); }

static inline void sleep_until(int64_t deadline_ns) {
    struct timespec t = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

/* A list of latencies with a maximum size. When it is full, latencies are counted but not stored. */
struct samples {
    int64_t *values;
    size_t count, capacity, dropped;
};

static inline void samples_init(struct samples *s, size_t capacity) {
    s->values = malloc(capacity * sizeof *s->values);
    if (!s->values) fail("no memory for %zu samples", capacity);
    memset(s->values, 0, capacity * sizeof *s->values); /* page faults now, not while measuring */
    s->capacity = capacity;
    s->count = s->dropped = 0;
}

static inline void samples_add(struct samples *s, int64_t value) {
    if (s->count < s->capacity)
        s->values[s->count++] = value;
    else
        s->dropped++;
}

static inline int compare_int64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static inline void samples_sort(struct samples *s) {
    qsort(s->values, s->count, sizeof *s->values, compare_int64);
}

/* Return the microseconds at the given fraction of sorted samples. */
static inline double percentile_us(const struct samples *s, double fraction) {
    if (s->count == 0) return 0;
    size_t i = (size_t)(fraction * (double)s->count);
    return (double)s->values[i < s->count ? i : s->count - 1] / 1e3;
}

static inline void fill_random(uint8_t *bytes, size_t count) {
    uint32_t x = 2463534242u;
    for (size_t i = 0; i < count; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        bytes[i] = (uint8_t)x;
    }
}

#endif
