/* load.h: the interface between the engine (load.c) and the protocols (beanstalk.c and so on).
 *
 * The engine decides when which connection does what and measures it; a protocol turns operations
 * into bytes and replies into answers. A protocol knows nothing of time.
 */

#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* RUN: a job whose result the client waits for. */
enum operation { PUT, RESERVE, DELETE, TOUCH, RELEASE, BURY, KICK, RUN, OPERATIONS };

enum { ID_BYTES = 16, LINE_BYTES_MAX = 512, DEPTH_MAX = 1024, FILL_DEPTH_MAX = 256 };

struct connection {
    int fd, number;
    bool polls_output, idle, parked;
    const enum operation *cycle;
    int cycle_steps, step; /* position in the cycle; -1: finished */
    int asked, answered;   /* commands of this step */
    uint64_t sent_ns, due_ns;
    struct connection *partner; /* by pairs: who puts for whom */
    uint64_t bodies;            /* how many it has made: no two bodies are the same */
    char *input, *output;
    size_t input_bytes, output_bytes, output_at, output_max;
    void *state; /* of the protocol */
};

struct protocol {
    const char *name;
    unsigned operations; /* which it has, as bits */
    /* Greets the server on a new connection that still blocks. */
    void (*open)(struct connection *one);
    /* Appends the command of the current step for one job of the batch. */
    void (*compose)(struct connection *one, int slot);
    /* Takes one message from the input and calls `answer` for each command that it answers.
     * Returns the message's bytes; 0 while it is incomplete. */
    size_t (*take)(struct connection *one, char *input, size_t bytes);
};

extern const struct protocol BEANSTALK, REDIS, NATS, GEARMAN, AMQP, WORKQ, QLESS;

/* Settings of all connections; set before the first is opened. */
struct settings {
    size_t body_bytes;
    int connections, depth, tubes;
    int slots; /* the commands of the largest batch: those of the filling are larger than `depth` */
    unsigned delay_s;
    bool by_pairs; /* each two connections have a tube of their own */
    const char *script; /* a file, for protocols that send one */
};
extern struct settings settings;

_Noreturn void die(const char *what, const char *detail);
void *need(size_t bytes);

static inline enum operation doing(const struct connection *one) {
    return one->cycle[one->step];
}

/* The slot of the command that a message answers; dies if every command is answered already. */
int answered_slot(const struct connection *one);
/* One command of the current step is answered. */
void answer(struct connection *one);

void append(struct connection *one, const void *bytes, size_t count);
void append_text(struct connection *one, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A body that no other job has: servers that find jobs by their body must have to look. */
void append_body(struct connection *one);
/* A body with these first bytes. */
void append_body_of(struct connection *one, const char id[ID_BYTES]);

/* Connects to HOST:PORT, or to tls:HOST:PORT. */
int dial(char *address);
/* For `open`: whole blocking exchanges. */
void send_all(int fd, const void *bytes, size_t count);
void receive_all(int fd, void *into, size_t count);
/* Reads a line without its end, so slowly that it takes nothing of what follows. */
void receive_line(int fd, char into[LINE_BYTES_MAX]);

/* link.c: send and recv of a socket that may be encrypted; errno as theirs. */
void link_encrypt(int fd);
ssize_t link_send(int fd, const void *bytes, size_t count);
/* Reads until the socket has no more, or `count` is reached: TLS may keep bytes that no poll
 * shows. */
ssize_t link_receive(int fd, void *into, size_t count);

#endif
