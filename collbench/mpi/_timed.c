/* The timed loop, without mpi.h: function pointers and pointer-wide handles are handed in, so one build serves
 * every MPI library. Between the first and the last stamp of a block no Python runs: the interpreter lock is held
 * and nothing of Python is called.
 *
 * Every argument is passed as a pointer-wide integer. A callee that takes a 32-bit int or handle reads the low half
 * of the register or of the 8-byte stack slot: true for System V x86-64 and for AAPCS64 on Linux, formally outside
 * the C standard. setup refuses other platforms by leaving the extension out (see platform_ok below).
 */
#define _GNU_SOURCE
#include <Python.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if !(defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__) || defined(__powerpc64__) || defined(__riscv)))
#error "argument passing is only known to be right on 64-bit Linux; the mpi4py loop takes over"
#endif

typedef intptr_t W;
enum { MAX_ARGS = 12, SYNC_NONE = 0, SYNC_CALLS = 1, SYNC_WINDOW = 2 };

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int call(W fn, int n, const W *a) {
    switch (n) {
    case 1: return ((int (*)(W))fn)(a[0]);
    case 5: return ((int (*)(W, W, W, W, W))fn)(a[0], a[1], a[2], a[3], a[4]);
    case 6: return ((int (*)(W, W, W, W, W, W))fn)(a[0], a[1], a[2], a[3], a[4], a[5]);
    case 7: return ((int (*)(W, W, W, W, W, W, W))fn)(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
    case 8: return ((int (*)(W, W, W, W, W, W, W, W))fn)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
    case 9:
        return ((int (*)(W, W, W, W, W, W, W, W, W))fn)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
    default:
        return ((int (*)(W, W, W, W, W, W, W, W, W, W, W, W))fn)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7],
                                                                a[8], a[9], a[10], a[11]);
    }
}

static int known_arity(int n) { return n == 1 || (n >= 5 && n <= 9) || n == MAX_ARGS; }

typedef struct {
    W fn, sync_fn;
    const W *args, *sync_args;
    int64_t base_ns, window_ns, *start, *end;
    Py_ssize_t iterations, sets, first, sync_calls;
    uint8_t *late;
    int arity, sync_arity, sync;
} Job;

/* Run the block; returns the number of finished iterations and the code of the call that failed (0 = none). */
static Py_ssize_t run(const Job *job, int *code) {
    const Job j = *job;
    Py_ssize_t set = j.first % j.sets;
    for (Py_ssize_t i = 0; i < j.iterations; i++) {
        const W *a = j.args + set * j.arity;
        if (++set == j.sets) set = 0;
        if (j.sync == SYNC_CALLS) {
            for (Py_ssize_t k = 0; k < j.sync_calls; k++)
                if ((*code = call(j.sync_fn, j.sync_arity, j.sync_args + k * j.sync_arity)) != 0) return i;
        } else if (j.sync == SYNC_WINDOW) {
            const int64_t target = j.base_ns + i * j.window_ns;
            int64_t t = now_ns();
            j.late[i] = t > target;
            while (t < target) t = now_ns();
        }
        const int64_t start = now_ns();
        const int rc = call(j.fn, j.arity, a);
        const int64_t end = now_ns();
        j.start[i] = start;
        j.end[i] = end;
        if (rc != 0) {
            *code = rc;
            return i;
        }
    }
    *code = 0;
    return j.iterations;
}

static int big_enough(const Py_buffer *view, Py_ssize_t bytes, const char *name) {
    if (view->len >= bytes) return 1;
    PyErr_Format(PyExc_ValueError, "the array %s holds %zd bytes but %zd are needed", name, view->len, bytes);
    return 0;
}

static PyObject *block(PyObject *self, PyObject *args) {
    (void)self;
    Job job;
    memset(&job, 0, sizeof job);
    Py_buffer sets, sync_sets, start, end, late;
    long long fn, sync_fn, base, window;
    if (!PyArg_ParseTuple(args, "Liy*nniLiy*LLw*w*w*", &fn, &job.arity, &sets, &job.iterations, &job.first, &job.sync,
                          &sync_fn, &job.sync_arity, &sync_sets, &base, &window, &start, &end, &late))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t stamps = job.iterations * (Py_ssize_t)sizeof(int64_t);
    if (!known_arity(job.arity) || (job.sync == SYNC_CALLS && !known_arity(job.sync_arity))) {
        PyErr_Format(PyExc_ValueError, "no call takes %d arguments", known_arity(job.arity) ? job.sync_arity : job.arity);
    } else if (job.iterations < 0 || job.first < 0) {
        PyErr_SetString(PyExc_ValueError, "iterations and first must not be negative");
    } else if (big_enough(&sets, job.arity * (Py_ssize_t)sizeof(W), "args") && big_enough(&start, stamps, "start") &&
               big_enough(&end, stamps, "end") && big_enough(&late, job.iterations, "late")) {
        int code = 0;
        job.fn = (W)fn;
        job.sync_fn = (W)sync_fn;
        job.sync_args = sync_sets.buf;
        job.sync_calls = job.sync == SYNC_CALLS ? sync_sets.len / (job.sync_arity * (Py_ssize_t)sizeof(W)) : 0;
        job.base_ns = base;
        job.window_ns = window;
        job.args = sets.buf;
        job.sets = sets.len / (job.arity * (Py_ssize_t)sizeof(W));
        job.start = start.buf;
        job.end = end.buf;
        job.late = late.buf;
        const Py_ssize_t done = run(&job, &code);
        result = PyErr_Occurred() ? NULL : Py_BuildValue("(ni)", done, code);
    }
    PyBuffer_Release(&sets);
    PyBuffer_Release(&sync_sets);
    PyBuffer_Release(&start);
    PyBuffer_Release(&end);
    PyBuffer_Release(&late);
    return result;
}

static PyObject *monotonic_ns(PyObject *self, PyObject *none) {
    (void)self;
    (void)none;
    return PyLong_FromLongLong(now_ns());
}

static PyObject *clock_step_ns(PyObject *self, PyObject *none) {
    (void)self;
    (void)none;
    int64_t least = INT64_MAX;
    for (int i = 0; i < 2000; i++) {
        const int64_t a = now_ns();
        int64_t b = a;
        while (b == a) b = now_ns();
        if (b - a < least) least = b - a;
    }
    return PyLong_FromLongLong(least);
}

/* --- the probe: one cache line bounced between two pinned threads, and memory copy ------------------------------ */

typedef struct {
    _Alignas(128) atomic_int turn;
    _Alignas(128) atomic_int stop;
    int cpu[2];
    int64_t bounces, elapsed_ns, limit_ns;
} Bounce;

typedef struct {
    Bounce *shared;
    int me;
} Player;

static void *play(void *argument) {
    Player *player = argument;
    Bounce *b = player->shared;
    const int me = player->me;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(b->cpu[me], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    int64_t bounces = 0, start = 0;
    for (;;) {
        while (atomic_load_explicit(&b->turn, memory_order_acquire) != me)
            if (atomic_load_explicit(&b->stop, memory_order_relaxed)) return NULL;
        if (me == 0) {
            /* The first exchanges wait for the other thread to start: leave them out. */
            if (++bounces == 64) start = now_ns();
            if (bounces > 64 && bounces % 64 == 0 && now_ns() - start > b->limit_ns) {
                b->elapsed_ns = now_ns() - start;
                b->bounces = 2 * (bounces - 64);
                atomic_store(&b->stop, 1);
                return NULL;
            }
        }
        atomic_store_explicit(&b->turn, !me, memory_order_release);
    }
}

static PyObject *pingpong_ns(PyObject *self, PyObject *args) {
    (void)self;
    Bounce b;
    memset(&b, 0, sizeof b);
    double seconds;
    if (!PyArg_ParseTuple(args, "iid", &b.cpu[0], &b.cpu[1], &seconds)) return NULL;
    b.limit_ns = (int64_t)(seconds * 1e9);
    pthread_t threads[2];
    Player players[2] = {{&b, 0}, {&b, 1}};
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = pthread_create(&threads[1], NULL, play, &players[1]);
    if (!failed) {
        failed = pthread_create(&threads[0], NULL, play, &players[0]);
        if (failed)
            atomic_store(&b.stop, 1);
        else
            pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
    }
    Py_END_ALLOW_THREADS
    if (failed || b.bounces == 0) {
        PyErr_SetString(PyExc_OSError, "cannot start two threads for the probe");
        return NULL;
    }
    return PyFloat_FromDouble((double)b.elapsed_ns / (double)b.bounces);
}

static PyObject *copy_gbs(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer target, source;
    int rounds;
    if (!PyArg_ParseTuple(args, "w*y*i", &target, &source, &rounds)) return NULL;
    const size_t bytes = (size_t)(target.len < source.len ? target.len : source.len);
    int64_t best = INT64_MAX;
    for (int i = 0; i < rounds; i++) {
        const int64_t start = now_ns();
        memcpy(target.buf, source.buf, bytes);
        const int64_t took = now_ns() - start;
        if (took < best) best = took;
    }
    PyBuffer_Release(&target);
    PyBuffer_Release(&source);
    return PyFloat_FromDouble((double)bytes / (double)(best > 0 ? best : 1));
}

static PyMethodDef methods[] = {
    {"block", block, METH_VARARGS,
     "block(fn, arity, args, iterations, first, sync, sync_fn, sync_arity, sync_args, base_ns, window_ns, start, end, late)\n"
     "-> (finished iterations, code of the call that failed or 0); stamps in CLOCK_MONOTONIC nanoseconds."},
    {"monotonic_ns", monotonic_ns, METH_NOARGS, "CLOCK_MONOTONIC in nanoseconds."},
    {"clock_step_ns", clock_step_ns, METH_NOARGS, "Least difference between two readings of the clock that differ."},
    {"pingpong_ns", pingpong_ns, METH_VARARGS,
     "pingpong_ns(cpu_a, cpu_b, seconds) -> nanoseconds for one hand-over of a cache line between two pinned threads."},
    {"copy_gbs", copy_gbs, METH_VARARGS, "copy_gbs(target, source, rounds) -> best memory copy, 1e9 bytes a second."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_timed",
    .m_doc = "Timed loop over MPI function pointers, and the machine probe.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__timed(void) { return PyModule_Create(&module); }
