/* The bytes of files, and which of them survive a loss of power. Its purpose: disk.h.
 *
 * A file is kept as it is now. Beside it stands what each sector held that was written since the
 * last sync; at a power cut such a sector goes back to that, or does not, as chance decides. */

#include "disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK (64 * 1024)
#define SECTORS (CHUNK / SECTOR)
/* More than any file of a soak; a larger offset is a mistake of whoever writes there. */
#define SIZE_MAX_BYTES (UINT64_C(16) << 30)
/* Before one in EARLY_ONE_OF writes to an unsynced sector the disk has written the earlier data by
   itself, so that they may survive. */
#define EARLY_ONE_OF 8
#define ALWAYS 256

struct Chunk {
    unsigned char *now;    /* NULL: zeros */
    unsigned char *before; /* of the dirty sectors, what survives; NULL: none is dirty */
    uint64_t dirty[SECTORS / 64];
};

static Inode *root, *first;
static uint64_t number, state;
static bool forgets_all;

uint64_t disk_chance(uint64_t below) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * UINT64_C(2685821657736338717) >> 16) % below;
}

static bool chance_is(uint64_t share) {
    return disk_chance(ALWAYS) < share;
}

Inode *disk_root(void) {
    return root;
}

Inode *disk_first(void) {
    return first;
}

Inode *disk_make(uint32_t mode) {
    Inode *inode = calloc(1, sizeof *inode);
    if (inode == NULL)
        abort();
    inode->number = ++number;
    inode->mode = mode;
    clock_gettime(CLOCK_REALTIME, &inode->changed);
    inode->next = first;
    if (first)
        first->previous = inode;
    return first = inode;
}

void disk_begin(uint64_t seed, bool is_hard) {
    forgets_all = is_hard;
    state = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
    root = disk_make(S_IFDIR | 0755);
    disk_hold(root);
}

void disk_hold(Inode *inode) {
    inode->holds++;
}

void disk_drop(Inode *inode, uint64_t holds) {
    inode->holds -= holds;
    if (inode->holds)
        return;
    names_clear(&inode->names);
    names_clear(&inode->durable_names);
    disk_drop_chunks(inode);
    if (inode->next)
        inode->next->previous = inode->previous;
    if (inode->previous)
        inode->previous->next = inode->next;
    else
        first = inode->next;
    free(inode);
}

static void clean(Chunk *chunk) {
    memset(chunk->dirty, 0, sizeof chunk->dirty);
    free(chunk->before);
    chunk->before = NULL;
}

/* Forget everything from the chunk with this index on. */
static void cut_chunks(Inode *file, size_t count) {
    for (size_t index = count; index < file->chunk_count; index++) {
        clean(&file->chunks[index]);
        free(file->chunks[index].now);
    }
    if (count < file->chunk_count)
        file->chunk_count = count;
}

void disk_drop_chunks(Inode *file) {
    cut_chunks(file, 0);
    free(file->chunks);
    file->chunks = NULL;
}

static bool is_dirty(const Chunk *chunk, size_t sector) {
    return chunk->dirty[sector / 64] >> sector % 64 & 1;
}

/* Return the chunk with this index; NULL if there is no memory for it. */
static Chunk *chunk_at(Inode *file, size_t index) {
    if (index >= file->chunk_count) {
        size_t count = index + 1;
        Chunk *grown = realloc(file->chunks, count * sizeof *grown);
        if (grown == NULL)
            return NULL;
        memset(grown + file->chunk_count, 0, (count - file->chunk_count) * sizeof *grown);
        file->chunks = grown;
        file->chunk_count = count;
    }
    Chunk *chunk = &file->chunks[index];
    if (chunk->now == NULL && (chunk->now = calloc(1, CHUNK)) == NULL)
        return NULL;
    return chunk;
}

/* Remember what survives of a sector that is about to be written. */
static void touch(Chunk *chunk, size_t sector) {
    if (is_dirty(chunk, sector) && (forgets_all || disk_chance(EARLY_ONE_OF)))
        return;
    if (chunk->before == NULL && (chunk->before = malloc(CHUNK)) == NULL)
        abort();
    memcpy(chunk->before + sector * SECTOR, chunk->now + sector * SECTOR, SECTOR);
    chunk->dirty[sector / 64] |= UINT64_C(1) << sector % 64;
}

/* Put bytes into chunks that are there or can be made; zeros for NULL. */
static int put(Inode *file, uint64_t offset, size_t size, const char *bytes) {
    while (size) {
        size_t place = offset % CHUNK;
        size_t part = size < CHUNK - place ? size : CHUNK - place;
        Chunk *chunk = chunk_at(file, offset / CHUNK);
        if (chunk == NULL)
            return ENOMEM;
        for (size_t sector = place / SECTOR; sector <= (place + part - 1) / SECTOR; sector++)
            touch(chunk, sector);
        if (bytes) {
            memcpy(chunk->now + place, bytes, part);
            bytes += part;
        } else {
            memset(chunk->now + place, 0, part);
        }
        offset += part;
        size -= part;
    }
    return 0;
}

size_t disk_read(Inode *file, uint64_t offset, size_t size, char *out) {
    if (offset >= file->size)
        return 0;
    if (size > file->size - offset)
        size = file->size - offset;
    for (size_t done = 0; done < size;) {
        uint64_t at = offset + done;
        size_t place = at % CHUNK, index = at / CHUNK;
        size_t part = size - done < CHUNK - place ? size - done : CHUNK - place;
        if (index < file->chunk_count && file->chunks[index].now)
            memcpy(out + done, file->chunks[index].now + place, part);
        else
            memset(out + done, 0, part);
        done += part;
    }
    return size;
}

int disk_write(Inode *file, uint64_t offset, size_t size, const char *bytes) {
    if (offset + size > SIZE_MAX_BYTES)
        return EFBIG;
    int error = put(file, offset, size, bytes);
    if (error == 0 && offset + size > file->size)
        file->size = offset + size;
    clock_gettime(CLOCK_REALTIME, &file->changed);
    return error;
}

int disk_resize(Inode *file, uint64_t size) {
    if (size > SIZE_MAX_BYTES)
        return EFBIG;
    /* The bytes that are cut off read as zeros if the file grows again. */
    for (uint64_t at = size; at < file->size;) {
        size_t part = CHUNK - at % CHUNK;
        size_t index = at / CHUNK;
        if (index < file->chunk_count && file->chunks[index].now)
            put(file, at, part, NULL);
        at += part;
    }
    file->size = size;
    clock_gettime(CLOCK_REALTIME, &file->changed);
    return 0;
}

void disk_sync_range(Inode *file, uint64_t from, uint64_t to) {
    for (uint64_t at = from; at < to && at / CHUNK < file->chunk_count;) {
        Chunk *chunk = &file->chunks[at / CHUNK];
        uint64_t end = (at / CHUNK + 1) * CHUNK;
        if (end > to)
            end = to;
        if (chunk->before) {
            size_t last = (end - 1) % CHUNK / SECTOR;
            for (size_t sector = at % CHUNK / SECTOR; sector <= last; sector++)
                chunk->dirty[sector / 64] &= ~(UINT64_C(1) << sector % 64);
            if (!chunk->dirty[0] && !chunk->dirty[1])
                clean(chunk);
        }
        at = end;
    }
    if (to > file->size)
        to = file->size;
    if (to > file->durable_size)
        file->durable_size = to;
}

void disk_sync(Inode *file, bool metadata) {
    disk_sync_range(file, 0, (uint64_t)file->chunk_count * CHUNK);
    if (metadata || file->size > file->durable_size)
        file->durable_size = file->size;
    if (metadata)
        cut_chunks(file, (file->size + CHUNK - 1) / CHUNK);
}

/* Return how long a file is after a power cut, of which `share` of 256 sectors survive. */
static uint64_t surviving_size(const Inode *file, uint64_t share) {
    uint64_t low = file->durable_size, high = file->size;
    if (high < low)
        return disk_chance(2) ? low : high;
    if (share == 0 || share == ALWAYS || low == high)
        return share == 0 ? low : high;
    uint64_t size = low + disk_chance((high - low) / SECTOR + 1) * SECTOR;
    return disk_chance(2) ? high : size;
}

static void cut_file(Inode *file, Cut *cut) {
    const uint64_t shares[] = {0, ALWAYS, ALWAYS / 2, disk_chance(ALWAYS)};
    uint64_t share = forgets_all ? 0 : shares[disk_chance(4)];
    uint64_t size = surviving_size(file, share);
    bool regrown = size > file->size; /* the truncation was lost, so the old end is there again */
    for (size_t index = 0; index < file->chunk_count; index++) {
        Chunk *chunk = &file->chunks[index];
        for (size_t sector = 0; sector < SECTORS && chunk->before; sector++) {
            uint64_t end = (uint64_t)index * CHUNK + (sector + 1) * SECTOR;
            if (!is_dirty(chunk, sector))
                continue;
            if ((regrown && end > file->size) || !chance_is(share)) {
                size_t place = sector * SECTOR;
                memcpy(chunk->now + place, chunk->before + place, SECTOR);
                cut->sectors_lost++;
            } else {
                cut->sectors_kept++;
            }
        }
        clean(chunk);
    }
    file->size = file->durable_size = size;
    cut_chunks(file, (size + CHUNK - 1) / CHUNK);
    if (size % CHUNK && size / CHUNK < file->chunk_count && file->chunks[size / CHUNK].now)
        memset(file->chunks[size / CHUNK].now + size % CHUNK, 0, CHUNK - size % CHUNK);
}

Cut disk_cut(void) {
    Cut cut = {0};
    names_cut(&cut);
    for (Inode *inode = first; inode; inode = inode->next)
        disk_hold(inode);
    for (Inode *inode = first; inode; inode = inode->next) {
        if (S_ISDIR(inode->mode))
            names_settle(inode);
        else
            cut_file(inode, &cut);
    }
    for (Inode *inode = first, *next; inode; inode = next) {
        /* The next one may only go with its own turn: it is still held. */
        next = inode->next;
        disk_drop(inode, 1);
    }
    return cut;
}

void disk_format(void) {
    names_forget_journal();
    names_clear(&root->names);
    names_clear(&root->durable_names);
}
