/* NATS JetStream as a work queue: an acknowledged publish to put, a pull of one message to reserve,
 * an acknowledgement that is itself confirmed to delete.
 *
 * The stream `load` with the subject `load` and its consumer `worker` must be there already.
 */

#define _GNU_SOURCE
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUBJECT_BYTES_MAX = 256 };

struct nats {
    char (*acknowledgements)[SUBJECT_BYTES_MAX];
};

static void open_nats(struct connection *one) {
    struct nats *state = need(sizeof *state);
    state->acknowledgements = need(sizeof *state->acknowledgements * (size_t)settings.slots);
    one->state = state;
    char line[LINE_BYTES_MAX];
    /* The first line is INFO, which is longer than any other; only its end is looked for. */
    for (char byte = 0; byte != '\n';) receive_all(one->fd, &byte, 1);
    append_text(one,
                "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,"
                "\"no_responders\":true,\"lang\":\"c\",\"version\":\"0\",\"protocol\":1}\r\n"
                "SUB load.reply.%d 1\r\nPING\r\n",
                one->number);
    send_all(one->fd, one->output, one->output_bytes);
    one->output_bytes = 0;
    receive_line(one->fd, line);
    if (strcmp(line, "PONG") != 0) die("unexpected greeting", line);
}

static void compose_nats(struct connection *one, int slot) {
    struct nats *state = one->state;
    switch (doing(one)) {
    case PUT:
        append_text(one, "PUB load load.reply.%d %zu\r\n", one->number, settings.body_bytes);
        append_body(one);
        append(one, "\r\n", 2);
        break;
    case RESERVE:
        append_text(one, "PUB $JS.API.CONSUMER.MSG.NEXT.load.worker load.reply.%d 0\r\n\r\n",
                    one->number);
        break;
    default:
        append_text(one, "PUB %s load.reply.%d 4\r\n+ACK\r\n", state->acknowledgements[slot],
                    one->number);
    }
}

/* MSG SUBJECT SID [REPLY] BYTES */
static void take_message(struct connection *one, char *line, const char *body, size_t bytes) {
    struct nats *state = one->state;
    enum operation now = doing(one);
    if (now == PUT) {
        if (bytes >= LINE_BYTES_MAX || !memmem(body, bytes, "\"seq\"", 5))
            die("a publish was refused", line);
    } else if (now == RESERVE) {
        char reply[SUBJECT_BYTES_MAX];
        if (sscanf(line, "MSG %*s %*s %255s %*u", reply) != 1 ||
            strncmp(reply, "$JS.ACK.", 8) != 0 || bytes != settings.body_bytes)
            die("a pull was refused", line);
        strcpy(state->acknowledgements[answered_slot(one)], reply);
    }
    answer(one);
}

static size_t take_nats(struct connection *one, char *input, size_t bytes) {
    char *end = memchr(input, '\n', bytes);
    if (!end) {
        if (bytes >= 2 * LINE_BYTES_MAX + settings.body_bytes) die("a line too long", NULL);
        return 0;
    }
    size_t line = (size_t)(end - input) + 1;
    if (strncmp(input, "PING", 4) == 0) {
        append(one, "PONG\r\n", 6);
        return line;
    }
    if (strncmp(input, "INFO ", 5) == 0 || strncmp(input, "PONG", 4) == 0) return line;
    *end = 0;
    if (strncmp(input, "MSG ", 4) != 0) die("unexpected message", input);
    size_t body = strtoull(strrchr(input, ' '), NULL, 10);
    bool complete = bytes >= line + body + 2;
    if (complete) take_message(one, input, input + line, body);
    *end = '\n';
    return complete ? line + body + 2 : 0;
}

const struct protocol NATS = {
    .name = "nats",
    .operations = 1u << PUT | 1u << RESERVE | 1u << DELETE,
    .open = open_nats,
    .compose = compose_nats,
    .take = take_nats,
};
