/* One thread that writes and syncs, and never waits for Python's interpreter.
 *
 * A Python thread that returns from the disk, or is about to write, waits until the loop's thread
 * releases the interpreter: the disk is idle while the loop works. This thread never needs the
 * interpreter. wal.py decides what is written and where; files.py uses this thread, and does the
 * same without it where it is missing. Its types are in _syncer.pyi.
 *
 * It writes whole blocks past the cache of the system (O_DIRECT) where the file system lets it:
 * half of the processor time and two thirds of the wait (47 and 108 us by way of the cache, 24 and
 * 74 us here). The bytes before them in the first block are written again as they are, and
 * zeros are written behind them up to the end of the last block. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Alignment of O_DIRECT writes on all current disks. */
#define BLOCK 4096
/* Larger writes go through the cache: there a copy more would cost what the cache does. */
#define DIRECT_BYTES_MAX (64 * BLOCK)

enum state { IDLE, ASKED, DONE, ENDED };

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum state state; /* guarded by lock, as all below are while a write is under way */
    int event_fd;     /* readable when a write is done */
    PyObject *data;
    const char *bytes;
    Py_ssize_t size;
    off_t offset;
    int cached_fd; /* a duplicate, for one write through the cache; -1 for a direct one */
    int error;
    int64_t took_us;
    /* The newest file. Held open for direct writes even if the owner closes its descriptor. */
    int followed; /* there is one */
    int direct_fd; /* -1 if it takes none */
    dev_t device;
    ino_t inode;
    int refused;   /* its file system takes no direct writes */
    char *blocks;  /* DIRECT_BYTES_MAX, aligned: the newest direct write */
    off_t end;     /* its end, so that its last block is known; -1 if it is not */
    size_t filled; /* bytes of `blocks` that it used */
} Syncer;

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Write all of it with RWF_DSYNC; the system may take it in pieces. Returns errno. */
static int write_all(int fd, const char *bytes, size_t size, off_t offset) {
    size_t written = 0;
    while (written < size) {
        struct iovec rest = {(void *)(bytes + written), size - written};
        ssize_t count = pwritev2(fd, &rest, 1, offset + (off_t)written, RWF_DSYNC);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno;
        written += (size_t)count;
    }
    return 0;
}

/* How many bytes of whole blocks a write touches. */
static size_t blocks_of(off_t offset, Py_ssize_t size) {
    size_t head = (size_t)offset % BLOCK;
    return (head + (size_t)size + BLOCK - 1) / BLOCK * BLOCK;
}

/* Let `blocks` begin with what the file has in the first block before the offset. Returns errno. */
static int load_head(Syncer *self, size_t head) {
    if (head == 0)
        return 0;
    if (self->end == self->offset) {
        memmove(self->blocks, self->blocks + self->filled - BLOCK, head);
        return 0;
    }
    ssize_t count = pread(self->direct_fd, self->blocks, BLOCK, self->offset - (off_t)head);
    if (count < 0)
        return errno;
    return (size_t)count < head ? EIO : 0;
}

/* Write whole blocks. Returns errno. */
static int write_direct(Syncer *self) {
    size_t head = (size_t)self->offset % BLOCK;
    size_t used = head + (size_t)self->size;
    size_t total = blocks_of(self->offset, self->size);
    int error = load_head(self, head);
    self->end = -1;
    if (error != 0)
        return error;
    memcpy(self->blocks + head, self->bytes, (size_t)self->size);
    memset(self->blocks + used, 0, total - used);
    error = write_all(self->direct_fd, self->blocks, total, self->offset - (off_t)head);
    if (error == 0) {
        self->end = self->offset + self->size;
        self->filled = total;
    }
    return error;
}

/* Do the write that was asked for. Returns errno. */
static int write_asked(Syncer *self) {
    int error;
    if (self->cached_fd < 0) {
        error = write_direct(self);
        if (error != EINVAL && error != EOPNOTSUPP)
            return error;
        /* It is open for direct writes and takes none, or wants other blocks. */
        self->refused = 1;
        int flags = fcntl(self->direct_fd, F_GETFL);
        if (flags < 0 || fcntl(self->direct_fd, F_SETFL, flags & ~O_DIRECT) < 0)
            return errno;
        return write_all(self->direct_fd, self->bytes, (size_t)self->size, self->offset);
    }
    self->end = -1;
    error = write_all(self->cached_fd, self->bytes, (size_t)self->size, self->offset);
    close(self->cached_fd);
    return error;
}

static void *serve(void *argument) {
    Syncer *self = argument;
    pthread_mutex_lock(&self->lock);
    for (;;) {
        while (self->state != ASKED && self->state != ENDED)
            pthread_cond_wait(&self->changed, &self->lock);
        if (self->state == ENDED)
            break;
        pthread_mutex_unlock(&self->lock);
        int64_t begin_us = now_us();
        int error = write_asked(self);
        int64_t took_us = now_us() - begin_us;
        pthread_mutex_lock(&self->lock);
        self->error = error;
        self->took_us = took_us;
        self->state = DONE;
        /* Unlock before the signal: otherwise the woken thread blocks on the lock, two more
         * context switches. */
        pthread_mutex_unlock(&self->lock);
        eventfd_write(self->event_fd, 1);
        pthread_mutex_lock(&self->lock);
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

static PyObject *syncer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    int event_fd;
    if (!PyArg_ParseTuple(args, "i", &event_fd))
        return NULL;
    Syncer *self = (Syncer *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->state = IDLE;
    self->event_fd = event_fd;
    self->direct_fd = -1;
    self->end = -1;
    void *blocks = NULL;
    if (posix_memalign(&blocks, BLOCK, DIRECT_BYTES_MAX) != 0) {
        self->state = ENDED; /* there is no thread to end */
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->blocks = blocks;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    int error = pthread_create(&self->thread, NULL, serve, self);
    if (error != 0) {
        self->state = ENDED;
        Py_DECREF(self);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return (PyObject *)self;
}

/* Make `direct_fd` refer to this file. Called while nothing is being written. Returns errno. */
static int follow(Syncer *self, int fd) {
    struct stat found;
    if (fstat(fd, &found) < 0)
        return errno;
    if (self->followed && found.st_dev == self->device && found.st_ino == self->inode)
        return 0;
    if (self->direct_fd >= 0)
        close(self->direct_fd);
    self->direct_fd = -1;
    self->end = -1;
    self->refused = 1;
    self->followed = 1;
    self->device = found.st_dev;
    self->inode = found.st_ino;
    int flags = fcntl(fd, F_GETFL);
    if (!S_ISREG(found.st_mode) || flags < 0 || (flags & O_ACCMODE) != O_RDWR)
        return 0;
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    self->direct_fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    self->refused = self->direct_fd < 0;
    return 0;
}

static PyObject *syncer_begin(Syncer *self, PyObject *args) {
    int fd;
    PyObject *data;
    long long offset, room;
    if (!PyArg_ParseTuple(args, "iSLL", &fd, &data, &offset, &room))
        return NULL;
    pthread_mutex_lock(&self->lock);
    enum state state = self->state;
    pthread_mutex_unlock(&self->lock);
    if (state != IDLE)
        Py_RETURN_FALSE;
    int error = follow(self, fd);
    if (error != 0) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    size_t total = blocks_of((off_t)offset, PyBytes_GET_SIZE(data));
    int cached_fd = -1;
    long long end = offset / BLOCK * BLOCK + (long long)total;
    if (self->refused || total > DIRECT_BYTES_MAX || end > room) {
        cached_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (cached_fd < 0)
            return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_INCREF(data);
    pthread_mutex_lock(&self->lock);
    self->cached_fd = cached_fd;
    self->data = data;
    self->bytes = PyBytes_AS_STRING(data);
    self->size = PyBytes_GET_SIZE(data);
    self->offset = (off_t)offset;
    self->state = ASKED;
    pthread_mutex_unlock(&self->lock);
    pthread_cond_broadcast(&self->changed);
    Py_RETURN_TRUE;
}

static PyObject *syncer_take(Syncer *self, PyObject *Py_UNUSED(ignored)) {
    pthread_mutex_lock(&self->lock);
    if (self->state != DONE) {
        pthread_mutex_unlock(&self->lock);
        Py_RETURN_NONE;
    }
    self->state = IDLE;
    int error = self->error;
    long long took_us = self->took_us;
    PyObject *data = self->data;
    self->data = NULL;
    pthread_mutex_unlock(&self->lock);
    Py_DECREF(data);
    return Py_BuildValue("iL", error, took_us);
}

static PyObject *syncer_settle(Syncer *self, PyObject *Py_UNUSED(ignored)) {
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->lock);
    while (self->state == ASKED)
        pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *syncer_end(Syncer *self, PyObject *Py_UNUSED(ignored)) {
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->lock);
    while (self->state == ASKED)
        pthread_cond_wait(&self->changed, &self->lock);
    int ends = self->state != ENDED;
    self->state = ENDED;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    if (ends)
        pthread_join(self->thread, NULL);
    Py_END_ALLOW_THREADS
    Py_CLEAR(self->data);
    if (self->direct_fd >= 0)
        close(self->direct_fd);
    self->direct_fd = -1;
    Py_RETURN_NONE;
}

static void syncer_dealloc(Syncer *self) {
    PyObject *ended = syncer_end(self, NULL);
    Py_XDECREF(ended);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    free(self->blocks);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef methods[] = {
    {"begin", (PyCFunction)syncer_begin, METH_VARARGS, "Begin a write; False if one is under way."},
    {"take", (PyCFunction)syncer_take, METH_NOARGS, "Return (errno, us) of a finished write."},
    {"settle", (PyCFunction)syncer_settle, METH_NOARGS, "Wait for the write that is under way."},
    {"end", (PyCFunction)syncer_end, METH_NOARGS, "Finish what is under way and end the thread."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "beanpole.storage._syncer.Syncer",
    .tp_basicsize = sizeof(Syncer),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A thread that writes and syncs.",
    .tp_new = syncer_new,
    .tp_dealloc = (destructor)syncer_dealloc,
    .tp_methods = methods,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "beanpole.storage._syncer", .m_size = -1};

PyMODINIT_FUNC PyInit__syncer(void) {
    if (PyType_Ready(&type) < 0)
        return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL || PyModule_AddObjectRef(made, "Syncer", (PyObject *)&type) < 0)
        return NULL;
    return made;
}
