/* Redis as a work queue of lists: LPUSH to put, BLMOVE to a list of what is under way to reserve,
 * LREM from there to delete. */

#include "load.h"

#include <stdlib.h>
#include <string.h>

struct redis {
    char (*ids)[ID_BYTES + 1];
};

static void open_redis(struct connection *one) {
    struct redis *state = need(sizeof *state);
    state->ids = need(sizeof *state->ids * (size_t)settings.slots);
    one->state = state;
}

static void compose_redis(struct connection *one, int slot) {
    struct redis *state = one->state;
    switch (doing(one)) {
    case PUT:
        append_text(one, "*3\r\n$5\r\nLPUSH\r\n$4\r\nload\r\n$%zu\r\n", settings.body_bytes);
        append_body(one);
        append(one, "\r\n", 2);
        break;
    case RESERVE:
        append_text(one, "*6\r\n$6\r\nBLMOVE\r\n$4\r\nload\r\n$5\r\ntaken\r\n$5\r\nRIGHT\r\n"
                         "$4\r\nLEFT\r\n$1\r\n0\r\n");
        break;
    default:
        append_text(one, "*4\r\n$4\r\nLREM\r\n$5\r\ntaken\r\n$1\r\n1\r\n$%zu\r\n",
                    settings.body_bytes);
        append_body_of(one, state->ids[slot]);
        append(one, "\r\n", 2);
    }
}

static size_t take_redis(struct connection *one, char *input, size_t bytes) {
    struct redis *state = one->state;
    char *end = memchr(input, '\n', bytes);
    if (!end) return 0;
    size_t line = (size_t)(end - input) + 1;
    if (doing(one) == RESERVE) {
        if (input[0] != '$' || strtoull(input + 1, NULL, 10) != settings.body_bytes) {
            *end = 0;
            die("unexpected reply", input);
        }
        if (bytes < line + settings.body_bytes + 2) return 0;
        size_t known = settings.body_bytes < ID_BYTES ? settings.body_bytes : ID_BYTES;
        memcpy(state->ids[answered_slot(one)], input + line, known);
        line += settings.body_bytes + 2;
    } else if (input[0] != ':' || input[1] == '0') {
        *end = 0;
        die("unexpected reply", input);
    }
    answer(one);
    return line;
}

const struct protocol REDIS = {
    .name = "redis",
    .operations = 1u << PUT | 1u << RESERVE | 1u << DELETE,
    .open = open_redis,
    .compose = compose_redis,
    .take = take_redis,
};
