/* Syncs that take their time, and the power that fails meanwhile. Kernel's words are in fuse.c. */

#ifndef FORGETFUL_POWER_H
#define FORGETFUL_POWER_H

#include "disk.h"

/* Kinds of requests for which a power cut may wait. */
enum change { NO_CHANGE, BYTES, NAMES };

struct counts {
    uint64_t direct, synced, lazy, syncs, range_syncs, name_syncs;
};
extern struct counts counts;

/* Answer a request with an errno and nothing else; of fuse.c. */
void answer_error(uint64_t unique, int error);

void power_begin(bool lies);
/* Whether a request that changes something must wait, because there is no power: it is answered
   later. Else it is noted, since a cut may wait for it. */
bool power_holds(uint64_t unique, enum change change);
/* A thread wrote a range in a call that will sync it, too. */
void power_wrote(uint32_t thread, Inode *file, uint64_t from, uint64_t to);
/* A sync was asked for. It is answered later. */
void power_sync(uint64_t unique, uint32_t thread, Inode *inode, bool metadata);
/* Do what is due; return the nanoseconds until something is, -1 for never. */
int64_t power_tick(void);
/* Read a command from stdin and obey; false at the end. */
bool power_obey(void);

#endif
