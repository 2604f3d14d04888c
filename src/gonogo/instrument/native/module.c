/* gonogo.instrument._native: buffers of bits → partial sums, in the widest instruction set the chip has.
 *
 * Knows nothing of percentiles, dtypes or devices: gonogo.instrument.path_native turns arrays into buffers and
 * partial sums into results. Every call releases the GIL, so the caller may split an array over threads.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "gonogo.h"

#include <math.h>

static double table_e4m3fn[256], table_e5m2[256];

#define LARGEST(precision, exponent) ((2 - 1.0 / (1LL << ((precision)-1))) * exponent)

/* In the order of enum kind, which is the order of FORMATS in gonogo.formats. */
static const format FORMATS[] = {
    {KIND_F16, 16, 11, -14, 15, 1, 65504.0, 0x1p-14, 65520.0, 0x7bff, 0x7c00, NULL},
    {KIND_BF16, 16, 8, -126, 127, 1, LARGEST(8, 0x1p127), 0x1p-126, LARGEST(9, 0x1p127), 0x7f7f, 0x7f80, NULL},
    {KIND_F32, 32, 24, -126, 127, 1, LARGEST(24, 0x1p127), 0x1p-126, LARGEST(25, 0x1p127), 0x7f7fffff, 0x7f800000, NULL},
    {KIND_F64, 64, 53, -1022, 1023, 1, 0x1.fffffffffffffp1023, 0x1p-1022, INFINITY, 0x7fefffffffffffff,
     0x7ff0000000000000, NULL},
    {KIND_E4M3FN, 8, 4, -6, 8, 0, 448.0, 0x1p-6, 464.0, 0x7e, 0x7f, table_e4m3fn},
    {KIND_E5M2, 8, 3, -14, 15, 1, 57344.0, 0x1p-14, 61440.0, 0x7b, 0x7c, table_e5m2},
};
#define N_FORMATS ((int)(sizeof FORMATS / sizeof *FORMATS))

static void fill_table(const format *f, double *table) {
    const int fraction_bits = f->precision - 1;
    for (int pattern = 0; pattern < 256; pattern++) {
        int magnitude = pattern & 0x7f, exponent = magnitude >> fraction_bits;
        int significand = (magnitude & ((1 << fraction_bits) - 1)) + (exponent ? 1 << fraction_bits : 0);
        double value = ldexp(significand, (exponent ? exponent : 1) - 1 + f->min_exponent - fraction_bits);
        if (magnitude > f->largest_key)
            value = f->has_infinity && magnitude == f->overflow_key ? INFINITY : NAN;
        table[pattern] = pattern & 0x80 ? -value : value;
    }
}

typedef void (*scan_function)(const operand *, const operand *, int64_t, double, bracket *, scan_result *);
typedef void (*read_units_function)(const operand *, const operand *, int64_t, const unit *, int, double *);
typedef void (*read_function)(const operand *, const operand *, const operand *, int64_t, const unit *, read_result *);
typedef void (*moments_function)(const operand *, int64_t, double, moments_result *);
typedef void (*lose_function)(const double *, int64_t, int64_t, int64_t, int64_t, const double *, const double *, double *);

static const struct {
    const char *name;
    scan_function scan;
    read_function read;
    read_units_function read_units;
    moments_function moments;
    lose_function lose;
} ISAS[] = {
    {"portable", scan_portable, read_portable, read_units_portable, moments_portable, lose_portable},
#ifdef GONOGO_X86
    {"avx2", scan_avx2, read_avx2, read_units_avx2, moments_avx2, lose_avx2},
    {"avx512", scan_avx512, read_avx512, read_units_avx512, moments_avx512, lose_avx512},
#endif
};
static int n_isas = 1; /* how many of them this chip runs; set once at import */

static void find_isas(void) {
#ifdef GONOGO_X86
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c"))
        return;
    n_isas = 2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        n_isas = 3;
#endif
}

/* Round to nearest and keep subnormals whatever the process has set (torch.set_flush_denormal, say). */
#ifdef GONOGO_X86
#define ENTER_ARITHMETIC unsigned saved_csr = _mm_getcsr(); _mm_setcsr(0x1f80)
#define LEAVE_ARITHMETIC _mm_setcsr(saved_csr)
#else
#define ENTER_ARITHMETIC
#define LEAVE_ARITHMETIC
#endif

/* An operand over `buffer`, and its length; −1 with an exception set where that cannot be. */
static Py_ssize_t bind_operand(operand *x, int kind, const Py_buffer *buffer, int isa) {
    if (kind < 0 || kind >= N_FORMATS || isa < 0 || isa >= n_isas) {
        PyErr_Format(PyExc_ValueError, "no format %d or no instruction set %d", kind, isa);
        return -1;
    }
    x->format = &FORMATS[kind];
    x->data = buffer->buf;
    return buffer->len / (x->format->bits / 8);
}

static PyObject *py_isas(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    PyObject *names = PyList_New(0);
    for (int i = 0; names && i < n_isas; i++) {
        PyObject *name = PyUnicode_FromString(ISAS[i].name);
        if (!name || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *py_scan(PyObject *self, PyObject *args) {
    (void)self;
    int isa, kind_a, kind_e;
    double atol;
    Py_buffer a, e, values[BRACKETS];
    bracket b[BRACKETS];
    long long stride[BRACKETS];
    if (!PyArg_ParseTuple(args, "iiy*iy*d(ddLw*)(ddLw*)(ddLw*)", &isa, &kind_a, &a, &kind_e, &e, &atol, //
                          &b[0].low, &b[0].high, &stride[0], &values[0],                                //
                          &b[1].low, &b[1].high, &stride[1], &values[1],                                //
                          &b[2].low, &b[2].high, &stride[2], &values[2]))
        return NULL;
    PyObject *result = NULL;
    operand actual, expected;
    scan_result r = {0};
    Py_ssize_t n = bind_operand(&actual, kind_a, &a, isa), m = n < 0 ? -1 : bind_operand(&expected, kind_e, &e, isa);
    if (n >= 0 && m >= 0 && n != m)
        PyErr_Format(PyExc_ValueError, "%zd elements against %zd", n, m);
    else if (n >= 0 && m >= 0) {
        for (int k = 0; k < BRACKETS; k++) {
            b[k].stride = stride[k] > 0 ? stride[k] : 1;
            b[k].seen = 0;
            b[k].values = values[k].buf;
            b[k].capacity = values[k].len / (Py_ssize_t)sizeof(double);
        }
        Py_BEGIN_ALLOW_THREADS;
        ENTER_ARITHMETIC;
        ISAS[isa].scan(&actual, &expected, n, atol, b, &r);
        LEAVE_ARITHMETIC;
        Py_END_ALLOW_THREADS;
        result = Py_BuildValue("LddLddKdi(LLL)(LLL)(LLL)", (long long)r.exceeding, r.max_abs, r.sum_abs,
                               (long long)r.nonzero, r.max_rel, r.sum_rel, (unsigned long long)r.max_ulp, r.sum_ulp,
                               r.saturated,                                                              //
                               (long long)r.below_low[0], (long long)r.below_low[1], (long long)r.below_low[2],    //
                               (long long)r.below_high[0], (long long)r.below_high[1], (long long)r.below_high[2], //
                               (long long)r.kept[0], (long long)r.kept[1], (long long)r.kept[2]);
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&e);
    for (int k = 0; k < BRACKETS; k++)
        PyBuffer_Release(&values[k]);
    return result;
}

static PyObject *py_read(PyObject *self, PyObject *args) {
    (void)self;
    int isa, kind_a, kind_e, kind_s;
    Py_buffer a, e, s;
    unit u;
    /* An empty scale buffer says there is none. */
    if (!PyArg_ParseTuple(args, "iiy*iy*iy*(ddddp)", &isa, &kind_a, &a, &kind_e, &e, &kind_s, &s, &u.constant,
                          &u.per_magnitude, &u.per_ulp, &u.per_scale, &u.from_cell))
        return NULL;
    PyObject *result = NULL;
    operand actual, expected, scale;
    read_result r = {.index = -1, .bad_scale = -1};
    Py_ssize_t n = bind_operand(&actual, kind_a, &a, isa), m = n < 0 ? -1 : bind_operand(&expected, kind_e, &e, isa);
    Py_ssize_t l = m < 0 ? -1 : bind_operand(&scale, kind_s, &s, isa);
    if (l >= 0 && (n != m || (l && l != n)))
        PyErr_Format(PyExc_ValueError, "%zd elements against %zd, scale of %zd", n, m, l);
    else if (l >= 0) {
        if (l == 0)
            scale.data = NULL;
        Py_BEGIN_ALLOW_THREADS;
        ENTER_ARITHMETIC;
        ISAS[isa].read(&actual, &expected, &scale, n, &u, &r);
        LEAVE_ARITHMETIC;
        Py_END_ALLOW_THREADS;
        result = Py_BuildValue("dLdLL", r.worst, (long long)r.index, r.signed_sum, (long long)r.infinite,
                               (long long)r.bad_scale);
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&e);
    PyBuffer_Release(&s);
    return result;
}

static PyObject *py_read_units(PyObject *self, PyObject *args) {
    (void)self;
    int isa, kind_a, kind_e;
    Py_buffer a, e, numbers, worst;
    if (!PyArg_ParseTuple(args, "iiy*iy*y*w*", &isa, &kind_a, &a, &kind_e, &e, &numbers, &worst))
        return NULL;
    PyObject *result = NULL;
    operand actual, expected;
    unit units[MOST_UNITS];
    const Py_ssize_t count = worst.len / (Py_ssize_t)sizeof(double);
    Py_ssize_t n = bind_operand(&actual, kind_a, &a, isa), m = n < 0 ? -1 : bind_operand(&expected, kind_e, &e, isa);
    if (m >= 0 && (n != m || count > MOST_UNITS || numbers.len != 3 * worst.len))
        PyErr_Format(PyExc_ValueError, "%zd elements against %zd in %zd units, of which %d fit", n, m, count, MOST_UNITS);
    else if (m >= 0) {
        const double *given = numbers.buf;
        for (Py_ssize_t k = 0; k < count; k++)
            units[k] = (unit){given[3 * k], given[3 * k + 1], given[3 * k + 2], 0, 0};
        Py_BEGIN_ALLOW_THREADS;
        ENTER_ARITHMETIC;
        ISAS[isa].read_units(&actual, &expected, n, units, (int)count, worst.buf);
        LEAVE_ARITHMETIC;
        Py_END_ALLOW_THREADS;
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&e);
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&worst);
    return result;
}

static PyObject *py_moments(PyObject *self, PyObject *args) {
    (void)self;
    int isa, kind;
    double factor;
    Py_buffer x;
    if (!PyArg_ParseTuple(args, "iiy*d", &isa, &kind, &x, &factor))
        return NULL;
    PyObject *result = NULL;
    operand values;
    moments_result r = {0};
    Py_ssize_t n = bind_operand(&values, kind, &x, isa);
    if (n >= 0) {
        Py_BEGIN_ALLOW_THREADS;
        ENTER_ARITHMETIC;
        ISAS[isa].moments(&values, n, factor, &r);
        LEAVE_ARITHMETIC;
        Py_END_ALLOW_THREADS;
        result = Py_BuildValue("ddL", r.largest, r.squares, (long long)r.finite);
    }
    PyBuffer_Release(&x);
    return result;
}

static PyObject *py_lose(PyObject *self, PyObject *args) {
    (void)self;
    int isa;
    long long length, part, first, last;
    Py_buffer x, steps, swamp, sums;
    if (!PyArg_ParseTuple(args, "iy*LLLLy*y*w*", &isa, &x, &length, &part, &first, &last, &steps, &swamp, &sums))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t size = (Py_ssize_t)sizeof(double), rows = swamp.len / size;
    const long long parts = part > 0 ? (length + part - 1) / part : 0;
    if (isa < 0 || isa >= n_isas || parts < 1 || first < 0 || last < first || last > rows * parts ||
        x.len != rows * length * size || steps.len != rows * LOSE_STEPS * size ||
        sums.len != rows * parts * (LOSE_STEPS + 1) * size)
        PyErr_SetString(PyExc_ValueError, "rows, parts and sums do not belong together");
    else {
        Py_BEGIN_ALLOW_THREADS;
        ENTER_ARITHMETIC;
        ISAS[isa].lose(x.buf, length, part, first, last, steps.buf, swamp.buf, sums.buf);
        LEAVE_ARITHMETIC;
        Py_END_ALLOW_THREADS;
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&x);
    PyBuffer_Release(&steps);
    PyBuffer_Release(&swamp);
    PyBuffer_Release(&sums);
    return result;
}

static PyObject *py_sort(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer values, scratch;
    if (!PyArg_ParseTuple(args, "w*w*", &values, &scratch))
        return NULL;
    PyObject *result = NULL;
    if (scratch.len < values.len)
        PyErr_Format(PyExc_ValueError, "%zd bytes to sort and %zd to do it in", values.len, scratch.len);
    else {
        Py_BEGIN_ALLOW_THREADS;
        sort_keys(values.buf, scratch.buf, values.len / (Py_ssize_t)sizeof(double));
        Py_END_ALLOW_THREADS;
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&scratch);
    return result;
}

static PyObject *py_select(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer values, scratch, ranks, out;
    if (!PyArg_ParseTuple(args, "y*w*y*w*", &values, &scratch, &ranks, &out))
        return NULL;
    PyObject *result = NULL;
    const int64_t *rank = ranks.buf, n = values.len / (Py_ssize_t)sizeof(double);
    const int n_ranks = (int)(ranks.len / (Py_ssize_t)sizeof(int64_t));
    int fits = scratch.len >= 2 * values.len && out.len == ranks.len;
    for (int r = 0; r < n_ranks; r++)
        fits &= rank[r] >= (r ? rank[r - 1] : 0) && rank[r] < n;
    if (!fits)
        PyErr_Format(PyExc_ValueError, "ranks must ascend below %lld, with room for twice as many", (long long)n);
    else {
        Py_BEGIN_ALLOW_THREADS;
        select_keys(values.buf, scratch.buf, n, rank, n_ranks, out.buf);
        Py_END_ALLOW_THREADS;
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&scratch);
    PyBuffer_Release(&ranks);
    PyBuffer_Release(&out);
    return result;
}

static PyMethodDef METHODS[] = {
    {"isas", py_isas, METH_NOARGS, "Names of the instruction sets this chip runs, narrowest first."},
    {"scan", py_scan, METH_VARARGS, "Partial ErrorStats of two buffers, and what falls into three brackets."},
    {"read_units", py_read_units, METH_VARARGS, "Worst error of two buffers in each of several units, put into the last."},
    {"read", py_read, METH_VARARGS, "Worst error of two buffers in a gauge's unit, where, and the signed sum."},
    {"moments", py_moments, METH_VARARGS, "Largest finite magnitude, sum of squares and count of finite values."},
    {"lose", py_lose, METH_VARARGS, "What sums lose of their terms by rounding to steps, part by part of each row."},
    {"sort", py_sort, METH_VARARGS, "Sort float64 values ≥ 0 in place, with as much scratch."},
    {"select", py_select, METH_VARARGS, "The float64 values ≥ 0 at ascending ranks, with twice as much scratch."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_native", "Partial sums over buffers of floating-point bits.", -1, METHODS, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
    find_isas();
    fill_table(&FORMATS[KIND_E4M3FN], table_e4m3fn);
    fill_table(&FORMATS[KIND_E5M2], table_e5m2);
    return PyModule_Create(&MODULE);
}
