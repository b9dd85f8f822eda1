/* A disk in memory that knows which of its bytes and names would survive a loss of power.
 *
 * fuse.c serves it to the kernel. disk.c has the bytes of files, names.c has the directories. */

#ifndef FORGETFUL_DISK_H
#define FORGETFUL_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define SECTOR 512

typedef struct Inode Inode;
typedef struct Chunk Chunk;

typedef struct {
    char *name;
    Inode *inode;
} Entry;

typedef struct {
    Entry *list;
    size_t count;
} Names;

struct Inode {
    uint64_t number;
    uint64_t holds; /* by names, by the journal, and by the kernel */
    uint32_t mode;
    struct timespec changed;
    /* Of a file: its size, and the size that survives. */
    uint64_t size, durable_size;
    Chunk *chunks;
    size_t chunk_count;
    /* Of a directory: its names, and the names that survive. */
    Names names, durable_names;
    Inode *previous, *next; /* in the list of all */
};

/* The fate of sectors and names that were not synced. */
typedef struct {
    uint64_t sectors_lost, sectors_kept, names_lost, names_kept;
} Cut;

/* `forgets_all`: chance keeps nothing of bytes that were not synced. */
void disk_begin(uint64_t seed, bool forgets_all);
uint64_t disk_chance(uint64_t below);
Inode *disk_root(void);
Inode *disk_make(uint32_t mode);
void disk_hold(Inode *inode);
void disk_drop(Inode *inode, uint64_t holds);

size_t disk_read(Inode *file, uint64_t offset, size_t size, char *out);
int disk_write(Inode *file, uint64_t offset, size_t size, const char *bytes);
int disk_resize(Inode *file, uint64_t size);
/* Make the bytes of a range durable, with the size that they need. */
void disk_sync_range(Inode *file, uint64_t from, uint64_t to);
/* Make all bytes durable; a size that shrank only with `metadata`. */
void disk_sync(Inode *file, bool metadata);

Inode *names_find(Inode *directory, const char *name);
int names_add(Inode *directory, const char *name, Inode *inode);
int names_remove(Inode *directory, const char *name, bool is_directory);
int names_move(Inode *directory, const char *name, Inode *target, const char *target_name);
void names_sync(Inode *directory);

/* The power fails: forget what was not synced, but for what chance has kept of it. */
Cut disk_cut(void);
/* Become a new, empty disk. */
void disk_format(void);

/* The interface between disk.c and names.c. */
Inode *disk_first(void);
void disk_drop_chunks(Inode *file);
void names_cut(Cut *cut);
void names_settle(Inode *directory);
void names_clear(Names *names);
void names_forget_journal(void);

#endif
