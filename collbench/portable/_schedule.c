/* The interpreter of portable schedules: one rank's operations, run in order through MPI function pointers.
 *
 * No mpi.h: handles are pointer-wide, requests have the size that the library says. Arguments are passed as
 * pointer-wide integers, as in collbench/mpi/_timed.c and on the same platforms.
 */
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if !(defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__) || defined(__powerpc64__) || defined(__riscv)))
#error "argument passing is only known to be right on 64-bit Linux"
#endif

/* Wider vectors where the processor has them, in the same build. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

typedef intptr_t W;

enum { RECEIVE, SEND, WAIT, COMBINE, COPY };

typedef struct {
    int64_t code, peer, target, left, right, bytes;
} Op;

/* The same fields, in the same order, as FIELDS in run.py. */
typedef struct {
    int64_t isend, irecv, waitall, comm, datatype, tag, itemsize, request_size, requests, statuses, ops, count, kind;
} State;

/* target = left op right; target is left or overlaps neither, right overlaps nothing. */
#define LOOPS(NAME, T, EXPR)                                                                                          \
    WIDE static void NAME##_into(T *restrict x, const T *restrict b, int64_t n) {                                     \
        for (int64_t i = 0; i < n; i++) {                                                                             \
            const T a = x[i], c = b[i];                                                                               \
            x[i] = EXPR;                                                                                              \
        }                                                                                                             \
    }                                                                                                                 \
    WIDE static void NAME##_from(T *restrict x, const T *restrict l, const T *restrict b, int64_t n) {                \
        for (int64_t i = 0; i < n; i++) {                                                                             \
            const T a = l[i], c = b[i];                                                                               \
            x[i] = EXPR;                                                                                              \
        }                                                                                                             \
    }                                                                                                                 \
    static void NAME(void *x, const void *l, const void *b, int64_t bytes) {                                          \
        const int64_t n = bytes / (int64_t)sizeof(T);                                                                 \
        if (x == l)                                                                                                   \
            NAME##_into(x, b, n);                                                                                     \
        else                                                                                                          \
            NAME##_from(x, l, b, n);                                                                                  \
    }

/* Integers wrap around: unsigned arithmetic, which C defines, gives the same bits. */
#define TYPE(NAME, T, U)                                                                                              \
    LOOPS(NAME##_sum, T, (T)((U)a + (U)c))                                                                            \
    LOOPS(NAME##_max, T, (a > c ? a : c))                                                                             \
    LOOPS(NAME##_min, T, (a < c ? a : c))                                                                             \
    LOOPS(NAME##_prod, T, (T)((U)a *(U)c))

TYPE(int32, int32_t, uint32_t)
TYPE(int64, int64_t, uint64_t)
TYPE(float32, float, float)
TYPE(float64, double, double)

typedef void (*Combine)(void *, const void *, const void *, int64_t);

/* kind = 4 · type + operator, in the order of TYPES and OPERATORS in run.py. */
static const Combine COMBINES[] = {
    int32_sum,   int32_max,   int32_min,   int32_prod,   int64_sum,   int64_max,   int64_min,   int64_prod,
    float32_sum, float32_max, float32_min, float32_prod, float64_sum, float64_max, float64_min, float64_prod,
};

static int run_schedule(void *pointer) {
    const State *s = pointer;
    const Op *op = (const Op *)s->ops, *end = op + s->count;
    typedef int (*Post)(W buffer, W count, W type, W peer, W tag, W comm, W request);
    const Post isend = (Post)s->isend, irecv = (Post)s->irecv;
    const Combine combine = COMBINES[s->kind];
    W request = (W)s->requests;
    int64_t posted = 0;
    int rc = 0;
    for (; op < end; op++) {
        switch (op->code) {
        case RECEIVE:
            rc = irecv((W)op->target, (W)(op->bytes / s->itemsize), (W)s->datatype, (W)op->peer, (W)s->tag, (W)s->comm,
                       request);
            request += (W)s->request_size;
            posted++;
            break;
        case SEND:
            rc = isend((W)op->left, (W)(op->bytes / s->itemsize), (W)s->datatype, (W)op->peer, (W)s->tag, (W)s->comm,
                       request);
            request += (W)s->request_size;
            posted++;
            break;
        case WAIT:
            if (posted) rc = ((int (*)(W, W, W))s->waitall)((W)posted, (W)s->requests, (W)s->statuses);
            request = (W)s->requests;
            posted = 0;
            break;
        case COMBINE:
            combine((void *)op->target, (const void *)op->left, (const void *)op->right, op->bytes);
            break;
        default:
            memcpy((void *)op->target, (const void *)op->left, (size_t)op->bytes);
        }
        if (rc != 0) return rc;
    }
    return 0;
}

static PyObject *address(PyObject *self, PyObject *none) {
    (void)self;
    (void)none;
    return PyLong_FromVoidPtr((void *)(uintptr_t)&run_schedule);
}

static PyMethodDef methods[] = {
    {"address", address, METH_NOARGS, "Address of int run(void *state), for the timed loop."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_schedule",
    .m_doc = "Runs portable schedules through MPI function pointers.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__schedule(void) { return PyModule_Create(&module); }
