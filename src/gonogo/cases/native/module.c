/* gonogo.cases._native: a key and a place in Philox's stream → words, or uniform or normal numbers, into a buffer.
 *
 * What gonogo.cases.stream makes with NumPy, to the bit, without arrays in between. Every call releases the GIL: what
 * is drawn ahead of a GPU does not hold up the thread that launches kernels.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <stdint.h>
#include <string.h>

#ifndef __SIZEOF_INT128__
#error "products of 128 bits are needed; without this extension NumPy draws"
#endif

enum { BLOCK = 1024 }; /* numbers made at a time, so that their words stay in the nearest cache */
static const uint64_t LANES = 0x0000ffff0000ffff;

typedef struct {
    uint64_t key[2];
    uint64_t at; /* words drawn before */
} stream;

static inline uint64_t multiply(uint64_t a, uint64_t b, uint64_t *high) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
}

/* Philox 4x64 with ten rounds (Salmon et al., 2011): the four words of a counter, which NumPy begins at 1. */
static inline void make_words(const uint64_t key[2], uint64_t counter, uint64_t out[4]) {
    uint64_t a = counter, b = 0, c = 0, d = 0, k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t high_a, high_c;
        const uint64_t low_a = multiply(0xd2e7470ee14c6c93, a, &high_a), low_c = multiply(0xca5a826395121157, c, &high_c);
        a = high_c ^ b ^ k0, b = low_c, c = high_a ^ d ^ k1, d = low_a;
        k0 += 0x9e3779b97f4a7c15, k1 += 0xbb67ae8584caa73b;
    }
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}

static void draw_words(stream *s, int64_t count, uint64_t *out) {
    while (count > 0) {
        const int64_t skipped = s->at % 4, taken = count < 4 - skipped ? count : 4 - skipped;
        uint64_t four[4];
        make_words(s->key, s->at / 4 + 1, four);
        memcpy(out, four + skipped, (size_t)taken * sizeof *out);
        s->at += taken, out += taken, count -= taken;
    }
}

static inline double to_unit(uint64_t word) { return (double)(int64_t)(word >> 11) * 0x1p-53; }

static void draw_uniform(stream *s, int64_t count, double *out) {
    uint64_t words[BLOCK];
    for (int64_t start = 0; start < count; start += BLOCK) {
        const int64_t n = count - start < BLOCK ? count - start : BLOCK;
        draw_words(s, n, words);
        for (int64_t i = 0; i < n; i++)
            out[start + i] = to_unit(words[i]);
    }
}

/* Four stretches of the stream, each as long as all numbers: twelve numbers of 16 bits from three, 53 bits from one. */
static void draw_normal(stream *s, int64_t count, double *out) {
    uint64_t words[BLOCK], pairs[BLOCK];
    stream stretch[4];
    for (int k = 0; k < 4; k++) {
        stretch[k] = *s;
        stretch[k].at += (uint64_t)(k * count);
    }
    for (int64_t start = 0; start < count; start += BLOCK) {
        const int64_t n = count - start < BLOCK ? count - start : BLOCK;
        memset(pairs, 0, sizeof pairs);
        for (int k = 0; k < 3; k++) {
            draw_words(&stretch[k], n, words);
            for (int64_t i = 0; i < n; i++)
                pairs[i] += (words[i] & LANES) + (words[i] >> 16 & LANES);
        }
        draw_words(&stretch[3], n, words);
        for (int64_t i = 0; i < n; i++) {
            const double total = (double)(int64_t)((pairs[i] & 0xffffffff) + (pairs[i] >> 32));
            out[start + i] = (total + to_unit(words[i])) * 0x1p-16 - 6.0;
        }
    }
    s->at += (uint64_t)(4 * count);
}

enum kind { WORDS, UNIFORM, NORMAL };

static PyObject *draw(PyObject *args, enum kind kind) {
    Py_buffer key, out;
    unsigned long long at;
    if (!PyArg_ParseTuple(args, "y*Kw*", &key, &at, &out))
        return NULL;
    PyObject *result = NULL;
    stream s = {.at = at};
    if (key.len != sizeof s.key)
        PyErr_Format(PyExc_ValueError, "a key of %zd bytes, not %zd", key.len, sizeof s.key);
    else if (out.len % 8 || (uintptr_t)out.buf % 8)
        PyErr_SetString(PyExc_ValueError, "a buffer that is not of words of 64 bits");
    else {
        const unsigned char *bytes = key.buf;
        for (int i = 15; i >= 0; i--) /* little-endian, on every machine */
            s.key[i / 8] = s.key[i / 8] << 8 | bytes[i];
        const int64_t count = out.len / 8;
        Py_BEGIN_ALLOW_THREADS;
        if (kind == WORDS)
            draw_words(&s, count, out.buf);
        else if (kind == UNIFORM)
            draw_uniform(&s, count, out.buf);
        else
            draw_normal(&s, count, out.buf);
        Py_END_ALLOW_THREADS;
        result = PyLong_FromUnsignedLongLong(s.at);
    }
    PyBuffer_Release(&key);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *py_words(PyObject *self, PyObject *args) { return (void)self, draw(args, WORDS); }
static PyObject *py_uniform(PyObject *self, PyObject *args) { return (void)self, draw(args, UNIFORM); }
static PyObject *py_normal(PyObject *self, PyObject *args) { return (void)self, draw(args, NORMAL); }

static PyMethodDef METHODS[] = {
    {"words", py_words, METH_VARARGS, "Fill a buffer with random words; the place in the stream behind them."},
    {"uniform", py_uniform, METH_VARARGS, "The same with float64 numbers in [0, 1)."},
    {"normal", py_normal, METH_VARARGS, "The same with float64 numbers that are about normal."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_native", "Random numbers by Philox, into buffers.", -1, METHODS, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&MODULE); }
