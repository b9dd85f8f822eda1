/* hist: counts latencies in buckets, in the manner of HdrHistogram.
 *
 * Each power of two has 64 buckets of the same width, so that a bucket is never wider than 1.6 % of
 * what it counts. With 4 bytes a bucket and values up to two minutes a histogram takes 8 kB.
 */

#ifndef BENCH_HIST_H
#define BENCH_HIST_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* 2^37 ns are 137 s; what takes longer is counted as that, and `max` still says how long it was. */
enum { BUCKET_BITS = 6, VALUE_BITS = 37 };
enum { BUCKETS = (VALUE_BITS - BUCKET_BITS + 1) << BUCKET_BITS };

struct histogram {
    uint64_t count, sum, max;
    uint32_t buckets[BUCKETS];
};

static inline size_t bucket_of(uint64_t value) {
    if (value >> VALUE_BITS) return BUCKETS - 1;
    if (value < (1u << BUCKET_BITS)) return (size_t)value;
    int shift = 63 - __builtin_clzll(value) - BUCKET_BITS;
    return ((size_t)(shift + 1) << BUCKET_BITS) + (size_t)((value >> shift) - (1u << BUCKET_BITS));
}

/* The largest value that the bucket counts. */
static inline uint64_t bucket_end(size_t bucket) {
    if (bucket < (1u << BUCKET_BITS)) return bucket;
    int shift = (int)(bucket >> BUCKET_BITS) - 1;
    uint64_t top = (bucket & ((1u << BUCKET_BITS) - 1)) + (1u << BUCKET_BITS) + 1;
    return (top << shift) - 1;
}

static inline void record(struct histogram *into, uint64_t value) {
    into->count++;
    into->sum += value;
    if (value > into->max) into->max = value;
    into->buckets[bucket_of(value)]++;
}

/* The value that this part of all is not above, never told smaller than it was. */
static inline uint64_t percentile(const struct histogram *from, double fraction) {
    uint64_t wanted = (uint64_t)((double)from->count * fraction), seen = 0;
    for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
        seen += from->buckets[bucket];
        if (seen > wanted || seen == from->count) {
            uint64_t end = bucket_end(bucket);
            return end < from->max && bucket < BUCKETS - 1 ? end : from->max;
        }
    }
    return from->max;
}

/* Prints what was counted in nanoseconds, as microseconds in JSON. */
static inline void print_latency(const char *name, const struct histogram *from) {
    static const struct {
        const char *name;
        double fraction;
    } wanted[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99_9", 0.999}, {"p99_99", 0.9999}};
    printf("\"%s\": {\"count\": %llu, \"mean\": %.1f", name, (unsigned long long)from->count,
           from->count ? (double)from->sum / (double)from->count / 1e3 : 0.0);
    for (size_t at = 0; at < sizeof wanted / sizeof *wanted; at++)
        printf(", \"%s\": %.1f", wanted[at].name,
               (double)percentile(from, wanted[at].fraction) / 1e3);
    printf(", \"max\": %.1f}", (double)from->max / 1e3);
}

#endif
