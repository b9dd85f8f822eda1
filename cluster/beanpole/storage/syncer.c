/* One thread that writes and syncs, and never waits for Python's interpreter.
 *
 * A Python thread that comes back from the disk, or that is to begin a write, waits until the loop's
 * thread lets go of the interpreter: the disk stands still while the loop works. This thread needs
 * the interpreter for nothing. What is written, and where, is decided in wal.py; who uses this
 * thread, and what is done without it, in files.py. Its types are in _syncer.pyi. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum state { IDLE, ASKED, DONE, ENDED };

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum state state; /* guarded by lock, as all below are while a write is under way */
    int event_fd;     /* readable when a write is done */
    int fd;           /* a duplicate: the owner may close its file at any time */
    PyObject *data;
    const char *bytes;
    Py_ssize_t size;
    off_t offset;
    int error;
    int64_t took_us;
} Syncer;

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Write all of it with RWF_DSYNC; the system may take it in pieces. Returns errno. */
static int write_all(const Syncer *self) {
    Py_ssize_t written = 0;
    while (written < self->size) {
        struct iovec rest = {(void *)(self->bytes + written), (size_t)(self->size - written)};
        ssize_t count = pwritev2(self->fd, &rest, 1, self->offset + written, RWF_DSYNC);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno;
        written += count;
    }
    return 0;
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
        int error = write_all(self);
        int64_t took_us = now_us() - begin_us;
        close(self->fd);
        pthread_mutex_lock(&self->lock);
        self->error = error;
        self->took_us = took_us;
        self->state = DONE;
        /* Who is woken must not find the lock taken: that is two more switches of context. */
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
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    int error = pthread_create(&self->thread, NULL, serve, self);
    if (error != 0) {
        self->state = ENDED; /* there is no thread to end */
        Py_DECREF(self);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return (PyObject *)self;
}

static PyObject *syncer_begin(Syncer *self, PyObject *args) {
    int fd;
    PyObject *data;
    long long offset;
    if (!PyArg_ParseTuple(args, "iSL", &fd, &data, &offset))
        return NULL;
    pthread_mutex_lock(&self->lock);
    enum state state = self->state;
    pthread_mutex_unlock(&self->lock);
    if (state != IDLE)
        Py_RETURN_FALSE;
    int own_fd = dup(fd);
    if (own_fd < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_INCREF(data);
    pthread_mutex_lock(&self->lock);
    self->fd = own_fd;
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
    Py_RETURN_NONE;
}

static void syncer_dealloc(Syncer *self) {
    PyObject *ended = syncer_end(self, NULL);
    Py_XDECREF(ended);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef methods[] = {
    {"begin", (PyCFunction)syncer_begin, METH_VARARGS, "Begin a write; False if one is under way."},
    {"take", (PyCFunction)syncer_take, METH_NOARGS, "Return (errno, us) of a finished write."},
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
