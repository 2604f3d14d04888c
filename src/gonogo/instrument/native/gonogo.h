/* What the instruction-set bodies and the Python module share: formats, operands, brackets, results. */
#ifndef GONOGO_H
#define GONOGO_H

#include <stdint.h>
#include <stdlib.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define GONOGO_X86 1
#include <immintrin.h>
#endif

#define BRACKETS 3
#define LOSE_STEPS 6 /* STEPS in gonogo.instrument.running_error.terms; a multiple of 3 */

enum kind { KIND_F16, KIND_BF16, KIND_F32, KIND_F64, KIND_E4M3FN, KIND_E5M2 };

typedef struct {
    enum kind kind;
    int bits, precision, min_exponent, max_exponent, has_infinity;
    double largest, smallest_normal, overflow_threshold;
    int64_t largest_key, overflow_key;
    const double *table; /* 8-bit formats: value of each pattern */
} format;

typedef struct {
    const void *data;
    const format *format;
} operand;

/* Values in [low, high) are counted, and every stride-th one is kept, up to capacity. */
typedef struct {
    double low, high;
    int64_t stride, capacity, seen;
    double *values;
} bracket;

typedef struct {
    int64_t exceeding, nonzero;
    double max_abs, sum_abs, max_rel, sum_rel, sum_ulp;
    uint64_t max_ulp;
    int saturated;
    int64_t below_low[BRACKETS], below_high[BRACKETS], kept[BRACKETS];
} scan_result;

#define MOST_UNITS 64

/* Unit of element i: constant + per_magnitude·|r_i| + per_ulp·ulp(r_i) + per_scale·S_i. */
typedef struct {
    double constant, per_magnitude, per_ulp, per_scale;
    int from_cell;
} unit;

typedef struct {
    double worst, signed_sum;
    int64_t index, infinite, bad_scale; /* bad_scale: first negative or NaN S, or −1 */
} read_result;

typedef struct {
    double largest, squares;
    int64_t finite;
} moments_result;

#define DECLARE(isa)                                                                                       \
    void scan_##isa(const operand *, const operand *, int64_t, double, bracket *, scan_result *);           \
    void read_##isa(const operand *, const operand *, const operand *, int64_t, const unit *, read_result *); \
    void read_units_##isa(const operand *, const operand *, int64_t, const unit *, int, double *);             \
    void moments_##isa(const operand *, int64_t, double, moments_result *);                                  \
    void lose_##isa(const double *, int64_t, int64_t, int64_t, int64_t, const double *, const double *, double *);

void sort_keys(uint64_t *, uint64_t *, int64_t);
void select_keys(const uint64_t *, uint64_t *, int64_t, const int64_t *, int, uint64_t *);

DECLARE(portable)
#ifdef GONOGO_X86
DECLARE(avx2)
DECLARE(avx512)
#endif

#endif
