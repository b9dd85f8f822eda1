/* qless as a work queue: put, pop, complete, by the script of a client library (--script). */

#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SHA_BYTES = 40, JID_BYTES_MAX = 64 };

struct qless {
    char sha[SHA_BYTES + 1];
    char worker[ID_BYTES];
    char (*jids)[JID_BYTES_MAX];
};

/* The script is read once; every connection loads it, as clients do. */
static const char *script(size_t *bytes) {
    static char *text;
    static size_t size;
    if (!text) {
        struct stat about;
        if (!settings.script) die("this protocol needs --script", NULL);
        FILE *file = fopen(settings.script, "rb");
        if (!file || fstat(fileno(file), &about)) die("cannot read the script", settings.script);
        size = (size_t)about.st_size;
        text = need(size);
        if (fread(text, 1, size, file) != size) die("cannot read the script", settings.script);
        fclose(file);
    }
    *bytes = size;
    return text;
}

static void append_word(struct connection *one, const char *word) {
    append_text(one, "$%zu\r\n%s\r\n", strlen(word), word);
}

static void open_qless(struct connection *one) {
    struct qless *state = need(sizeof *state);
    char line[LINE_BYTES_MAX];
    size_t bytes;
    const char *text = script(&bytes);
    state->jids = need(sizeof *state->jids * (size_t)settings.slots);
    snprintf(state->worker, sizeof state->worker, "w%d", one->number);
    append_text(one, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n", bytes);
    append(one, text, bytes);
    append(one, "\r\n", 2);
    send_all(one->fd, one->output, one->output_bytes);
    one->output_bytes = 0;
    receive_line(one->fd, line);
    if (strcmp(line, "$40") != 0) die("the script is refused", line);
    receive_line(one->fd, line);
    memcpy(state->sha, line, SHA_BYTES);
    one->state = state;
}

/* The head of a call: its name, the client's clock, and the number of arguments that follow. */
static void append_call(struct connection *one, const char *name, int more) {
    const struct qless *state = one->state;
    struct timespec at;
    char now[ID_BYTES * 2];
    clock_gettime(CLOCK_REALTIME, &at);
    snprintf(now, sizeof now, "%lld.%06ld", (long long)at.tv_sec, at.tv_nsec / 1000);
    append_text(one, "*%d\r\n$7\r\nEVALSHA\r\n", 5 + more);
    append_word(one, state->sha);
    append_word(one, "0");
    append_word(one, name);
    append_word(one, now);
}

/* A string of JSON. */
static void append_data(struct connection *one) {
    append_text(one, "$%zu\r\n\"", settings.body_bytes + 2);
    append_body(one);
    append(one, "\"\r\n", 3);
}

static void compose_qless(struct connection *one, int slot) {
    const struct qless *state = one->state;
    switch (doing(one)) {
    case PUT: {
        /* A jid that no other job of this server has, not even one of an earlier run. */
        char jid[JID_BYTES_MAX];
        snprintf(jid, sizeof jid, "%x-%x-%llx", (unsigned)getpid(), (unsigned)one->number,
                 (unsigned long long)one->bodies);
        append_call(one, "put", 6);
        append_word(one, state->worker);
        append_word(one, "load");
        append_word(one, jid);
        append_word(one, "Load");
        append_data(one);
        append_word(one, "0");
        break;
    }
    case RESERVE:
        append_call(one, "pop", 3);
        append_word(one, "load");
        append_word(one, state->worker);
        append_word(one, "1");
        break;
    default:
        append_call(one, "complete", 4);
        append_word(one, state->jids[slot]);
        append_word(one, state->worker);
        append_word(one, "load");
        append_word(one, "{}");
    }
}

static size_t take_qless(struct connection *one, char *input, size_t bytes) {
    struct qless *state = one->state;
    char *end = memchr(input, '\n', bytes);
    if (!end) return 0;
    size_t line = (size_t)(end - input) + 1, size = strtoull(input + 1, NULL, 10);
    if (input[0] != '$' || input[1] == '-') {
        *end = 0;
        die("unexpected reply", input);
    }
    if (bytes < line + size + 2) return 0;
    char *text = input + line;
    text[size] = 0;
    if (doing(one) == RESERVE) {
        char *jid = strstr(text, "\"jid\":\""), *close = jid ? strchr(jid + 7, '"') : NULL;
        if (!close || close - jid - 7 >= JID_BYTES_MAX) die("no job was popped", text);
        *close = 0;
        strcpy(state->jids[answered_slot(one)], jid + 7);
    } else if (doing(one) == DELETE && strcmp(text, "complete") != 0) {
        die("not complete", text);
    }
    answer(one);
    return line + size + 2;
}

const struct protocol QLESS = {
    .name = "qless",
    .operations = 1u << PUT | 1u << RESERVE | 1u << DELETE,
    .open = open_qless,
    .compose = compose_qless,
    .take = take_qless,
};
