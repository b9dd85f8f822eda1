/* Gearman as a work queue: background jobs of one function, or of one for each pair in foreground.
 *
 * WORK_COMPLETE has no reply. An ECHO_REQ behind it does, and comes back when the server has done
 * what stood before it; so a delete is confirmed here as in the other protocols.
 */

#include "load.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum {
    CAN_DO = 1, PRE_SLEEP = 4, NOOP = 6, SUBMIT_JOB = 7, JOB_CREATED = 8, GRAB_JOB = 9,
    NO_JOB = 10, JOB_ASSIGN = 11, WORK_COMPLETE = 13, ECHO_REQ = 16, ECHO_RES = 17,
    SUBMIT_JOB_BG = 18
};
enum { HEAD_BYTES = 12, HANDLE_BYTES_MAX = 64 };

struct gearman {
    char (*handles)[HANDLE_BYTES_MAX];
    char function[ID_BYTES];
};

static void append_head(struct connection *one, uint32_t kind, size_t bytes) {
    uint32_t words[2] = {htonl(kind), htonl((uint32_t)bytes)};
    append(one, "\0REQ", 4);
    append(one, words, sizeof words);
}

static void open_gearman(struct connection *one) {
    struct gearman *state = need(sizeof *state);
    state->handles = need(sizeof *state->handles * (size_t)settings.slots);
    one->state = state;
    strcpy(state->function, "load");
    if (settings.by_pairs)
        snprintf(state->function, sizeof state->function, "load%d", one->number / 2);
    append_head(one, CAN_DO, strlen(state->function));
    append(one, state->function, strlen(state->function));
    send_all(one->fd, one->output, one->output_bytes);
    one->output_bytes = 0;
}

static void compose_gearman(struct connection *one, int slot) {
    struct gearman *state = one->state;
    switch (doing(one)) {
    case PUT:
    case RUN: {
        char text[ID_BYTES * 2];
        size_t function = strlen(state->function) + 1;
        /* The job's unique name: two with the same would be one job. */
        int bytes = snprintf(text, sizeof text, "%x-%llx", (unsigned)one->number,
                             (unsigned long long)one->bodies);
        append_head(one, doing(one) == RUN ? SUBMIT_JOB : SUBMIT_JOB_BG,
                    function + (size_t)bytes + 1 + settings.body_bytes);
        append(one, state->function, function);
        append(one, text, (size_t)bytes + 1);
        append_body(one);
        break;
    }
    case RESERVE: append_head(one, GRAB_JOB, 0); break;
    default: {
        size_t handle = strlen(state->handles[slot]) + 1;
        append_head(one, WORK_COMPLETE, handle);
        append(one, state->handles[slot], handle);
        append_head(one, ECHO_REQ, 1);
        append(one, "x", 1);
    }
    }
}

static size_t take_gearman(struct connection *one, char *input, size_t bytes) {
    static const uint32_t wanted[OPERATIONS] = {
        [PUT] = JOB_CREATED, [RESERVE] = JOB_ASSIGN, [DELETE] = ECHO_RES, [RUN] = WORK_COMPLETE};
    struct gearman *state = one->state;
    uint32_t words[2];
    if (bytes < HEAD_BYTES) return 0;
    memcpy(words, input + 4, sizeof words);
    uint32_t kind = ntohl(words[0]);
    size_t all = HEAD_BYTES + ntohl(words[1]);
    if (all > HEAD_BYTES + settings.body_bytes + LINE_BYTES_MAX) die("a reply too long", NULL);
    if (bytes < all) return 0;
    if (doing(one) == RUN && kind == JOB_CREATED) return all;
    if (doing(one) == RESERVE && (kind == NO_JOB || kind == NOOP)) {
        /* Without pairs the job was on its way: the server knows of it only after it has answered
         * the put. A worker of a pair sleeps. */
        append_head(one, settings.by_pairs && kind == NO_JOB ? PRE_SLEEP : GRAB_JOB, 0);
        return all;
    }
    if (kind != wanted[doing(one)]) die("unexpected reply", kind == 19 ? input + HEAD_BYTES : NULL);
    if (kind == JOB_ASSIGN) {
        size_t handle = strnlen(input + HEAD_BYTES, all - HEAD_BYTES) + 1;
        if (handle > HANDLE_BYTES_MAX) die("a handle too long", NULL);
        memcpy(state->handles[answered_slot(one)], input + HEAD_BYTES, handle);
    }
    answer(one);
    return all;
}

const struct protocol GEARMAN = {
    .name = "gearman",
    .operations = 1u << PUT | 1u << RESERVE | 1u << DELETE | 1u << RUN,
    .open = open_gearman,
    .compose = compose_gearman,
    .take = take_gearman,
};
