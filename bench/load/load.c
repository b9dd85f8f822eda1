/* load: a load generator that costs a few microseconds a command, for several kinds of queues.
 *
 * One thread and one epoll set serve all connections, so that the server under test keeps the rest
 * of a small machine. The generator's processor time is part of the result: a figure taken with
 * `client_cpu_share` near 1 measures the generator. `load --help` lists the options.
 *
 * Closed loop (no --rate): every connection has one command under way, or a batch of --depth
 * commands, and sends the next when all are answered; latency counts from the sending. Open loop
 * (--rate): every command has a time at which it is to be sent, and its latency counts from then,
 * whether or not a slow reply delayed the sending (no coordinated omission). Latencies are those of
 * the commands that began in the window, also of those that are answered after it; the rate is that
 * of the answers within it.
 *
 * Any reply that is not a success ends the run with status 1: a benchmark of errors is worth
 * nothing. At the end each connection finishes its cycle uncounted, so that the workloads that
 * delete what they put leave an empty queue. The result is one JSON object on stdout; with --marks
 * `filled`, `start` and `end` come before it, and the run waits for a line after `filled`.
 */

#define _GNU_SOURCE
#include "load.h"

#include "hist.h"
#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_MAX = 512 };
/* A server that answers nothing for this long is taken for dead. */
static const uint64_t SILENCE_NS_MAX = 60ull * 1000000000ull;
/* Batches of the filling have about so many bytes. */
enum { FILL_BATCH_BYTES = 64 * 1024, INPUT_BYTES_MIN = 16 * 1024 };
/* In `handoff`, a worker waits for so long before its job is put: it surely is blocked. */
static const uint64_t HANDOFF_PAUSE_NS = 3000000;
/* How often the end of the catching up is looked for. */
static const uint64_t CATCH_UP_NS = 1000000;

static const enum operation WORKER_CYCLE[] = {RESERVE, DELETE};
static const char *const OPERATION_NAMES[OPERATIONS] = {
    "put", "reserve", "delete", "touch", "release", "bury", "kick", "run"};
static struct connection *all;
static struct connection **later; /* a heap: who is to send at a known time, the first on top */
static int later_count;
static int epoll, timer;
static bool stopping, filling;
static int running;
/* The window that is measured: not begun while both are 0, and its end is set when it is over. */
static uint64_t start_ns, end_ns;
static uint64_t done[OPERATIONS]; /* commands that were answered in it */
/* How many jobs may still be begun, by cycles that start with a reserve or by the filling. */
static unsigned long long budget;
static uint64_t interval_ns, last_reply_ns, gap_ns_max;
static struct histogram total, handoff, by_operation[OPERATIONS];

static uint64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000ull + (uint64_t)at.tv_nsec;
}

int answered_slot(const struct connection *one) {
    if (one->answered == one->asked) die("more answers than questions", NULL);
    return one->answered;
}

static bool is_measured(uint64_t at_ns) {
    return start_ns && at_ns >= start_ns && (!end_ns || at_ns < end_ns);
}

void answer(struct connection *one) {
    uint64_t now = now_ns();
    one->answered = answered_slot(one) + 1;
    if (start_ns && !end_ns) done[doing(one)]++;
    /* A command of the window counts whenever it is answered: a stall at its end is a stall. */
    if (is_measured(last_reply_ns) && now - last_reply_ns > gap_ns_max)
        gap_ns_max = now - last_reply_ns;
    last_reply_ns = now;
    bool waits = one->cycle == WORKER_CYCLE && doing(one) == RESERVE;
    /* A worker's reserve waits until its partner puts: that says nothing of the server. */
    uint64_t sent_ns = waits ? one->partner->sent_ns : one->sent_ns;
    if (!is_measured(sent_ns)) return;
    uint64_t took = now > sent_ns ? now - sent_ns : 0;
    if (waits) {
        record(&handoff, took);
        return;
    }
    record(&total, took);
    record(&by_operation[doing(one)], took);
}

/* --- who sends later --- */

static void push_later(struct connection *one) {
    int at = later_count++;
    for (int above; at && later[above = (at - 1) / 2]->due_ns > one->due_ns; at = above)
        later[at] = later[above];
    later[at] = one;
}

static struct connection *pop_later(void) {
    struct connection *first = later[0], *last = later[--later_count];
    int at = 0;
    for (int below; (below = 2 * at + 1) < later_count; at = below) {
        if (below + 1 < later_count && later[below + 1]->due_ns < later[below]->due_ns) below++;
        if (later[below]->due_ns >= last->due_ns) break;
        later[at] = later[below];
    }
    later[at] = last;
    return first;
}

/* --- the engine --- */

static void flush(struct connection *one) {
    while (one->output_at < one->output_bytes) {
        ssize_t sent = link_send(one->fd, one->output + one->output_at,
                                 one->output_bytes - one->output_at);
        if (sent < 0) {
            if (errno == EAGAIN) break;
            if (errno == EINTR) continue;
            die("send", strerror(errno));
        }
        one->output_at += (size_t)sent;
    }
    bool wanted = one->output_at < one->output_bytes;
    if (!wanted) one->output_at = one->output_bytes = 0;
    if (one->polls_output == wanted) return;
    one->polls_output = wanted;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = one};
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, one->fd, &event) < 0) die("epoll_ctl", strerror(errno));
}

static void finish(struct connection *one) {
    one->step = -1;
    running--;
    if (filling) return;
    /* Closed only by half: a reset because of unread input could undo what was sent last. */
    epoll_ctl(epoll, EPOLL_CTL_DEL, one->fd, NULL);
    shutdown(one->fd, SHUT_WR);
}

/* Lets a producer of `handoff` put a little later, once it is idle and its worker is blocked: which
 * of the two comes first depends on the server. */
static void wake_producer(struct connection *one) {
    const struct connection *worker = one->partner;
    if (!one->parked || doing(worker) != RESERVE || worker->answered == worker->asked) return;
    one->parked = false;
    one->due_ns = now_ns() + HANDOFF_PAUSE_NS;
    push_later(one);
}

static void send_batch(struct connection *one) {
    if (one->step == 0) {
        one->asked = settings.depth;
        if ((unsigned long long)one->asked > budget) one->asked = (int)budget;
        if (budget != UINT64_MAX) budget -= (unsigned long long)one->asked;
    }
    one->answered = 0;
    one->sent_ns = interval_ns ? one->due_ns : now_ns();
    one->due_ns += interval_ns;
    for (int slot = 0; slot < one->asked; slot++) options.protocol->compose(one, slot);
    flush(one);
    if (one->cycle == WORKER_CYCLE) wake_producer(one->partner);
}

/* Sends what is to be sent now; `due` says that a time that was waited for has come. */
static void advance(struct connection *one, bool due) {
    do {
        if (one->step == 0 && (stopping || budget == 0)) {
            finish(one);
            return;
        }
        if (one->partner && doing(one) == PUT && !due) {
            one->parked = true;
            wake_producer(one);
            return;
        }
        if (interval_ns && !due && one->due_ns > now_ns()) {
            push_later(one);
            return;
        }
        due = false;
        send_batch(one);
        if (one->answered < one->asked) return;
        one->step = (one->step + 1) % one->cycle_steps;
    } while (true);
}

static void receive(struct connection *one, size_t room) {
    ssize_t got = link_receive(one->fd, one->input + one->input_bytes, room - one->input_bytes);
    if (got == 0) die("the server closed a connection", NULL);
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        die("recv", strerror(errno));
    }
    if (one->idle) die("a worker that was to stay idle got a reply", NULL);
    one->input_bytes += (size_t)got;
    size_t at = 0;
    bool asks = one->answered < one->asked;
    for (size_t taken; at < one->input_bytes; at += taken) {
        taken = options.protocol->take(one, one->input + at, one->input_bytes - at);
        if (!taken) break;
    }
    one->input_bytes -= at;
    memmove(one->input, one->input + at, one->input_bytes);
    if (one->input_bytes == room) die("a reply longer than any should be", NULL);
    if (one->output_bytes) flush(one);
    if (asks && one->answered == one->asked) {
        one->step = (one->step + 1) % one->cycle_steps;
        advance(one, false);
    }
}

/* Serves the connections until that time, 0: until all are finished. */
static void run_until(uint64_t until_ns) {
    struct epoll_event events[EVENTS_MAX];
    size_t room = settings.body_bytes + INPUT_BYTES_MIN;
    while (running) {
        uint64_t now = now_ns();
        if (until_ns && now >= until_ns) return;
        while (later_count && later[0]->due_ns <= now) advance(pop_later(), true);
        if (now - last_reply_ns > SILENCE_NS_MAX && last_reply_ns < now)
            die("the servers answer nothing", NULL);
        uint64_t next = until_ns ? until_ns : now + 1000000000ull;
        if (later_count && later[0]->due_ns < next) next = later[0]->due_ns;
        /* Milliseconds are too coarse for epoll to wait: a timer wakes it. */
        struct itimerspec at = {.it_value = {.tv_sec = (time_t)(next / 1000000000ull),
                                             .tv_nsec = (long)(next % 1000000000ull)}};
        if (later_count) timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        int wait_ms = next > now ? (int)((next - now) / 1000000) + 1 : 0;
        int ready = epoll_wait(epoll, events, EVENTS_MAX, wait_ms > 1000 ? 1000 : wait_ms);
        for (int number = 0; number < ready; number++) {
            struct connection *one = events[number].data.ptr;
            if (!one) {
                uint64_t expirations;
                if (read(timer, &expirations, sizeof expirations) < 0 && errno != EAGAIN)
                    die("timer", strerror(errno));
                continue;
            }
            if (one->step < 0) continue;
            if (events[number].events & EPOLLOUT) flush(one);
            if (events[number].events & ~(uint32_t)EPOLLOUT) receive(one, room);
        }
    }
}

/* Whether a command that began in the window is not answered. A blocked worker's reserve is none:
 * it waits for a put that is not sent any more. */
static bool owes(const struct connection *one) {
    if (interval_ns && one->due_ns < end_ns && one->step >= 0) return true; /* not even sent */
    if (!settings.by_pairs || one->answered == one->asked) return false;
    return doing(one) != RESERVE && one->sent_ns < end_ns;
}

/* Serves the connections, under the same load, until all that began in the window is answered. The
 * last commands of a closed loop without pairs are answered while the connections finish. */
static void catch_up(void) {
    for (int at = 0; at < settings.connections; at++)
        while (owes(&all[at])) run_until(now_ns() + CATCH_UP_NS);
}

static void open_connection(struct connection *one, int number, bool idle) {
    one->number = number;
    one->idle = idle;
    one->fd = dial(options.addresses[number % options.addresses_known]);
    one->input = need(idle ? LINE_BYTES_MAX : settings.body_bytes + INPUT_BYTES_MIN);
    options.protocol->open(one);
    fcntl(one->fd, F_SETFL, fcntl(one->fd, F_GETFL) | O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, one->fd, &event) < 0) die("epoll_ctl", strerror(errno));
}

/* Lets every connection begin the cycle. */
static void begin(const enum operation *cycle, int steps) {
    running = settings.connections;
    uint64_t now = last_reply_ns = now_ns();
    for (int at = 0; at < settings.connections; at++) {
        all[at].cycle = cycle;
        all[at].cycle_steps = steps;
        all[at].step = 0;
        all[at].asked = all[at].answered = 0;
        /* The starts are spread over the interval. */
        all[at].due_ns = now + interval_ns * (uint64_t)at / (uint64_t)settings.connections;
        if (settings.by_pairs) {
            all[at].partner = &all[at ^ 1];
            if (at & 1) {
                all[at].cycle = WORKER_CYCLE;
                all[at].cycle_steps = 2;
            }
        }
    }
    for (int at = 0; at < settings.connections; at++) advance(&all[at], false);
}

/* Puts jobs in large batches before anything is measured. */
static void fill(void) {
    static const enum operation cycle[] = {PUT};
    int depth = settings.depth;
    unsigned delay_s = settings.delay_s;
    settings.depth = (int)(FILL_BATCH_BYTES / (settings.body_bytes + 32)) + 1;
    if (settings.depth > FILL_DEPTH_MAX) settings.depth = FILL_DEPTH_MAX;
    settings.delay_s = 0;
    filling = true;
    budget = options.fill_jobs;
    begin(cycle, 1);
    run_until(0);
    filling = false;
    settings.depth = depth;
    settings.delay_s = delay_s;
}

static void mark(const char *name, bool waits) {
    if (!options.marks) return;
    printf("%s\n", name);
    fflush(stdout);
    for (int byte = waits ? 0 : '\n'; byte != '\n';)
        if ((byte = getchar()) == EOF) die("nobody says that the run may go on", NULL);
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void report(double elapsed, double cpu) {
    uint64_t all_done = 0;
    for (int at = 0; at < OPERATIONS; at++) all_done += done[at];
    if (total.count == 0 || all_done == 0) die("nothing was measured", options.workload->name);
    printf("{\"protocol\": \"%s\", \"workload\": \"%s\", \"connections\": %d, \"body_bytes\": %zu, "
           "\"depth\": %d, \"rate\": %.0f, \"filled\": %llu, \"seconds\": %.3f, "
           "\"operations\": %llu, \"op_s\": %.1f, \"client_cpu_share\": %.3f, "
           "\"gap_us\": %.1f, \"done\": {",
           options.protocol->name, options.workload->name, settings.connections,
           settings.body_bytes, settings.depth, options.rate, options.fill_jobs, elapsed,
           (unsigned long long)all_done, (double)all_done / elapsed, cpu / elapsed,
           (double)gap_ns_max / 1e3);
    const char *between = "";
    for (int at = 0; at < OPERATIONS; at++) {
        if (!done[at]) continue;
        printf("%s\"%s\": %llu", between, OPERATION_NAMES[at], (unsigned long long)done[at]);
        between = ", ";
    }
    printf("}, \"latency_us\": {");
    print_latency("all", &total);
    for (int at = 0; at < OPERATIONS; at++) {
        if (!by_operation[at].count) continue;
        printf(", "), print_latency(OPERATION_NAMES[at], &by_operation[at]);
    }
    if (handoff.count) printf(", "), print_latency("handoff", &handoff);
    printf("}}\n");
}

static void open_all(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    size_t count = (size_t)(settings.connections + options.idle_workers);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) < 0) die("epoll_ctl", strerror(errno));
    all = need(count * sizeof *all);
    later = need(count * sizeof *later);
    for (int at = 0; at < settings.connections; at++) open_connection(&all[at], at, false);
    static const enum operation waiting[] = {RESERVE};
    for (int at = 0; at < options.idle_workers; at++) {
        struct connection *one = &all[settings.connections + at];
        open_connection(one, at, true);
        one->cycle = waiting;
        options.protocol->compose(one, 0);
        flush(one);
    }
}

int main(int count, char **words) {
    parse(count, words);
    open_all();
    if (options.fill_jobs) fill();
    mark("filled", true);
    budget = options.workload->cycle[0] == RESERVE ? options.fill_jobs : UINT64_MAX;
    if (options.rate > 0)
        interval_ns =
            (uint64_t)((double)settings.connections * settings.depth / options.rate * 1e9);
    begin(options.workload->cycle, options.workload->steps);
    run_until(now_ns() + (uint64_t)(options.warm_up * 1e9));
    start_ns = last_reply_ns = now_ns();
    double cpu = cpu_seconds();
    mark("start", false);
    run_until(start_ns + (uint64_t)(options.seconds * 1e9));
    end_ns = now_ns();
    double elapsed = (double)(end_ns - start_ns) / 1e9;
    mark("end", false);
    cpu = cpu_seconds() - cpu;
    catch_up();
    stopping = true;
    interval_ns = 0;
    while (later_count && !settings.by_pairs) advance(pop_later(), true);
    /* Blocked workers of pairs would wait for ever; their end is the end of the process. */
    if (!settings.by_pairs) run_until(0);
    report(elapsed, cpu);
    return 0;
}
