/* When bytes and names become durable, and when the power fails. Its purpose: power.h.
 *
 * Commands, a line each on stdin, and the one line on stdout that answers each:
 *
 *     cut now 0      the power fails. Answered by how much was lost and kept, in words and numbers
 *     cut bytes N    the same, soon after the Nth request that changes something or syncs
 *     cut names N    the same, of those that change names or sync them
 *     off            what was not answered since the cut ends with EIO, as all does that writes
 *     on             the power is back
 *     format         a new, empty disk
 *     count          how often what was asked
 *
 * From the cut until "off" no write is answered, so that no process learns of the cut
 * before it is killed. */

#include "power.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Both disks of docs/performance.md sync in 70 to 150 us; one sync in SLOW_ONE_OF takes much
   longer, as their slowest do. */
#define SYNC_US_MIN 60
#define SYNC_US_SPREAD 200
#define SLOW_ONE_OF 200
#define SLOW_US_SPREAD 20000
/* Threads that are between the write and the sync of one system call. */
#define RANGES_MAX 64
/* More requests than all threads of a node can have under way. */
#define WAITING_MAX 1024
/* How long a cut waits for the request that it is to meet: names change every few seconds. */
#define BYTES_PATIENCE_NS 300000000
#define NAMES_PATIENCE_NS 3000000000
/* How soon after that request it comes: while the sync is under way, or the next one. */
#define CUT_US_SPREAD 300

typedef struct {
    uint32_t thread;
    Inode *file; /* NULL: the place is free */
    uint64_t from, to;
} Range;

typedef struct {
    uint64_t unique;
    int64_t due_ns;
    Inode *inode;
    bool metadata, is_range;
    Range range;
} Sync;

struct counts counts;

static bool lies;
static enum { ON, CUT, OFF } power;
static Range ranges[RANGES_MAX];
static size_t range_next;
static Sync syncs[WAITING_MAX];
static size_t sync_count;
static uint64_t held[WAITING_MAX];
static size_t held_count;
/* The cut that was asked for: what it waits for, and when it comes at the latest. */
static enum change awaited;
static uint64_t awaited_count;
static int64_t cut_ns = -1;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void power_begin(bool is_lie) {
    lies = is_lie;
    setvbuf(stdout, NULL, _IOLBF, 0);
}

static void hold(uint64_t unique) {
    if (held_count == WAITING_MAX)
        answer_error(unique, EIO);
    else
        held[held_count++] = unique;
}

bool power_holds(uint64_t unique, enum change change) {
    if (change == NO_CHANGE)
        return false;
    if (power == OFF)
        answer_error(unique, EIO);
    if (power == CUT)
        hold(unique);
    if (power != ON)
        return true;
    if (cut_ns >= 0 && change >= awaited && awaited_count && --awaited_count == 0)
        cut_ns = now_ns() + (int64_t)disk_chance(CUT_US_SPREAD) * 1000;
    return false;
}

void power_wrote(uint32_t thread, Inode *file, uint64_t from, uint64_t to) {
    ranges[range_next++ % RANGES_MAX] = (Range){thread, file, from, to};
}

/* Take what a thread has written for the sync that it asks for now. */
static bool take_range(uint32_t thread, const Inode *file, Range *found) {
    bool is_found = false;
    for (size_t index = 0; index < RANGES_MAX; index++) {
        Range *range = &ranges[index];
        if (range->file != file || range->thread != thread)
            continue;
        if (!is_found)
            *found = *range;
        if (range->from < found->from)
            found->from = range->from;
        if (range->to > found->to)
            found->to = range->to;
        range->file = NULL;
        is_found = true;
    }
    return is_found;
}

void power_sync(uint64_t unique, uint32_t thread, Inode *inode, bool metadata) {
    if (sync_count == WAITING_MAX) {
        answer_error(unique, EIO);
        return;
    }
    uint64_t took_us = SYNC_US_MIN + disk_chance(SYNC_US_SPREAD);
    if (disk_chance(SLOW_ONE_OF) == 0)
        took_us += disk_chance(SLOW_US_SPREAD);
    Sync *sync = &syncs[sync_count++];
    *sync = (Sync){.unique = unique, .inode = inode, .metadata = metadata};
    sync->due_ns = now_ns() + (int64_t)took_us * 1000;
    sync->is_range = take_range(thread, inode, &sync->range);
}

static void finish(const Sync *sync) {
    uint64_t *counter = &counts.syncs;
    if (S_ISDIR(sync->inode->mode)) {
        counter = &counts.name_syncs;
        names_sync(sync->inode);
    } else if (sync->is_range) {
        counter = &counts.range_syncs;
        if (!lies)
            disk_sync_range(sync->inode, sync->range.from, sync->range.to);
    } else {
        disk_sync(sync->inode, sync->metadata);
    }
    *counter += 1;
    answer_error(sync->unique, 0);
}

static void cut(void) {
    size_t broken = sync_count;
    power = CUT;
    cut_ns = -1;
    for (size_t index = 0; index < sync_count; index++)
        hold(syncs[index].unique);
    sync_count = 0;
    memset(ranges, 0, sizeof ranges);
    Cut lost = disk_cut();
    printf("sectors_lost %lu sectors_kept %lu names_lost %lu names_kept %lu syncs_broken %zu\n",
           lost.sectors_lost, lost.sectors_kept, lost.names_lost, lost.names_kept, broken);
}

int64_t power_tick(void) {
    int64_t now = now_ns(), next = -1;
    if (cut_ns >= 0 && cut_ns <= now)
        cut();
    if (cut_ns >= 0)
        next = cut_ns - now;
    for (size_t index = 0; index < sync_count;) {
        Sync sync = syncs[index];
        if (sync.due_ns <= now) {
            syncs[index] = syncs[--sync_count];
            finish(&sync);
            continue;
        }
        if (next < 0 || sync.due_ns - now < next)
            next = sync.due_ns - now;
        index++;
    }
    return next;
}

static void turn_off(void) {
    power = OFF;
    for (size_t index = 0; index < held_count; index++)
        answer_error(held[index], EIO);
    held_count = 0;
    puts("off");
}

bool power_obey(void) {
    char line[64], moment[8];
    if (fgets(line, sizeof line, stdin) == NULL)
        return false;
    if (sscanf(line, "cut %7s %lu", moment, &awaited_count) == 2) {
        bool now = strcmp(moment, "now") == 0;
        awaited = strcmp(moment, "names") == 0 ? NAMES : BYTES;
        cut_ns = now ? 0 : now_ns() + (awaited == NAMES ? NAMES_PATIENCE_NS : BYTES_PATIENCE_NS);
    } else if (strcmp(line, "off\n") == 0) {
        turn_off();
    } else if (strcmp(line, "on\n") == 0) {
        power = ON;
        puts("on");
    } else if (strcmp(line, "format\n") == 0) {
        disk_format();
        puts("formatted");
    } else if (strcmp(line, "count\n") == 0) {
        printf("direct %lu synced %lu lazy %lu syncs %lu range_syncs %lu name_syncs %lu\n",
               counts.direct, counts.synced, counts.lazy, counts.syncs, counts.range_syncs,
               counts.name_syncs);
    } else {
        puts("unknown");
    }
    return true;
}
