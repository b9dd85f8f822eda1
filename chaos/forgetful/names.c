/* The directories, and which of their names survive a loss of power. Its purpose: disk.h.
 *
 * Changes of names stand in one journal, in the order in which they were made, until the directory
 * is synced. At a power cut nothing of the journal survives, or a beginning of it, or any of its
 * changes that do not need one that was lost. Each change, a rename too, survives as a whole. */

#include "disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file system writes changes out by itself, after seconds: here the oldest above this number. */
#define JOURNAL_MAX 256

enum kind { ADD, REMOVE, MOVE };

typedef struct {
    enum kind kind;
    Inode *directory, *target; /* target: of MOVE only, else the directory again */
    char *name, *target_name;
    Inode *inode;
    bool lost; /* only while a power cut is decided */
} Change;

static Change *journal;
static size_t journal_count;

static void *must(void *memory) {
    if (memory == NULL)
        abort();
    return memory;
}

static Entry *find(const Names *names, const char *name) {
    for (size_t index = 0; index < names->count; index++)
        if (strcmp(names->list[index].name, name) == 0)
            return &names->list[index];
    return NULL;
}

static void unset(Names *names, const char *name) {
    Entry *entry = find(names, name);
    if (entry == NULL)
        return;
    Inode *inode = entry->inode;
    free(entry->name);
    Entry *end = names->list + names->count--;
    memmove(entry, entry + 1, (size_t)(end - entry - 1) * sizeof *entry);
    disk_drop(inode, 1);
}

static void set(Names *names, const char *name, Inode *inode) {
    disk_hold(inode);
    unset(names, name);
    names->list = must(realloc(names->list, (names->count + 1) * sizeof *names->list));
    names->list[names->count++] = (Entry){must(strdup(name)), inode};
}

void names_clear(Names *names) {
    while (names->count)
        unset(names, names->list[names->count - 1].name);
    free(names->list);
    names->list = NULL;
}

static Names *names_of(Inode *directory, bool durable) {
    return durable ? &directory->durable_names : &directory->names;
}

static void carry_out(const Change *change, bool durable) {
    if (change->kind != ADD)
        unset(names_of(change->directory, durable), change->name);
    if (change->kind == ADD)
        set(names_of(change->directory, durable), change->name, change->inode);
    if (change->kind == MOVE)
        set(names_of(change->target, durable), change->target_name, change->inode);
}

static void forget(Change *change) {
    free(change->name);
    free(change->target_name);
    disk_drop(change->directory, 1);
    disk_drop(change->target, 1);
    disk_drop(change->inode, 1);
}

static void write_out_oldest(void) {
    carry_out(&journal[0], true);
    forget(&journal[0]);
    memmove(journal, journal + 1, --journal_count * sizeof *journal);
}

/* Do a change now and note it. The inode may lose its last name by it, so it is held first. */
static void record(enum kind kind, Inode *directory, const char *name, Inode *target,
                   const char *target_name, Inode *inode) {
    Change change = {kind, directory, target, must(strdup(name)), must(strdup(target_name)), inode,
                     false};
    disk_hold(directory);
    disk_hold(target);
    disk_hold(inode);
    if (journal_count == JOURNAL_MAX)
        write_out_oldest();
    journal = must(realloc(journal, (journal_count + 1) * sizeof *journal));
    journal[journal_count++] = change;
    carry_out(&change, false);
    clock_gettime(CLOCK_REALTIME, &directory->changed);
    clock_gettime(CLOCK_REALTIME, &target->changed);
}

Inode *names_find(Inode *directory, const char *name) {
    Entry *entry = find(&directory->names, name);
    return entry ? entry->inode : NULL;
}

int names_add(Inode *directory, const char *name, Inode *inode) {
    if (names_find(directory, name))
        return EEXIST;
    record(ADD, directory, name, directory, name, inode);
    return 0;
}

int names_remove(Inode *directory, const char *name, bool is_directory) {
    Inode *inode = names_find(directory, name);
    if (inode == NULL)
        return ENOENT;
    if (S_ISDIR(inode->mode) != is_directory)
        return is_directory ? ENOTDIR : EISDIR;
    if (inode->names.count)
        return ENOTEMPTY;
    record(REMOVE, directory, name, directory, name, inode);
    return 0;
}

int names_move(Inode *directory, const char *name, Inode *target, const char *target_name) {
    Inode *inode = names_find(directory, name);
    Inode *replaced = names_find(target, target_name);
    if (inode == NULL)
        return ENOENT;
    if (replaced == inode)
        return 0;
    if (replaced && S_ISDIR(replaced->mode) != S_ISDIR(inode->mode))
        return S_ISDIR(replaced->mode) ? EISDIR : ENOTDIR;
    if (replaced && replaced->names.count)
        return ENOTEMPTY;
    record(MOVE, directory, name, target, target_name, inode);
    return 0;
}

/* Make the changes of the journal durable that belong to a directory, in their order. A rename
   out of it or into it takes everything with it that was done before. */
void names_sync(Inode *directory) {
    size_t all = 0, kept = 0;
    for (size_t index = 0; index < journal_count; index++) {
        const Change *change = &journal[index];
        if (change->directory != change->target &&
            (change->directory == directory || change->target == directory))
            all = index + 1;
    }
    for (size_t index = 0; index < journal_count; index++) {
        Change change = journal[index];
        if (index < all || change.directory == directory) {
            carry_out(&change, true);
            forget(&change);
        } else {
            journal[kept++] = change;
        }
    }
    journal_count = kept;
}

static bool touches(const Change *change, const Inode *directory, const char *name) {
    return (change->directory == directory && strcmp(change->name, name) == 0) ||
           (change->target == directory && strcmp(change->target_name, name) == 0);
}

/* Whether a change needs one that was lost: one of the same name. */
static bool needs_lost(size_t index) {
    const Change *change = &journal[index];
    for (size_t earlier = 0; earlier < index; earlier++)
        if (journal[earlier].lost &&
            (touches(&journal[earlier], change->directory, change->name) ||
             touches(&journal[earlier], change->target, change->target_name)))
            return true;
    return false;
}

void names_cut(Cut *cut) {
    enum { NOTHING, BEGINNING, ANY } survives = disk_chance(3);
    size_t beginning = survives == BEGINNING ? disk_chance(journal_count + 1) : 0;
    for (size_t index = 0; index < journal_count; index++) {
        Change *change = &journal[index];
        if (survives == ANY)
            change->lost = disk_chance(2) || needs_lost(index);
        else
            change->lost = index >= beginning;
        if (!change->lost)
            carry_out(change, true);
        *(change->lost ? &cut->names_lost : &cut->names_kept) += 1;
    }
    names_forget_journal();
}

void names_settle(Inode *directory) {
    names_clear(&directory->names);
    const Names *durable = &directory->durable_names;
    for (size_t index = 0; index < durable->count; index++)
        set(&directory->names, durable->list[index].name, durable->list[index].inode);
}

void names_forget_journal(void) {
    for (size_t index = 0; index < journal_count; index++)
        forget(&journal[index]);
    journal_count = 0;
}
