/* AMQP 0-9-1 with RabbitMQ's confirms: a persistent publish that is confirmed to put, the next
 * delivery of a consumer to reserve, an acknowledgement to delete.
 *
 * AMQP has no reply to an acknowledgement, so a delete counts as done when it is sent: that is in
 * RabbitMQ's favour. The consumer may be given as many messages ahead as the batch has jobs.
 */

#include "load.h"

#include <stdio.h>
#include <string.h>

enum { METHOD = 1, HEADER = 2, BODY = 3, HEARTBEAT = 8 };
enum { FRAME_HEAD_BYTES = 7, FRAME_BYTES_MAX = 131072 };
#define CODE(class, method) ((uint32_t)(class) << 16 | (method))
enum {
    START = CODE(10, 10), START_OK = CODE(10, 11), TUNE = CODE(10, 30), TUNE_OK = CODE(10, 31),
    OPEN = CODE(10, 40), OPEN_OK = CODE(10, 41), CLOSE = CODE(10, 50),
    CHANNEL_OPEN = CODE(20, 10), CHANNEL_OPEN_OK = CODE(20, 11), CHANNEL_CLOSE = CODE(20, 40),
    DECLARE = CODE(50, 10), DECLARE_OK = CODE(50, 11), QOS = CODE(60, 10), QOS_OK = CODE(60, 11),
    CONSUME = CODE(60, 20), PUBLISH = CODE(60, 40), DELIVER = CODE(60, 60), ACK = CODE(60, 80),
    CONFIRM = CODE(85, 10), CONFIRM_OK = CODE(85, 11)
};

struct amqp {
    bool consumes;
    uint64_t published;         /* the tag of the last publish */
    bool confirmed[DEPTH_MAX];  /* by tag: all that are unconfirmed belong to one batch */
    uint64_t *taken;            /* tags of what this connection has reserved */
    uint64_t held[DEPTH_MAX];   /* deliveries that nobody has asked for yet */
    int held_count;
    uint64_t arriving, missing; /* the tag of the delivery under way, its bytes to come */
};

/* Builds one frame's payload; the lengths are known only at its end. */
struct frame {
    uint8_t bytes[LINE_BYTES_MAX];
    size_t count;
};

static void add(struct frame *to, uint64_t value, int bytes) {
    while (bytes--) to->bytes[to->count++] = (uint8_t)(value >> 8 * bytes);
}

static void add_text(struct frame *to, const char *text) {
    add(to, strlen(text), 1);
    memcpy(to->bytes + to->count, text, strlen(text));
    to->count += strlen(text);
}

static struct frame method(uint32_t code) {
    struct frame made = {.count = 0};
    add(&made, code, 4);
    return made;
}

static void append_frame_head(struct connection *one, int kind, int channel, size_t bytes) {
    struct frame head = {.count = 0};
    add(&head, (uint64_t)kind, 1);
    add(&head, (uint64_t)channel, 2);
    add(&head, bytes, 4);
    append(one, head.bytes, head.count);
}

static void append_frame(struct connection *one, int kind, int channel, const struct frame *frame) {
    append_frame_head(one, kind, channel, frame->count);
    append(one, frame->bytes, frame->count);
    append(one, "\xce", 1);
}

static uint64_t number_at(const char *from, int bytes) {
    uint64_t value = 0;
    for (int at = 0; at < bytes; at++) value = value << 8 | (uint8_t)from[at];
    return value;
}

static _Noreturn void refused(const char *payload) {
    char text[256] = "";
    size_t bytes = (uint8_t)payload[6];
    memcpy(text, payload + 7, bytes);
    text[bytes < sizeof text ? bytes : sizeof text - 1] = 0;
    die("the server closed the channel", text);
}

static void expect(struct connection *one, uint32_t wanted) {
    char head[FRAME_HEAD_BYTES], payload[8192];
    receive_all(one->fd, head, sizeof head);
    size_t bytes = number_at(head + 3, 4);
    if (bytes + 1 > sizeof payload) die("a greeting too long", NULL);
    receive_all(one->fd, payload, bytes + 1);
    uint32_t code = (uint32_t)number_at(payload, 4);
    if (code == CLOSE || code == CHANNEL_CLOSE) refused(payload);
    if (code != wanted) die("an unexpected method in the greeting", NULL);
}

static void request(struct connection *one, int channel, const struct frame *frame,
                    uint32_t reply) {
    append_frame(one, METHOD, channel, frame);
    send_all(one->fd, one->output, one->output_bytes);
    one->output_bytes = 0;
    if (reply) expect(one, reply);
}

static void declare(struct connection *one) {
    static const char kind[] = "x-queue-type", members[] = "x-quorum-initial-group-size";
    struct frame frame = method(DECLARE);
    add(&frame, 0, 2);
    add_text(&frame, "load");
    add(&frame, 2, 1); /* durable */
    size_t table = frame.count;
    add(&frame, 0, 4);
    add_text(&frame, kind);
    add(&frame, 'S', 1);
    add(&frame, 6, 4);
    memcpy(frame.bytes + frame.count, "quorum", 6);
    frame.count += 6;
    add_text(&frame, members);
    add(&frame, 'I', 1);
    add(&frame, 3, 4);
    size_t end = frame.count;
    frame.count = table;
    add(&frame, end - table - 4, 4);
    frame.count = end;
    request(one, 1, &frame, DECLARE_OK);
}

static void open_amqp(struct connection *one) {
    struct amqp *state = need(sizeof *state);
    state->taken = need(sizeof *state->taken * (size_t)settings.slots);
    one->state = state;
    send_all(one->fd, "AMQP\0\0\x09\x01", 8);
    expect(one, START);
    struct frame frame = method(START_OK);
    add(&frame, 0, 4);
    add_text(&frame, "PLAIN");
    add(&frame, 12, 4);
    memcpy(frame.bytes + frame.count, "\0guest\0guest", 12);
    frame.count += 12;
    add_text(&frame, "en_US");
    request(one, 0, &frame, TUNE);
    frame = method(TUNE_OK);
    add(&frame, 1, 2);
    add(&frame, FRAME_BYTES_MAX, 4);
    add(&frame, 0, 2); /* no heartbeats */
    request(one, 0, &frame, 0);
    frame = method(OPEN);
    add_text(&frame, "/");
    add(&frame, 0, 2);
    request(one, 0, &frame, OPEN_OK);
    frame = method(CHANNEL_OPEN);
    add(&frame, 0, 1);
    request(one, 1, &frame, CHANNEL_OPEN_OK);
    frame = method(CONFIRM);
    add(&frame, 0, 1);
    request(one, 1, &frame, CONFIRM_OK);
    frame = method(QOS);
    add(&frame, 0, 4);
    add(&frame, (uint64_t)settings.depth, 2);
    add(&frame, 0, 1);
    request(one, 1, &frame, QOS_OK);
    if (one->number == 0) declare(one);
}

static void compose_publish(struct connection *one, struct amqp *state) {
    state->confirmed[++state->published % DEPTH_MAX] = false;
    struct frame frame = method(PUBLISH);
    add(&frame, 0, 2);
    add_text(&frame, "");
    add_text(&frame, "load");
    add(&frame, 0, 1);
    append_frame(one, METHOD, 1, &frame);
    frame.count = 0;
    add(&frame, 60, 2);
    add(&frame, 0, 2);
    add(&frame, settings.body_bytes, 8);
    add(&frame, 0x1000, 2); /* one property: the delivery mode, which is persistent */
    add(&frame, 2, 1);
    append_frame(one, HEADER, 1, &frame);
    append_frame_head(one, BODY, 1, settings.body_bytes);
    append_body(one);
    append(one, "\xce", 1);
}

static void compose_consume(struct connection *one) {
    struct frame frame = method(CONSUME);
    add(&frame, 0, 2);
    add_text(&frame, "load");
    add_text(&frame, "worker");
    add(&frame, 8, 1); /* without a reply */
    add(&frame, 0, 4);
    append_frame(one, METHOD, 1, &frame);
}

static void compose_amqp(struct connection *one, int slot) {
    struct amqp *state = one->state;
    switch (doing(one)) {
    case PUT: compose_publish(one, state); break;
    case RESERVE:
        if (!state->consumes) compose_consume(one);
        state->consumes = true;
        if (state->held_count) {
            state->taken[slot] = state->held[0];
            memmove(state->held, state->held + 1,
                    sizeof *state->held * (size_t)--state->held_count);
            answer(one);
        }
        break;
    default: {
        struct frame frame = method(ACK);
        add(&frame, state->taken[slot], 8);
        add(&frame, 0, 1);
        append_frame(one, METHOD, 1, &frame);
        answer(one);
    }
    }
}

static void confirm(struct connection *one, struct amqp *state, uint64_t tag, bool multiple) {
    uint64_t first = tag;
    if (multiple) first = state->published - (uint64_t)one->asked + 1;
    for (; first <= tag; first++) {
        if (state->confirmed[first % DEPTH_MAX]) continue;
        state->confirmed[first % DEPTH_MAX] = true;
        answer(one);
    }
}

static void delivered(struct connection *one, struct amqp *state) {
    if (doing(one) == RESERVE && one->answered < one->asked) {
        state->taken[one->answered] = state->arriving;
        answer(one);
    } else {
        if (state->held_count == DEPTH_MAX) die("more deliveries than allowed", NULL);
        state->held[state->held_count++] = state->arriving;
    }
}

static size_t take_amqp(struct connection *one, char *input, size_t bytes) {
    struct amqp *state = one->state;
    if (bytes < FRAME_HEAD_BYTES) return 0;
    size_t payload = number_at(input + 3, 4), all = FRAME_HEAD_BYTES + payload + 1;
    if (payload > FRAME_BYTES_MAX) die("a frame too long", NULL);
    if (bytes < all) return 0;
    if ((uint8_t)input[all - 1] != 0xce) die("a frame without its end", NULL);
    input += FRAME_HEAD_BYTES;
    int kind = input[-FRAME_HEAD_BYTES];
    if (kind == BODY) {
        state->missing -= payload;
        if (state->missing == 0) delivered(one, state);
    } else if (kind == HEADER) {
        state->missing = number_at(input + 4, 8);
        if (state->missing != settings.body_bytes) die("a body of another size", NULL);
        if (state->missing == 0) delivered(one, state);
    } else if (kind == METHOD) {
        uint32_t code = (uint32_t)number_at(input, 4);
        if (code == ACK) confirm(one, state, number_at(input + 4, 8), input[12] & 1);
        else if (code == DELIVER) state->arriving = number_at(input + 5 + (uint8_t)input[4], 8);
        else if (code == CLOSE || code == CHANNEL_CLOSE) refused(input);
        else die("an unexpected method", NULL);
    }
    return all;
}

const struct protocol AMQP = {
    .name = "amqp",
    .operations = 1u << PUT | 1u << RESERVE | 1u << DELETE,
    .open = open_amqp,
    .compose = compose_amqp,
    .take = take_amqp,
};
