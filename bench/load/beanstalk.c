/* The beanstalk protocol, with every command that the workloads know. */

#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A connection with several tubes goes to the next one after so many batches: seldom enough that
 * the cost of `use` does not count. */
enum { TUBE_BATCHES = 64 };

struct beanstalk {
    uint64_t *jobs;
    int tube, batches;
};

static int tube_of(const struct connection *one) {
    if (settings.by_pairs) return one->number / 2;
    return settings.tubes > 0 ? one->number % settings.tubes : -1;
}

static void open_beanstalk(struct connection *one) {
    struct beanstalk *state = need(sizeof *state);
    state->jobs = need(sizeof *state->jobs * (size_t)settings.slots);
    state->tube = tube_of(one);
    one->state = state;
    if (one->idle) {
        append_text(one, "watch idle-%d\r\nignore default\r\n",
                    settings.tubes > 0 ? one->number % settings.tubes : 0);
    } else if (state->tube >= 0) {
        append_text(one, "use load-%d\r\nwatch load-%d\r\nignore default\r\n", state->tube,
                    state->tube);
    } else {
        return;
    }
    send_all(one->fd, one->output, one->output_bytes);
    one->output_bytes = 0;
    char line[LINE_BYTES_MAX];
    for (int replies = one->idle ? 2 : 3; replies; replies--) receive_line(one->fd, line);
    if (one->idle || settings.by_pairs) return;
    for (int tube = state->tube + settings.connections; tube < settings.tubes;
         tube += settings.connections) {
        int bytes = snprintf(line, sizeof line, "watch load-%d\r\n", tube);
        send_all(one->fd, line, (size_t)bytes);
        receive_line(one->fd, line);
    }
}

static void next_tube(struct connection *one, struct beanstalk *state) {
    if (settings.by_pairs || settings.connections >= settings.tubes) return;
    if (++state->batches % TUBE_BATCHES) return;
    state->tube += settings.connections;
    if (state->tube >= settings.tubes) state->tube = tube_of(one);
    append_text(one, "use load-%d\r\n", state->tube);
}

static void compose_beanstalk(struct connection *one, int slot) {
    struct beanstalk *state = one->state;
    unsigned long long job = state->jobs[slot];
    switch (doing(one)) {
    case PUT:
        if (slot == 0) next_tube(one, state);
        append_text(one, "put 1024 %u 120 %zu\r\n", settings.delay_s, settings.body_bytes);
        append_body(one);
        append(one, "\r\n", 2);
        break;
    case RESERVE: append(one, "reserve\r\n", 9); break;
    case DELETE: append_text(one, "delete %llu\r\n", job); break;
    case TOUCH: append_text(one, "touch %llu\r\n", job); break;
    case RELEASE: append_text(one, "release %llu 1024 0\r\n", job); break;
    case BURY: append_text(one, "bury %llu 1024\r\n", job); break;
    default: append_text(one, "kick-job %llu\r\n", job);
    }
}

static size_t take_beanstalk(struct connection *one, char *input, size_t bytes) {
    static const char *const words[OPERATIONS] = {
        [DELETE] = "DELETED\r", [TOUCH] = "TOUCHED\r", [RELEASE] = "RELEASED\r",
        [BURY] = "BURIED\r", [KICK] = "KICKED\r"};
    struct beanstalk *state = one->state;
    char *end = memchr(input, '\n', bytes), *rest;
    if (!end) {
        if (bytes >= LINE_BYTES_MAX) die("a reply without an end of line", NULL);
        return 0;
    }
    size_t line = (size_t)(end - input) + 1;
    enum operation now = doing(one);
    *end = 0;
    bool right = false;
    if (now == PUT && strncmp(input, "USING ", 6) == 0) return line;
    if (now == PUT && strncmp(input, "INSERTED ", 9) == 0) {
        state->jobs[answered_slot(one)] = strtoull(input + 9, &rest, 10);
        right = *rest == '\r';
    } else if (now == RESERVE && strncmp(input, "RESERVED ", 9) == 0) {
        state->jobs[answered_slot(one)] = strtoull(input + 9, &rest, 10);
        right = strtoull(rest, &rest, 10) == settings.body_bytes && *rest == '\r';
        line += settings.body_bytes + 2;
    } else if (words[now]) {
        right = strcmp(input, words[now]) == 0;
    }
    if (!right) die("unexpected reply", input);
    *end = '\n';
    if (bytes < line) return 0;
    answer(one);
    return line;
}

const struct protocol BEANSTALK = {
    .name = "beanstalk",
    .operations = ((1u << OPERATIONS) - 1) & ~(1u << RUN),
    .open = open_beanstalk,
    .compose = compose_beanstalk,
    .take = take_beanstalk,
};
