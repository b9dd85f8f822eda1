/* A file system that forgets: serves the disk of disk.h to the kernel, until its power fails.
 *
 *     forgetful MOUNTPOINT SEED FREE_BYTES_OF [lying]
 *
 * It speaks to /dev/fuse itself, so that it needs root and no library. The first line on stdout is
 * "ready"; then each line on stdin is a command of power.c. The end of stdin unmounts it.
 *
 * A write is durable when a sync that came after it was answered, whatever flags the file is open
 * with: O_DIRECT alone reaches only the cache of a disk. For a write with RWF_DSYNC the kernel
 * sends a write that says so and then a sync from the same thread, which here syncs that range
 * only. Syncs take as long as on a disk, so that a power cut meets some. A lying disk does not sync
 * such a range at all, as if the node had forgotten to ask for it, and keeps nothing of it by
 * chance. */

#define _GNU_SOURCE
#include "power.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#define WRITE_MAX (1024 * 1024)
#define REQUEST_MAX (WRITE_MAX + 4096)
#define PAGES_MAX (WRITE_MAX / 4096)
/* Paths are looked up each time, because a power cut changes them without the kernel's knowledge; a
   lookup also renews the attributes that the kernel has cached. */
#define ATTRIBUTES_VALID_S 3600
static int device;
static const char *space_of;
static union {
    struct fuse_in_header head;
    char bytes[REQUEST_MAX];
} request;
static char answer[WRITE_MAX];

static void reply(uint64_t unique, int error, const void *data, size_t size) {
    struct fuse_out_header head = {(uint32_t)(sizeof head + size), -error, unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)data, size}};
    /* An error says that whoever asked was killed meanwhile. */
    (void)!writev(device, parts, size ? 2 : 1);
}

void answer_error(uint64_t unique, int error) {
    reply(unique, error, NULL, 0);
}

static Inode *inode_of(uint64_t node) {
    return node == FUSE_ROOT_ID ? disk_root() : (Inode *)(uintptr_t)node;
}

static struct fuse_attr attributes_of(const Inode *inode) {
    bool is_directory = S_ISDIR(inode->mode);
    uint64_t seconds = (uint64_t)inode->changed.tv_sec;
    uint32_t nanoseconds = (uint32_t)inode->changed.tv_nsec;
    return (struct fuse_attr){
        .ino = inode->number,
        .size = inode->size,
        .blocks = (inode->size + SECTOR - 1) / SECTOR,
        .atime = seconds,
        .mtime = seconds,
        .ctime = seconds,
        .atimensec = nanoseconds,
        .mtimensec = nanoseconds,
        .ctimensec = nanoseconds,
        .mode = inode->mode,
        .nlink = is_directory ? 2 : 1,
        .blksize = 4096,
    };
}

static struct fuse_attr_out told_of(const Inode *inode) {
    return (struct fuse_attr_out){.attr_valid = ATTRIBUTES_VALID_S, .attr = attributes_of(inode)};
}

/* Tell the kernel of an inode by name; it holds it until it says FORGET. */
static struct fuse_entry_out introduced(Inode *inode) {
    disk_hold(inode);
    return (struct fuse_entry_out){
        .nodeid = inode == disk_root() ? FUSE_ROOT_ID : (uint64_t)(uintptr_t)inode,
        .attr_valid = ATTRIBUTES_VALID_S,
        .attr = attributes_of(inode),
    };
}

static void forget(uint64_t node, uint64_t lookups) {
    if (node != FUSE_ROOT_ID)
        disk_drop(inode_of(node), lookups);
}

static void begin(const struct fuse_init_in *in) {
    struct fuse_init_out out = {
        .major = FUSE_KERNEL_VERSION,
        .minor = FUSE_KERNEL_MINOR_VERSION,
        .max_readahead = in->max_readahead,
        .flags = in->flags & (FUSE_BIG_WRITES | FUSE_MAX_PAGES),
        .max_background = 16,
        .congestion_threshold = 12,
        .max_write = WRITE_MAX,
        .time_gran = 1,
        .max_pages = PAGES_MAX,
    };
    reply(request.head.unique, 0, &out, sizeof out);
}

static int look_up(Inode *directory, const char *name) {
    Inode *found = names_find(directory, name);
    if (found == NULL)
        return ENOENT;
    struct fuse_entry_out out = introduced(found);
    reply(request.head.unique, 0, &out, sizeof out);
    return 0;
}

static int make(Inode *directory, const char *name, uint32_t mode, bool opens) {
    if (names_find(directory, name))
        return EEXIST;
    Inode *made = disk_make(mode);
    names_add(directory, name, made);
    struct {
        struct fuse_entry_out entry;
        struct fuse_open_out open;
    } out = {.entry = introduced(made)};
    reply(request.head.unique, 0, &out, opens ? sizeof out : sizeof out.entry);
    return 0;
}

static int set_attributes(Inode *inode, const struct fuse_setattr_in *in) {
    int error = in->valid & FATTR_SIZE ? disk_resize(inode, in->size) : 0;
    if (error)
        return error;
    if (in->valid & FATTR_MODE)
        inode->mode = (inode->mode & S_IFMT) | (in->mode & 07777);
    struct fuse_attr_out out = told_of(inode);
    reply(request.head.unique, 0, &out, sizeof out);
    return 0;
}

static int read_file(Inode *file, const struct fuse_read_in *in) {
    if (in->flags & O_DIRECT && (in->offset % SECTOR || in->size % SECTOR))
        return EINVAL;
    reply(request.head.unique, 0, answer,
          disk_read(file, in->offset, in->size < WRITE_MAX ? in->size : WRITE_MAX, answer));
    return 0;
}

static int write_file(Inode *file, const struct fuse_write_in *in) {
    if (in->flags & O_DIRECT && (in->offset % SECTOR || in->size % SECTOR))
        return EINVAL;
    int error = disk_write(file, in->offset, in->size, (const char *)(in + 1));
    if (error)
        return error;
    if (in->flags & O_DSYNC) {
        power_wrote(request.head.pid, file, in->offset, in->offset + in->size);
        *(in->flags & O_DIRECT ? &counts.direct : &counts.synced) += 1;
    } else {
        counts.lazy++;
    }
    struct fuse_write_out out = {.size = in->size};
    reply(request.head.unique, 0, &out, sizeof out);
    return 0;
}

static int list(Inode *directory, const struct fuse_read_in *in) {
    size_t used = 0;
    for (uint64_t place = in->offset; place < directory->names.count; place++) {
        const Entry *entry = &directory->names.list[place];
        size_t length = strlen(entry->name);
        size_t size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
        if (used + size > in->size || used + size > sizeof answer)
            break;
        struct fuse_dirent *out = (struct fuse_dirent *)(answer + used);
        memset(out, 0, size);
        out->ino = entry->inode->number;
        out->off = place + 1;
        out->namelen = (uint32_t)length;
        out->type = (entry->inode->mode & S_IFMT) >> 12;
        memcpy(out->name, entry->name, length);
        used += size;
    }
    reply(request.head.unique, 0, answer, used);
    return 0;
}

static int tell_space(void) {
    struct statvfs found;
    if (statvfs(space_of, &found))
        return errno;
    struct fuse_statfs_out out = {.st = {
        .blocks = found.f_blocks, .bfree = found.f_bfree, .bavail = found.f_bavail,
        .files = found.f_files, .ffree = found.f_ffree, .bsize = (uint32_t)found.f_bsize,
        .namelen = 255, .frsize = (uint32_t)found.f_frsize}};
    reply(request.head.unique, 0, &out, sizeof out);
    return 0;
}

static int rename_to(Inode *directory, uint64_t target, const char *names, uint32_t flags) {
    const char *target_name = names + strlen(names) + 1;
    if (flags)
        return EINVAL;
    return names_move(directory, names, inode_of(target), target_name);
}

static int allocate(Inode *file, const struct fuse_fallocate_in *in) {
    if (in->mode)
        return EOPNOTSUPP;
    return in->offset + in->length > file->size ? disk_resize(file, in->offset + in->length) : 0;
}

static enum change change_of(uint32_t operation) {
    switch (operation) {
    case FUSE_MKDIR: case FUSE_UNLINK: case FUSE_RMDIR: case FUSE_RENAME: case FUSE_RENAME2:
    case FUSE_CREATE: case FUSE_FSYNCDIR:
        return NAMES;
    case FUSE_SETATTR: case FUSE_WRITE: case FUSE_FSYNC: case FUSE_FALLOCATE:
        return BYTES;
    }
    return NO_CHANGE;
}

/* Requests that are answered by an error alone; 0 is one, too. */
static int do_simply(Inode *inode, const void *in, bool *is_done) {
    *is_done = true;
    switch (request.head.opcode) {
    case FUSE_UNLINK: return names_remove(inode, in, false);
    case FUSE_RMDIR: return names_remove(inode, in, true);
    case FUSE_RENAME: {
        const struct fuse_rename_in *rename = in;
        return rename_to(inode, rename->newdir, (const char *)(rename + 1), 0);
    }
    case FUSE_RENAME2: {
        const struct fuse_rename2_in *rename = in;
        return rename_to(inode, rename->newdir, (const char *)(rename + 1), rename->flags);
    }
    case FUSE_FALLOCATE: return allocate(inode, in);
    case FUSE_RELEASE: case FUSE_RELEASEDIR: return 0;
    }
    *is_done = false;
    return ENOSYS;
}

/* Requests that are answered with data, or later; the caller answers an error. */
static int do_more(Inode *inode, const void *in) {
    switch (request.head.opcode) {
    case FUSE_LOOKUP: return look_up(inode, in);
    case FUSE_SETATTR: return set_attributes(inode, in);
    case FUSE_READ: return read_file(inode, in);
    case FUSE_WRITE: return write_file(inode, in);
    case FUSE_FSYNC: case FUSE_FSYNCDIR: {
        bool metadata = !(((const struct fuse_fsync_in *)in)->fsync_flags & FUSE_FSYNC_FDATASYNC);
        power_sync(request.head.unique, request.head.pid, inode, metadata);
        return 0;
    }
    case FUSE_READDIR: return list(inode, in);
    case FUSE_STATFS: return tell_space();
    case FUSE_MKDIR: {
        const struct fuse_mkdir_in *make_in = in;
        return make(inode, (const char *)(make_in + 1), S_IFDIR | (make_in->mode & 07777), false);
    }
    case FUSE_CREATE: {
        const struct fuse_create_in *make_in = in;
        return make(inode, (const char *)(make_in + 1), S_IFREG | (make_in->mode & 07777), true);
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = told_of(inode);
        reply(request.head.unique, 0, &out, sizeof out);
        return 0;
    }
    case FUSE_OPEN: case FUSE_OPENDIR: {
        /* Without FOPEN_KEEP_CACHE the kernel forgets what it had cached before a power cut. */
        struct fuse_open_out out = {0};
        reply(request.head.unique, 0, &out, sizeof out);
        return 0;
    }
    }
    return ENOSYS;
}

static void serve(void) {
    const void *in = request.bytes + sizeof request.head;
    switch (request.head.opcode) {
    case FUSE_INIT:
        begin(in);
        return;
    case FUSE_FORGET:
        forget(request.head.nodeid, ((const struct fuse_forget_in *)in)->nlookup);
        return;
    case FUSE_BATCH_FORGET: {
        const struct fuse_batch_forget_in *batch = in;
        const struct fuse_forget_one *one = (const void *)(batch + 1);
        for (uint32_t index = 0; index < batch->count; index++)
            forget(one[index].nodeid, one[index].nlookup);
        return;
    }
    case FUSE_INTERRUPT: case FUSE_DESTROY:
        return;
    }
    if (power_holds(request.head.unique, change_of(request.head.opcode)))
        return;
    bool is_done;
    int error = do_simply(inode_of(request.head.nodeid), in, &is_done);
    if (!is_done)
        error = do_more(inode_of(request.head.nodeid), in);
    if (error || is_done)
        answer_error(request.head.unique, error);
}

/* Serve until stdin ends, or the file system is unmounted by others. Commands come one at a time,
   each after the answer to the one before, so that none stays in the buffer of stdio. */
static void serve_all(void) {
    struct pollfd waits[] = {{device, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    for (;;) {
        int64_t next_ns = power_tick();
        struct timespec next = {next_ns / 1000000000, next_ns % 1000000000};
        if (ppoll(waits, 2, next_ns < 0 ? NULL : &next, NULL) < 0 && errno != EINTR)
            return;
        if (waits[1].revents && !power_obey())
            return;
        if (waits[0].revents) {
            ssize_t size = read(device, request.bytes, sizeof request.bytes);
            if (size < 0 && errno == ENODEV)
                return;
            if (size >= (ssize_t)sizeof request.head)
                serve();
        }
    }
}

int main(int argument_count, char **arguments) {
    if (argument_count < 4) {
        fputs("usage: forgetful MOUNTPOINT SEED FREE_BYTES_OF [lying]\n", stderr);
        return 2;
    }
    space_of = arguments[3];
    bool lies = argument_count > 4 && strcmp(arguments[4], "lying") == 0;
    power_begin(lies);
    disk_begin(strtoull(arguments[2], NULL, 10), lies);
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (device < 0) {
        perror("/dev/fuse");
        return 1;
    }
    char options[64];
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=0,group_id=0", device);
    if (mount("forgetful", arguments[1], "fuse.forgetful", MS_NOSUID | MS_NODEV, options)) {
        perror(arguments[1]);
        return 1;
    }
    puts("ready");
    serve_all();
    return umount2(arguments[1], MNT_DETACH) && errno != EINVAL;
}
