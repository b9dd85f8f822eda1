/* load: a closed-loop load generator for servers that speak the beanstalk protocol.
 *
 * Every connection has one command under way; when its reply is complete the next one is sent. One
 * thread and one epoll set serve all connections, so that the generator costs a few microseconds a
 * command and the server under test keeps the rest of a small machine. What the generator itself
 * used is part of the result: a figure taken with `client_cpu_share` near 1 measures the generator.
 *
 *   load -a HOST:PORT[,HOST:PORT...] [-c CONNECTIONS] [-s SECONDS] [-u WARM_UP_SECONDS]
 *        [-w full|put|pair] [-b BODY_BYTES] [-t TUBES]
 *
 * Workloads: `full` is put, reserve, delete; `put` only puts (the jobs stay); `pair` is put, delete.
 * Connections are spread over the addresses in turn, and over TUBES tubes when -t is above 0.
 * The result is one JSON object on stdout; its `operations_all` also counts the warm-up and the end.
 * Any reply that is not a success ends the run with status 1: a benchmark of errors is worth
 * nothing. At the end of the time each connection finishes its cycle uncounted, so that `full` and
 * `pair` leave an empty queue.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ADDRESSES_MAX = 16, CONNECTIONS_MAX = 100000, EVENTS_MAX = 512 };
enum { LINE_BYTES_MAX = 256 };
/* A server that answers nothing for this long is taken for dead. */
static const uint64_t SILENCE_NS_MAX = 60ull * 1000000000ull;

/* Latencies are counted in buckets of less than 1 % width: 128 to each power of two. */
enum { BUCKET_BITS = 7, BUCKETS = (64 - BUCKET_BITS + 1) << BUCKET_BITS };

struct histogram {
    uint64_t count, sum, max;
    uint64_t buckets[BUCKETS];
};

enum operation { PUT, RESERVE, DELETE, OPERATIONS };
static const char *const OPERATION_NAMES[OPERATIONS] = {"put", "reserve", "delete"};

struct connection {
    int fd;
    bool polls_output;
    int step; /* position in the workload's cycle; -1: finished */
    uint64_t job;
    uint64_t sent_ns;
    char *input, *output;
    size_t input_bytes, output_bytes, output_at;
};

static enum operation cycle[OPERATIONS];
static int cycle_steps;
static size_t body_bytes = 100;
static char *put_command;
static size_t put_command_bytes, input_bytes_max;
static int epoll;
static bool counting, stopping;
static int running;
static uint64_t last_reply_ns, gap_ns_max, operations_all;
static struct histogram total, by_operation[OPERATIONS];

static void die(const char *what, const char *detail) {
    fprintf(stderr, "load: %s%s%s\n", what, detail ? ": " : "", detail ? detail : "");
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000ull + (uint64_t)at.tv_nsec;
}

static size_t bucket_of(uint64_t value) {
    if (value < (1u << BUCKET_BITS)) return (size_t)value;
    int shift = 63 - __builtin_clzll(value) - BUCKET_BITS;
    return ((size_t)(shift + 1) << BUCKET_BITS) + (size_t)((value >> shift) - (1u << BUCKET_BITS));
}

static uint64_t bucket_end(size_t bucket) {
    if (bucket < (1u << BUCKET_BITS)) return bucket;
    int shift = (int)(bucket >> BUCKET_BITS) - 1;
    uint64_t top = (bucket & ((1u << BUCKET_BITS) - 1)) + (1u << BUCKET_BITS) + 1;
    return (top << shift) - 1;
}

static void record(struct histogram *into, uint64_t value) {
    into->count++;
    into->sum += value;
    if (value > into->max) into->max = value;
    into->buckets[bucket_of(value)]++;
}

static double percentile_us(const struct histogram *from, double fraction) {
    uint64_t wanted = (uint64_t)((double)from->count * fraction), seen = 0;
    for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
        seen += from->buckets[bucket];
        if (seen > wanted || seen == from->count) {
            uint64_t end = bucket_end(bucket);
            return (double)(end < from->max ? end : from->max) / 1e3;
        }
    }
    return 0;
}

static void poll_output(struct connection *one, bool wanted) {
    if (one->polls_output == wanted) return;
    one->polls_output = wanted;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = one};
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, one->fd, &event) < 0) die("epoll_ctl", strerror(errno));
}

static void flush(struct connection *one) {
    while (one->output_at < one->output_bytes) {
        ssize_t sent = send(one->fd, one->output + one->output_at,
                            one->output_bytes - one->output_at, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EAGAIN) break;
            if (errno == EINTR) continue;
            die("send", strerror(errno));
        }
        one->output_at += (size_t)sent;
    }
    poll_output(one, one->output_at < one->output_bytes);
}

static void finish(struct connection *one) {
    one->step = -1;
    close(one->fd);
    running--;
}

/* Sends the command of the connection's current step. */
static void send_step(struct connection *one) {
    if (stopping && (one->step == 0)) {
        finish(one);
        return;
    }
    one->output_at = 0;
    switch (cycle[one->step]) {
    case PUT:
        memcpy(one->output, put_command, put_command_bytes);
        one->output_bytes = put_command_bytes;
        break;
    case RESERVE:
        memcpy(one->output, "reserve\r\n", 9);
        one->output_bytes = 9;
        break;
    default:
        one->output_bytes =
            (size_t)sprintf(one->output, "delete %llu\r\n", (unsigned long long)one->job);
    }
    one->sent_ns = now_ns();
    flush(one);
}

/* Returns how many bytes the complete reply takes, 0 while it is incomplete. */
static size_t reply_bytes(struct connection *one) {
    char *end = memchr(one->input, '\n', one->input_bytes);
    if (!end) {
        if (one->input_bytes >= LINE_BYTES_MAX) die("a reply without an end of line", NULL);
        return 0;
    }
    size_t line = (size_t)(end - one->input) + 1;
    *end = 0;
    unsigned long long job = 0, size = 0;
    bool right = false;
    switch (cycle[one->step]) {
    case PUT:
        right = sscanf(one->input, "INSERTED %llu", &job) == 1;
        break;
    case RESERVE:
        right = sscanf(one->input, "RESERVED %llu %llu", &job, &size) == 2 && size == body_bytes;
        break;
    default:
        right = strcmp(one->input, "DELETED\r") == 0;
    }
    if (!right) die("unexpected reply", one->input);
    *end = '\n';
    if (cycle[one->step] == RESERVE) line += body_bytes + 2;
    if (one->input_bytes < line) return 0;
    if (job) one->job = job;
    return line;
}

static void receive(struct connection *one) {
    ssize_t got = recv(one->fd, one->input + one->input_bytes,
                       input_bytes_max - one->input_bytes, 0);
    if (got == 0) die("the server closed a connection", NULL);
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        die("recv", strerror(errno));
    }
    one->input_bytes += (size_t)got;
    size_t reply = reply_bytes(one);
    if (!reply) return;
    if (reply != one->input_bytes) die("more bytes than one reply", NULL);
    one->input_bytes = 0;
    uint64_t now = now_ns();
    operations_all++;
    if (counting) {
        record(&total, now - one->sent_ns);
        record(&by_operation[cycle[one->step]], now - one->sent_ns);
        if (now - last_reply_ns > gap_ns_max) gap_ns_max = now - last_reply_ns;
    }
    last_reply_ns = now;
    one->step = (one->step + 1) % cycle_steps;
    send_step(one);
}

static void run_until(uint64_t end_ns) {
    struct epoll_event events[EVENTS_MAX];
    while (running) {
        uint64_t now = now_ns();
        if (end_ns && now >= end_ns) return;
        if (now - last_reply_ns > SILENCE_NS_MAX && last_reply_ns < now)
            die("the servers answer nothing", NULL);
        int wait_ms = end_ns ? (int)((end_ns - now) / 1000000) + 1 : 1000;
        int ready = epoll_wait(epoll, events, EVENTS_MAX, wait_ms > 1000 ? 1000 : wait_ms);
        for (int at = 0; at < ready; at++) {
            struct connection *one = events[at].data.ptr;
            if (one->step < 0) continue;
            if (events[at].events & EPOLLOUT) flush(one);
            if (events[at].events & ~(uint32_t)EPOLLOUT) receive(one);
        }
    }
}

static int dial(char *address) {
    char *colon = strrchr(address, ':');
    if (!colon) die("an address is HOST:PORT", address);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    *colon = 0;
    int failed = getaddrinfo(address, colon + 1, &hints, &found);
    *colon = ':';
    if (failed) die(address, gai_strerror(failed));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket", strerror(errno));
    if (connect(fd, found->ai_addr, found->ai_addrlen) < 0) die(address, strerror(errno));
    freeaddrinfo(found);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* Sends one line while nothing is measured yet, and waits for the end of the reply's line. */
static void ask(int fd, const char *line) {
    char byte = 0;
    if (send(fd, line, strlen(line), MSG_NOSIGNAL) != (ssize_t)strlen(line))
        die("send", strerror(errno));
    while (byte != '\n')
        if (recv(fd, &byte, 1, 0) != 1) die("no reply", line);
}

static void open_connection(struct connection *one, char *address, int tube) {
    one->fd = dial(address);
    one->input = malloc(input_bytes_max);
    one->output = malloc(put_command_bytes + LINE_BYTES_MAX);
    if (!one->input || !one->output) die("out of memory", NULL);
    if (tube >= 0) {
        char line[LINE_BYTES_MAX];
        snprintf(line, sizeof line, "use load-%d\r\n", tube);
        ask(one->fd, line);
        snprintf(line, sizeof line, "watch load-%d\r\n", tube);
        ask(one->fd, line);
        ask(one->fd, "ignore default\r\n");
    }
    fcntl(one->fd, F_SETFL, fcntl(one->fd, F_GETFL) | O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, one->fd, &event) < 0) die("epoll_ctl", strerror(errno));
}

static void set_workload(const char *name) {
    cycle[0] = PUT;
    cycle_steps = 1;
    if (strcmp(name, "put") == 0) return;
    if (strcmp(name, "full") == 0) cycle[cycle_steps++] = RESERVE;
    else if (strcmp(name, "pair") != 0) die("no such workload", name);
    cycle[cycle_steps++] = DELETE;
}

static void prepare_put(void) {
    char head[LINE_BYTES_MAX];
    size_t bytes = (size_t)snprintf(head, sizeof head, "put 1024 0 120 %zu\r\n", body_bytes);
    put_command_bytes = bytes + body_bytes + 2;
    put_command = malloc(put_command_bytes);
    if (!put_command) die("out of memory", NULL);
    memcpy(put_command, head, bytes);
    memset(put_command + bytes, 'x', body_bytes);
    memcpy(put_command + bytes + body_bytes, "\r\n", 2);
    input_bytes_max = body_bytes + 2 * LINE_BYTES_MAX;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void print_latency(const char *name, const struct histogram *from) {
    printf("\"%s\": {\"count\": %llu, \"mean\": %.1f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, "
           "\"p99_9\": %.1f, \"max\": %.1f}",
           name, (unsigned long long)from->count,
           from->count ? (double)from->sum / (double)from->count / 1e3 : 0.0,
           percentile_us(from, 0.5), percentile_us(from, 0.9), percentile_us(from, 0.99),
           percentile_us(from, 0.999), (double)from->max / 1e3);
}

static void report(const char *workload, int connections, double seconds, double cpu) {
    printf("{\"workload\": \"%s\", \"connections\": %d, \"body_bytes\": %zu, \"seconds\": %.3f, "
           "\"operations\": %llu, \"operations_all\": %llu, \"op_s\": %.1f, \"client_cpu_share\": %.3f, \"gap_us\": %.1f, "
           "\"latency_us\": {",
           workload, connections, body_bytes, seconds, (unsigned long long)total.count,
           (unsigned long long)operations_all, (double)total.count / seconds, cpu / seconds, (double)gap_ns_max / 1e3);
    print_latency("all", &total);
    for (int at = 0; at < cycle_steps; at++) {
        printf(", ");
        print_latency(OPERATION_NAMES[cycle[at]], &by_operation[cycle[at]]);
    }
    printf("}}\n");
}

int main(int count, char **words) {
    char *addresses[ADDRESSES_MAX], *list = NULL;
    const char *workload = "full";
    int known = 0, connections = 1, tubes = 0, option;
    double seconds = 5, warm_up = 1;
    while ((option = getopt(count, words, "a:c:s:u:w:b:t:")) != -1) {
        switch (option) {
        case 'a': list = optarg; break;
        case 'c': connections = atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'u': warm_up = atof(optarg); break;
        case 'w': workload = optarg; break;
        case 'b': body_bytes = (size_t)strtoull(optarg, NULL, 10); break;
        case 't': tubes = atoi(optarg); break;
        default: die("usage: load -a HOST:PORT[,...] [-c N] [-s S] [-u S] [-w full|put|pair] "
                     "[-b BYTES] [-t TUBES]", NULL);
        }
    }
    for (char *one = strtok(list ? list : "", ","); one; one = strtok(NULL, ",")) {
        if (known == ADDRESSES_MAX) die("too many addresses", NULL);
        addresses[known++] = one;
    }
    if (!known || connections < 1 || connections > CONNECTIONS_MAX || seconds <= 0)
        die("nothing to do: -a, -c or -s is missing or out of range", NULL);
    set_workload(workload);
    prepare_put();
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    if (!all) die("out of memory", NULL);
    for (int at = 0; at < connections; at++)
        open_connection(&all[at], addresses[at % known], tubes > 0 ? at % tubes : -1);
    last_reply_ns = now_ns();
    running = connections;
    for (int at = 0; at < connections; at++) send_step(&all[at]);
    run_until(now_ns() + (uint64_t)(warm_up * 1e9));
    counting = true;
    uint64_t start = last_reply_ns = now_ns();
    double cpu = cpu_seconds();
    run_until(start + (uint64_t)(seconds * 1e9));
    double elapsed = (double)(now_ns() - start) / 1e9;
    cpu = cpu_seconds() - cpu;
    counting = false;
    stopping = true;
    run_until(0);
    report(workload, connections, elapsed, cpu);
    return 0;
}
