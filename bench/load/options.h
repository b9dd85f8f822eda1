/* options.h: what a run of the generator does, as its command line says. */

#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "load.h"

enum { ADDRESSES_MAX = 16, CYCLE_MAX = 16 };

struct workload {
    const char *name;
    int steps;
    enum operation cycle[CYCLE_MAX];
};

struct options {
    const struct protocol *protocol;
    const struct workload *workload;
    char *addresses[ADDRESSES_MAX];
    int addresses_known, idle_workers;
    unsigned long long fill_jobs;
    double seconds, warm_up, rate;
    bool marks;
};
extern struct options options;

/* Sets `options` and `settings`, or ends the program: with the usage, or naming what is wrong. */
void parse(int count, char **words);

#endif
