/* The command line of the generator: its workloads, its protocols and its usage. */

#define _GNU_SOURCE
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECTIONS_MAX = 100000 };

static const struct workload WORKLOADS[] = {
    {"full", 3, {PUT, RESERVE, DELETE}},
    {"put", 1, {PUT}},
    {"take", 2, {RESERVE, DELETE}},
    {"pair", 2, {PUT, DELETE}},
    {"mixed", 9, {PUT, RESERVE, TOUCH, RELEASE, RESERVE, BURY, KICK, RESERVE, DELETE}},
    {"handoff", 1, {PUT}},
    {"foreground", 1, {RUN}},
};
static const struct protocol *const PROTOCOLS[] = {&BEANSTALK, &REDIS, &NATS,
                                                   &GEARMAN, &AMQP, &WORKQ, &QLESS};

struct settings settings = {.body_bytes = 100, .connections = 1, .depth = 1};
struct options options = {
    .protocol = &BEANSTALK, .workload = &WORKLOADS[0], .seconds = 5, .warm_up = 1};

static void set_workload(const char *name) {
    for (size_t at = 0; at < sizeof WORKLOADS / sizeof *WORKLOADS; at++) {
        options.workload = &WORKLOADS[at];
        if (strcmp(options.workload->name, name) == 0) return;
    }
    die("--workload must be full, put, take, pair, mixed, handoff or foreground, not", name);
}

static void set_protocol(const char *name) {
    for (size_t at = 0; at < sizeof PROTOCOLS / sizeof *PROTOCOLS; at++) {
        options.protocol = PROTOCOLS[at];
        if (strcmp(options.protocol->name, name) == 0) return;
    }
    die("--protocol must be beanstalk, redis, nats, gearman, amqp, workq or qless, not", name);
}

static double number(const char *option, const char *text, double least, double most) {
    char *end, said[LINE_BYTES_MAX];
    double value = strtod(text, &end);
    if (end != text && *end == 0 && value >= least && value <= most) return value;
    snprintf(said, sizeof said, "--%s must be a number from %.15g to %.15g, not", option, least,
             most);
    die(said, text);
}

static const char USAGE[] =
    "load --addresses HOST:PORT[,HOST:PORT...] [OPTION VALUE...]\n"
    "  --protocol     beanstalk (default), redis, nats, gearman, amqp, workq or qless\n"
    "  --workload     full: put, reserve, delete (default). put: the jobs stay.\n"
    "                 take: reserve, delete, of what --fill has put. pair: put, delete.\n"
    "                 mixed: put, reserve, touch, release, reserve, bury, kick, reserve, delete.\n"
    "                 handoff: half of the connections put for the blocked other half.\n"
    "                 foreground: half wait for results of the other half (gearman, workq)\n"
    "  --connections  spread over the addresses in turn (default 1)\n"
    "  --seconds      of the measurement (default 5)\n"
    "  --warm-up      seconds before it (default 1)\n"
    "  --body         bytes of a job's body (default 100)\n"
    "  --depth        commands that are sent in one batch (default 1)\n"
    "  --rate         commands a second in an open loop; 0: as fast as it goes (default)\n"
    "  --fill         jobs that are put before anything is measured (default 0)\n"
    "  --delay        seconds for which measured puts are delayed (default 0)\n"
    "  --tubes        that the connections use; 0: `default` alone (default)\n"
    "  --idle         further connections that wait in `reserve` for nothing (default 0)\n"
    "  --script       a file with the Lua of a client library (qless)\n"
    "  --marks        1: say `filled`, `start` and `end` when it is so\n";

static void set_option(const char *name, const char *text) {
    if (strcmp(name, "addresses") == 0) {
        for (char *one = strtok(strdup(text), ","); one; one = strtok(NULL, ",")) {
            if (options.addresses_known == ADDRESSES_MAX) die("too many addresses", text);
            options.addresses[options.addresses_known++] = one;
        }
    } else if (strcmp(name, "protocol") == 0) set_protocol(text);
    else if (strcmp(name, "workload") == 0) set_workload(text);
    else if (strcmp(name, "connections") == 0)
        settings.connections = (int)number(name, text, 1, CONNECTIONS_MAX);
    else if (strcmp(name, "seconds") == 0) options.seconds = number(name, text, 0.01, 86400);
    else if (strcmp(name, "warm-up") == 0) options.warm_up = number(name, text, 0, 3600);
    else if (strcmp(name, "body") == 0) settings.body_bytes = (size_t)number(name, text, 0, 130000);
    else if (strcmp(name, "depth") == 0) settings.depth = (int)number(name, text, 1, DEPTH_MAX);
    else if (strcmp(name, "rate") == 0) options.rate = number(name, text, 0, 1e8);
    else if (strcmp(name, "fill") == 0)
        options.fill_jobs = (unsigned long long)number(name, text, 0, 1e9);
    else if (strcmp(name, "delay") == 0) settings.delay_s = (unsigned)number(name, text, 0, 86400);
    else if (strcmp(name, "tubes") == 0) settings.tubes = (int)number(name, text, 0, 1e6);
    else if (strcmp(name, "script") == 0) settings.script = text;
    else if (strcmp(name, "idle") == 0)
        options.idle_workers = (int)number(name, text, 0, CONNECTIONS_MAX);
    else options.marks = number(name, text, 0, 1) > 0;
}

void parse(int count, char **words) {
    static const struct option known[] = {
        {"addresses", 1, 0, 0}, {"protocol", 1, 0, 0}, {"workload", 1, 0, 0},
        {"connections", 1, 0, 0}, {"seconds", 1, 0, 0}, {"warm-up", 1, 0, 0}, {"body", 1, 0, 0},
        {"depth", 1, 0, 0}, {"rate", 1, 0, 0}, {"fill", 1, 0, 0}, {"delay", 1, 0, 0},
        {"tubes", 1, 0, 0}, {"idle", 1, 0, 0}, {"marks", 1, 0, 0}, {"script", 1, 0, 0},
        {"help", 0, 0, 'h'},
        {0, 0, 0, 0}};
    int found, which = 0;
    while ((found = getopt_long(count, words, "", known, &which)) != -1) {
        if (found == 'h') {
            fputs(USAGE, stdout);
            exit(0);
        }
        if (found) die("no such option; these are allowed:\n", USAGE);
        set_option(known[which].name, optarg);
    }
    if (!options.addresses_known || optind < count) die("usage", USAGE);
    const struct protocol *protocol = options.protocol;
    const struct workload *workload = options.workload;
    unsigned wanted = 0;
    for (int at = 0; at < workload->steps; at++) wanted |= 1u << workload->cycle[at];
    if (wanted & ~protocol->operations) die("not a workload of this protocol", workload->name);
    bool hands_off = strcmp(workload->name, "handoff") == 0;
    bool pairs = hands_off || workload->cycle[0] == RUN;
    bool only_beanstalk = hands_off || settings.tubes || options.idle_workers || settings.delay_s;
    if (only_beanstalk && protocol != &BEANSTALK)
        die("handoff, --tubes, --idle and --delay need --protocol", BEANSTALK.name);
    bool one_by_one = options.rate <= 0 && settings.depth == 1 && !options.fill_jobs;
    if (pairs && (settings.connections % 2 || !one_by_one))
        die("pairs need an even number of --connections and no --rate, --depth or --fill", NULL);
    if (workload->cycle[0] == RESERVE && !options.fill_jobs)
        die("nothing to take: --fill is 0", NULL);
    settings.by_pairs = pairs;
    settings.slots = settings.depth;
    if (options.fill_jobs && settings.slots < FILL_DEPTH_MAX) settings.slots = FILL_DEPTH_MAX;
}
