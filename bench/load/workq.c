/* Workq as a work queue: add, lease, complete; and run, whose client waits for the result. */

#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A completed job is known until its TTL ends. It is so short that a run has as many jobs that end
 * as such that begin, and longer than any job waits for its worker. */
enum { TTL_MS = 10000, WAIT_MS = 60000, UUID_BYTES = 36 };

struct workq {
    char (*ids)[UUID_BYTES + 1];
    char name[ID_BYTES];
};

static void open_workq(struct connection *one) {
    struct workq *state = need(sizeof *state);
    state->ids = need(sizeof *state->ids * (size_t)settings.slots);
    strcpy(state->name, "load");
    if (settings.by_pairs) snprintf(state->name, sizeof state->name, "load%d", one->number / 2);
    one->state = state;
}

/* A UUID of version 4 that no other job of this server has, not even one of an earlier run. */
static void append_id(struct connection *one) {
    append_text(one, "%08x-%04x-4000-8000-%012llx", (unsigned)one->number,
                (unsigned)getpid() & 0xffff, (unsigned long long)one->bodies);
}

static void compose_workq(struct connection *one, int slot) {
    const struct workq *state = one->state;
    switch (doing(one)) {
    case PUT:
    case RUN:
        append_text(one, doing(one) == RUN ? "run " : "add ");
        append_id(one);
        append_text(one, " %s 120000 %d %zu\r\n", state->name,
                    doing(one) == RUN ? WAIT_MS : TTL_MS, settings.body_bytes);
        append_body(one);
        append(one, "\r\n", 2);
        break;
    case RESERVE: append_text(one, "lease %s %d\r\n", state->name, WAIT_MS); break;
    default: append_text(one, "complete %s 2\r\nok\r\n", state->ids[slot]);
    }
}

static size_t take_workq(struct connection *one, char *input, size_t bytes) {
    struct workq *state = one->state;
    enum operation now = doing(one);
    bool has_body = now == RESERVE || now == RUN;
    const char *wanted = has_body ? "+OK 1\r" : "+OK\r";
    char *end = memchr(input, '\n', bytes), *rest;
    if (!end) {
        if (bytes >= LINE_BYTES_MAX) die("a reply without an end of line", NULL);
        return 0;
    }
    size_t line = (size_t)(end - input) + 1;
    if (line != strlen(wanted) + 1 || memcmp(input, wanted, line - 1) != 0) {
        *end = 0;
        die("unexpected reply", input);
    }
    if (has_body) {
        /* ID NAME TTR SIZE of a lease, ID SUCCESS SIZE of a result. */
        char *second = memchr(end + 1, '\n', bytes - line);
        if (!second) return 0;
        *second = 0;
        char *size = strrchr(end + 1, ' ');
        size_t body = size ? strtoull(size, &rest, 10) : 0;
        if (!size || *rest != '\r' || second - end <= UUID_BYTES) die("a wrong reply", end + 1);
        *second = '\n';
        line = (size_t)(second - input) + 1 + body + 2;
        if (bytes < line) return 0;
        if (now == RESERVE) memcpy(state->ids[answered_slot(one)], end + 1, UUID_BYTES);
    }
    answer(one);
    return line;
}

const struct protocol WORKQ = {
    .name = "workq",
    .operations = 1u << PUT | 1u << RESERVE | 1u << DELETE | 1u << RUN,
    .open = open_workq,
    .compose = compose_workq,
    .take = take_workq,
};
