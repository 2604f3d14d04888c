/* bits of two arrays → partial ErrorStats and readings; the one body behind every instruction set.
 *
 * Included once per instruction set with ISA(name) defined, after the target pragma. Arrays are decoded block
 * by block into float64 on the stack, so memory is read once and every difference is exact in float64. The
 * loops are plain C that the compiler vectorises. Compile without contraction and without reassociation:
 * maxima and percentiles must come out the same to the bit on every path. Sums alone may be reordered, by the
 * `omp simd reduction` clauses. With AVX-512 fused_avx512.h goes first, and leaves to the loops what it refuses.
 */
#include "gonogo.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define BLOCK 512
#define MAGNITUDE 0x7fffffffffffffffLL

static inline float as_float(uint32_t word) { float x; memcpy(&x, &word, 4); return x; }
static inline uint32_t float_bits(float x) { uint32_t word; memcpy(&word, &x, 4); return word; }
static inline double as_double(int64_t word) { double x; memcpy(&x, &word, 8); return x; }
static inline int64_t double_bits(double x) { int64_t word; memcpy(&word, &x, 8); return word; }

/* A sum that loses nothing over millions of blocks (Kahan–Neumaier). */
typedef struct { double high, low; } exact_sum;

static inline void add_to(exact_sum *sum, double x) {
    double t = sum->high + x;
    /* An infinite total stays infinite: the correction would turn it into NaN. */
    if (fabs(t) <= DBL_MAX)
        sum->low += fabs(sum->high) >= fabs(x) ? (sum->high - t) + x : (x - t) + sum->high;
    sum->high = t;
}

static inline double total(const exact_sum *sum) {
    return fabs(sum->high) <= DBL_MAX ? sum->high + sum->low : sum->high;
}

/* ---- decode: bits → float64, exactly ---- */

static void decode_f16(const uint16_t *restrict bits, double *restrict out, int n) {
    int i = 0;
#ifdef HAVE_F16C
    for (; i + 8 <= n; i += 8) {
        const __m256 values = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(bits + i)));
        _mm256_storeu_pd(out + i, _mm256_cvtps_pd(_mm256_castps256_ps128(values)));
        _mm256_storeu_pd(out + i + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1)));
    }
#endif
    for (; i < n; i++) {
        uint32_t half = bits[i], magnitude = (half & 0x7fff) << 13;
        /* Rebias by a product: it is exact, so subnormals come out right. */
        uint32_t finite = float_bits(as_float(magnitude) * 0x1p112f), special = magnitude | 0x7f800000;
        uint32_t word = magnitude >= 0x0f800000 ? special : finite;
        out[i] = as_float(word | (half & 0x8000) << 16);
    }
}

static void decode_bf16(const uint16_t *restrict bits, double *restrict out, int n) {
    for (int i = 0; i < n; i++) {
        out[i] = as_float((uint32_t)bits[i] << 16);
    }
}

static void decode_f32(const float *restrict values, double *restrict out, int n) {
    for (int i = 0; i < n; i++)
        out[i] = values[i];
}

static const double *decode(const operand *x, int64_t start, double *buffer, int n) {
    switch (x->format->kind) {
    case KIND_F64:
        return (const double *)x->data + start;
    case KIND_F32:
        decode_f32((const float *)x->data + start, buffer, n);
        break;
    case KIND_F16:
        decode_f16((const uint16_t *)x->data + start, buffer, n);
        break;
    case KIND_BF16:
        decode_bf16((const uint16_t *)x->data + start, buffer, n);
        break;
    default:
        for (int i = 0; i < n; i++)
            buffer[i] = x->format->table[((const uint8_t *)x->data)[start + i]];
    }
    return buffer;
}

/* ---- keys: ordered integers, ±0 at 0 ---- */

static void key_of_bits(const operand *x, int64_t start, int64_t *restrict key, int n) {
    switch (x->format->kind) {
    case KIND_F64: {
        const int64_t *bits = (const int64_t *)x->data + start;
        for (int i = 0; i < n; i++) {
            int64_t sign = bits[i] >> 63;
            key[i] = ((bits[i] & MAGNITUDE) ^ sign) - sign;
        }
        break;
    }
    case KIND_F32: {
        const int32_t *bits = (const int32_t *)x->data + start;
        for (int i = 0; i < n; i++) {
            int32_t sign = bits[i] >> 31;
            key[i] = ((bits[i] & 0x7fffffff) ^ sign) - sign;
        }
        break;
    }
    case KIND_F16:
    case KIND_BF16: {
        const int16_t *bits = (const int16_t *)x->data + start;
        for (int i = 0; i < n; i++) {
            int32_t sign = bits[i] >> 15;
            key[i] = ((bits[i] & 0x7fff) ^ sign) - sign;
        }
        break;
    }
    default: {
        const int8_t *bits = (const int8_t *)x->data + start;
        for (int i = 0; i < n; i++) {
            int32_t sign = bits[i] >> 7;
            key[i] = ((bits[i] & 0x7f) ^ sign) - sign;
        }
    }
    }
}

/* Key of the value of `format` nearest to each float64, ties to even. NaN gives some key: the caller looks. */
static void round_to_key(const format *f, const double *restrict values, int64_t *restrict key, int n) {
    if (f->kind == KIND_F64) {
        operand same = {.data = values, .format = f};
        key_of_bits(&same, 0, key, n);
        return;
    }
    const double clamp = 2 * f->largest;
    const int64_t lowest = f->min_exponent + 1023, shift = 53 - f->precision;
    const int64_t fraction_bits = f->precision - 1, overflow = f->overflow_key;
    for (int i = 0; i < n; i++) {
        const int64_t sign = double_bits(values[i]) >> 63;
        /* Twice the largest value rounds like anything above it, and keeps the anchor finite. */
        const double magnitude = fabs(values[i]) < clamp ? fabs(values[i]) : clamp;
        const int64_t exponent = double_bits(magnitude) >> 52, biased = exponent > lowest ? exponent : lowest;
        /* 2^52 quanta: the sum is rounded to whole quanta, and their number stands in its low bits. */
        const int64_t anchor = (biased + shift) << 52;
        const int64_t quanta = double_bits(magnitude + as_double(anchor)) - anchor;
        const int64_t rounded = ((biased - lowest) << fraction_bits) + quanta;
        const int64_t bounded = rounded < overflow ? rounded : overflow;
        key[i] = (bounded ^ sign) - sign;
    }
}

/* ---- one block of ErrorStats ---- */

/* ULPs of a block whose two sides share a 16- or 32-bit format and are finite: integers of that width. */
static void add_ulps_16(const int16_t *restrict a, const int16_t *restrict e, int n, scan_result *out) {
    int32_t largest = 0, sum = 0;
#pragma omp simd reduction(+ : sum) reduction(max : largest)
    for (int i = 0; i < n; i++) {
        int32_t sign_a = a[i] >> 15, sign_e = e[i] >> 15;
        int32_t distance = ((a[i] & 0x7fff) ^ sign_a) - sign_a - ((e[i] & 0x7fff) ^ sign_e) + sign_e;
        distance = distance < 0 ? -distance : distance;
        sum += distance; /* at most BLOCK · 2^16 */
        largest = distance > largest ? distance : largest;
    }
    out->sum_ulp += sum;
    if ((uint64_t)largest > out->max_ulp)
        out->max_ulp = largest;
}

static void add_ulps_32(const int32_t *restrict a, const int32_t *restrict e, int n, scan_result *out) {
    uint32_t largest = 0;
    uint64_t sum = 0;
#pragma omp simd reduction(+ : sum) reduction(max : largest)
    for (int i = 0; i < n; i++) {
        int32_t sign_a = a[i] >> 31, sign_e = e[i] >> 31;
        int32_t key_a = ((a[i] & 0x7fffffff) ^ sign_a) - sign_a, key_e = ((e[i] & 0x7fffffff) ^ sign_e) - sign_e;
        uint32_t distance = key_a > key_e ? (uint32_t)key_a - (uint32_t)key_e : (uint32_t)key_e - (uint32_t)key_a;
        sum += distance;
        largest = distance > largest ? distance : largest;
    }
    out->sum_ulp += (double)sum;
    if (largest > out->max_ulp)
        out->max_ulp = largest;
}

/* ULPs of any block, NaN and infinities included. */
static void add_ulps(const operand *a, int64_t start, const double *A, const double *R, int n, scan_result *out) {
    const format *f = a->format;
    int64_t key_a[BLOCK], key_r[BLOCK], outside = 0;
    uint64_t largest = 0;
    double sum = 0;
    key_of_bits(a, start, key_a, n);
    round_to_key(f, R, key_r, n);
#pragma omp simd reduction(+ : sum, outside) reduction(max : largest)
    for (int i = 0; i < n; i++) {
        uint64_t distance = key_a[i] > key_r[i] ? (uint64_t)key_a[i] - (uint64_t)key_r[i]
                                                : (uint64_t)key_r[i] - (uint64_t)key_a[i];
        outside += (key_a[i] > f->largest_key) | (key_a[i] < -f->largest_key) | (key_r[i] > f->largest_key) |
                   (key_r[i] < -f->largest_key);
        sum += (double)distance;
        largest = distance > largest ? distance : largest;
    }
    if (outside) {
        largest = 0, sum = 0;
        for (int i = 0; i < n; i++) {
            int nan = A[i] != A[i] || R[i] != R[i] ||
                      (!f->has_infinity && (key_r[i] > f->largest_key || key_r[i] < -f->largest_key));
            uint64_t distance = key_a[i] > key_r[i] ? (uint64_t)key_a[i] - (uint64_t)key_r[i]
                                                    : (uint64_t)key_r[i] - (uint64_t)key_a[i];
            int beyond = llabs(key_a[i]) > f->largest_key || llabs(key_r[i]) > f->largest_key;
            if (nan || (beyond && distance)) {
                out->saturated = 1;
                continue;
            }
            sum += (double)distance;
            largest = distance > largest ? distance : largest;
        }
    }
    out->sum_ulp += sum;
    if (largest > out->max_ulp)
        out->max_ulp = largest;
}

typedef struct { double max_abs, sum_abs, max_rel, sum_rel; int64_t exceeding, nonzero; } block_sums;

/* Absolute and relative errors of a block; right only if every difference is finite, as sum_abs tells. */
static block_sums measure_finite(const double *restrict A, const double *restrict R, double *restrict D, int n, double atol) {
    double max_abs = 0, sum_abs = 0, max_rel = 0, sum_rel = 0;
    int64_t exceeding = 0, nonzero = 0;
#pragma omp simd reduction(+ : sum_abs, sum_rel, exceeding, nonzero) reduction(max : max_abs, max_rel)
    for (int i = 0; i < n; i++) {
        double d = fabs(A[i] - R[i]);
        int64_t counts = R[i] != 0;
        double rel = counts ? d / fabs(R[i]) : 0.0;
        D[i] = d;
        exceeding += d > atol;
        nonzero += counts;
        sum_abs += d;
        sum_rel += rel;
        max_abs = d > max_abs ? d : max_abs;
        max_rel = rel > max_rel ? rel : max_rel;
    }
    return (block_sums){max_abs, sum_abs, max_rel, sum_rel, exceeding, nonzero};
}

/* The same with NaN and infinities: agreement is 0, any other non-finite difference +inf. */
static block_sums measure_any(const double *restrict A, const double *restrict R, double *restrict D, int n, double atol) {
    double max_abs = 0, sum_abs = 0, max_rel = 0, sum_rel = 0;
    int64_t exceeding = 0, nonzero = 0;
#pragma omp simd reduction(+ : sum_abs, sum_rel, exceeding, nonzero) reduction(max : max_abs, max_rel)
    for (int i = 0; i < n; i++) {
        int agree = (A[i] == R[i]) | ((A[i] != A[i]) & (R[i] != R[i]));
        double d = agree ? 0.0 : fabs(A[i] - R[i]), rel;
        int64_t counts = R[i] != 0;
        d = d <= DBL_MAX ? d : INFINITY;
        rel = d <= DBL_MAX ? d / fabs(R[i]) : INFINITY;
        rel = (counts & !agree) ? rel : 0.0;
        D[i] = d;
        exceeding += d > atol;
        nonzero += counts;
        sum_abs += d;
        sum_rel += rel;
        max_abs = d > max_abs ? d : max_abs;
        max_rel = rel > max_rel ? rel : max_rel;
    }
    return (block_sums){max_abs, sum_abs, max_rel, sum_rel, exceeding, nonzero};
}

/* Count what lies below each bracket's two ends, and gather into `inside` what a collecting bracket holds. */
static int bracket_block(const double *restrict D, int n, const bracket *b, scan_result *out, double *restrict inside) {
    double low[BRACKETS], high[BRACKETS]; /* a bracket without room only counts: nothing is above +inf */
    int found = 0;
    for (int k = 0; k < BRACKETS; k++) {
        low[k] = b[k].low;
        high[k] = b[k].high;
    }
#ifdef HAVE_AVX512
    const __m512d a0 = _mm512_set1_pd(low[0]), a1 = _mm512_set1_pd(low[1]), a2 = _mm512_set1_pd(low[2]);
    const __m512d b0 = _mm512_set1_pd(high[0]), b1 = _mm512_set1_pd(high[1]), b2 = _mm512_set1_pd(high[2]);
    const __m512i one = _mm512_set1_epi64(1);
    const __mmask8 k0 = b[0].capacity ? 0xff : 0, k1 = b[1].capacity ? 0xff : 0, k2 = b[2].capacity ? 0xff : 0;
    __m512i c0 = _mm512_setzero_si512(), c1 = c0, c2 = c0, d0 = c0, d1 = c0, d2 = c0;
    for (int i = 0; i < n; i += 8) {
        const __mmask8 valid = n - i >= 8 ? 0xff : (__mmask8)((1 << (n - i)) - 1);
        const __m512d d = _mm512_maskz_loadu_pd(valid, D + i);
        const __mmask8 l0 = _mm512_mask_cmp_pd_mask(valid, d, a0, _CMP_LT_OQ);
        const __mmask8 l1 = _mm512_mask_cmp_pd_mask(valid, d, a1, _CMP_LT_OQ);
        const __mmask8 l2 = _mm512_mask_cmp_pd_mask(valid, d, a2, _CMP_LT_OQ);
        const __mmask8 h0 = _mm512_mask_cmp_pd_mask(valid, d, b0, _CMP_LT_OQ);
        const __mmask8 h1 = _mm512_mask_cmp_pd_mask(valid, d, b1, _CMP_LT_OQ);
        const __mmask8 h2 = _mm512_mask_cmp_pd_mask(valid, d, b2, _CMP_LT_OQ);
        const __mmask8 hit = (__mmask8)((h0 & ~l0 & k0) | (h1 & ~l1 & k1) | (h2 & ~l2 & k2));
        c0 = _mm512_mask_add_epi64(c0, l0, c0, one);
        c1 = _mm512_mask_add_epi64(c1, l1, c1, one);
        c2 = _mm512_mask_add_epi64(c2, l2, c2, one);
        d0 = _mm512_mask_add_epi64(d0, h0, d0, one);
        d1 = _mm512_mask_add_epi64(d1, h1, d1, one);
        d2 = _mm512_mask_add_epi64(d2, h2, d2, one);
        /* Compressed in a register: compressing straight to memory is microcoded on some chips. */
        _mm512_storeu_pd(inside + found, _mm512_maskz_compress_pd(hit, d));
        found += __builtin_popcount(hit);
    }
    out->below_low[0] += _mm512_reduce_add_epi64(c0), out->below_high[0] += _mm512_reduce_add_epi64(d0);
    out->below_low[1] += _mm512_reduce_add_epi64(c1), out->below_high[1] += _mm512_reduce_add_epi64(d1);
    out->below_low[2] += _mm512_reduce_add_epi64(c2), out->below_high[2] += _mm512_reduce_add_epi64(d2);
#else
    for (int k = 0; k < BRACKETS; k++) {
        int64_t below_low = 0, below_high = 0;
#pragma omp simd reduction(+ : below_low, below_high)
        for (int i = 0; i < n; i++) {
            below_low += D[i] < low[k];
            below_high += D[i] < high[k];
        }
        out->below_low[k] += below_low;
        out->below_high[k] += below_high;
        if (!b[k].capacity)
            low[k] = high[k] = INFINITY;
    }
    for (int i = 0; i < n; i++) {
        inside[found] = D[i];
        found += ((D[i] >= low[0]) & (D[i] < high[0])) | ((D[i] >= low[1]) & (D[i] < high[1])) |
                 ((D[i] >= low[2]) & (D[i] < high[2]));
    }
#endif
    return found;
}

/* Hand each gathered value to its bracket; every `stride`-th is kept, while there is room. */
static void keep_gathered(const double *inside, int found, bracket *b, scan_result *out) {
    for (int k = 0; k < BRACKETS; k++) {
        const double low = b[k].low, high = b[k].high;
        if (!b[k].capacity)
            continue;
        if (b[k].stride == 1 && out->kept[k] + found <= b[k].capacity) {
            int64_t kept = out->kept[k];
            for (int i = 0; i < found; i++) {
                b[k].values[kept] = inside[i];
                kept += (inside[i] >= low) & (inside[i] < high);
            }
            out->kept[k] = kept;
            continue;
        }
        for (int i = 0; i < found; i++) {
            if (inside[i] >= low && inside[i] < high) {
                if (b[k].seen++ % b[k].stride == 0 && out->kept[k] < b[k].capacity)
                    b[k].values[out->kept[k]++] = inside[i];
            }
        }
    }
}

typedef struct { exact_sum abs, rel, ulp; } running_sums;

static void add_errors(const block_sums *sums, running_sums *running, scan_result *out) {
    add_to(&running->abs, sums->sum_abs);
    add_to(&running->rel, sums->sum_rel);
    out->max_abs = sums->max_abs > out->max_abs ? sums->max_abs : out->max_abs;
    out->max_rel = sums->max_rel > out->max_rel ? sums->max_rel : out->max_rel;
    out->exceeding += sums->exceeding;
    out->nonzero += sums->nonzero;
}

/* Elements from `start` to `end` by the plain loops, which take every format and every value. */
static void scan_plainly(const operand *actual, const operand *expected, int64_t start, int64_t end, double atol,
                         bracket *brackets, running_sums *running, scan_result *out) {
    const int width = actual->format == expected->format ? actual->format->bits : 0;
    double buffer_a[BLOCK], buffer_r[BLOCK], D[BLOCK], inside[BLOCK + 8];
    for (; start < end; start += BLOCK) {
        const int m = end - start < BLOCK ? (int)(end - start) : BLOCK;
        const double *A = decode(actual, start, buffer_a, m), *R = decode(expected, start, buffer_r, m);
        block_sums sums = measure_finite(A, R, D, m, atol);
        const int finite = sums.sum_abs <= DBL_MAX;
        if (!finite)
            sums = measure_any(A, R, D, m, atol);
        add_errors(&sums, running, out);
        out->sum_ulp = 0;
        if (finite && width == 16)
            add_ulps_16((const int16_t *)actual->data + start, (const int16_t *)expected->data + start, m, out);
        else if (finite && width == 32)
            add_ulps_32((const int32_t *)actual->data + start, (const int32_t *)expected->data + start, m, out);
        else
            add_ulps(actual, start, A, R, m, out);
        add_to(&running->ulp, out->sum_ulp);
        keep_gathered(inside, bracket_block(D, m, brackets, out, inside), brackets, out);
    }
}

#ifdef HAVE_AVX512
#include "fused_avx512.h"

/* As many whole steps as there are, a span at a time; returns where they end. */
static int64_t scan_fused(const operand *actual, const operand *expected, int64_t n, double atol, bracket *brackets,
                          running_sums *running, scan_result *out) {
    double inside[SPAN + 8];
    int64_t start = 0;
    for (int m; start + STEP <= n; start += m) {
        span_sums span;
        m = n - start < SPAN ? (int)(n - start) / STEP * STEP : SPAN;
        if (!fuse_span(actual, expected, start, m, atol, brackets, inside, &span)) {
            scan_plainly(actual, expected, start, start + m, atol, brackets, running, out);
            continue;
        }
        add_errors(&span.errors, running, out);
        add_to(&running->ulp, span.sum_ulp);
        out->max_ulp = span.max_ulp > out->max_ulp ? span.max_ulp : out->max_ulp;
        for (int k = 0; k < BRACKETS; k++) {
            out->below_low[k] += span.below_low[k];
            out->below_high[k] += span.below_high[k];
        }
        keep_gathered(inside, span.found, brackets, out);
    }
    return start;
}
#endif

void ISA(scan)(const operand *actual, const operand *expected, int64_t n, double atol, bracket *brackets, scan_result *out) {
    running_sums running = {{0, 0}, {0, 0}, {0, 0}};
    int64_t start = 0;
#ifdef HAVE_AVX512
    if (actual->format == expected->format && (actual->format->bits == 16 || actual->format->bits == 32))
        start = scan_fused(actual, expected, n, atol, brackets, &running, out);
#endif
    scan_plainly(actual, expected, start, n, atol, brackets, &running, out);
    out->sum_abs = total(&running.abs);
    out->sum_rel = total(&running.rel);
    out->sum_ulp = total(&running.ulp);
}

/* ---- readings: error of each element in the unit of a gauge ---- */

/* Biased float64 exponent of the binade `magnitude` falls in, within the format's range. */
static inline int64_t binade(const format *f, double magnitude) {
    const int64_t lowest = f->min_exponent + 1023, highest = f->max_exponent + 1023;
    const int64_t exponent = double_bits(magnitude) >> 52, raised = exponent > lowest ? exponent : lowest;
    return raised < highest ? raised : highest;
}

/* Unit in the last place at r. float64's own may be subnormal, which the shift cannot make. */
static inline double ulp_at(const format *f, double r, int wide) {
    const int64_t biased = binade(f, fabs(r));
    if (wide)
        return biased > 52 ? as_double((biased - 52) << 52) : as_double(1LL << (biased - 1));
    return as_double((biased - f->precision + 1) << 52);
}

/* Distance from r to the rounding cell of y, signed like y − r: Format.cell_distance, operation by operation.
 *
 * `wide` is known when this is compiled, and every other choice is between two values: so that it vectorises. */
static inline double cell_error(const format *f, double y, double r, int wide) {
    const double magnitude = fabs(y), mirrored = double_bits(y) < 0 ? -r : r, target = y == 0 ? fabs(r) : mirrored;
    const double half = 0.5 * ulp_at(f, y, wide);
    const int power_of_two = (double_bits(magnitude) & 0xfffffffffffffLL) == 0;
    const double half_below = power_of_two & (magnitude > f->smallest_normal) ? 0.5 * half : half;
    const double beyond = wide ? (target - magnitude) - half : target - (magnitude + half);
    const double below = wide ? (magnitude - target) - half_below : (magnitude - half_below) - target;
    const double finite = beyond > below ? beyond : below;
    const double outside = magnitude > DBL_MAX ? f->overflow_threshold - target : finite;
    const double distance = outside > 0 ? outside : 0.0, number = y < r ? -distance : distance;
    const int rounds_to_nan = (r != r) | (!f->has_infinity & (fabs(r) > f->overflow_threshold));
    const double agreed = (y != y) & rounds_to_nan ? 0.0 : INFINITY;
    return (y != y) | (r != r) ? agreed : number;
}

static void measure_cells(const format *f, const double *restrict Y, const double *restrict R, double *restrict error, int n) {
    const format own = *f; /* which no store can change */
    if (f->kind == KIND_F64)
        for (int i = 0; i < n; i++)
            error[i] = cell_error(&own, Y[i], R[i], 1);
    else
        for (int i = 0; i < n; i++)
            error[i] = cell_error(&own, Y[i], R[i], 0);
}

static void find_ulps(const format *f, const double *restrict R, double *restrict ulp, int n) {
    const format own = *f;
    if (f->kind == KIND_F64)
        for (int i = 0; i < n; i++)
            ulp[i] = ulp_at(&own, R[i], 1);
    else
        for (int i = 0; i < n; i++)
            ulp[i] = ulp_at(&own, R[i], 0);
}

static inline double value_error(double y, double r) {
    double d = y - r;
    if ((y == r) | ((y != y) & (r != r)))
        return 0.0;
    return fabs(d) <= DBL_MAX ? d : INFINITY;
}

/* Unit of every element. */
static void measure_widths(const format *f, const unit *u, const double *restrict R, const double *restrict S, double *restrict width, int n) {
    const double constant = u->constant, per_magnitude = u->per_magnitude, per_ulp = u->per_ulp, per_scale = u->per_scale;
    for (int i = 0; i < n; i++)
        width[i] = constant + per_magnitude * fabs(R[i]);
    if (per_ulp != 0) {
        double ulp[BLOCK];
        find_ulps(f, R, ulp, n);
        for (int i = 0; i < n; i++)
            width[i] += per_ulp * ulp[i];
    }
    if (S)
        for (int i = 0; i < n; i++)
            width[i] += per_scale * S[i];
}

void ISA(read)(const operand *actual, const operand *expected, const operand *scale, int64_t n, const unit *u, read_result *out) {
    const format *f = actual->format;
    exact_sum signed_sum = {0, 0};
    double buffer_y[BLOCK], buffer_r[BLOCK], buffer_s[BLOCK], error[BLOCK], width[BLOCK];
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int m = n - start < BLOCK ? (int)(n - start) : BLOCK;
        const double *Y = decode(actual, start, buffer_y, m), *R = decode(expected, start, buffer_r, m);
        const double *S = scale->data ? decode(scale, start, buffer_s, m) : NULL;
        double worst = 0, sum = 0;
        int64_t infinite = 0, bad = 0;
        if (S) {
            for (int i = 0; i < m; i++)
                bad += !(S[i] >= 0);
            for (int i = 0; bad && out->bad_scale < 0 && i < m; i++)
                out->bad_scale = S[i] >= 0 ? -1 : start + i;
        }
        if (u->from_cell)
            measure_cells(f, Y, R, error, m);
        else
            for (int i = 0; i < m; i++)
                error[i] = value_error(Y[i], R[i]);
        measure_widths(f, u, R, S, width, m);
        /* No error reads 0 whatever the unit, an infinite one inf; x/0 is inf by itself. */
        for (int i = 0; i < m; i++) {
            const double quotient = fabs(error[i]) <= DBL_MAX ? error[i] / width[i] : INFINITY;
            error[i] = error[i] == 0 ? 0.0 : quotient;
        }
#pragma omp simd reduction(+ : sum, infinite) reduction(max : worst)
        for (int i = 0; i < m; i++) {
            double size = fabs(error[i]);
            infinite += size > DBL_MAX;
            sum += size > DBL_MAX ? 0.0 : error[i];
            worst = size > worst ? size : worst;
        }
        add_to(&signed_sum, sum);
        out->infinite += infinite;
        if (worst > out->worst || out->index < 0) {
            int at = 0;
            while (at < m - 1 && fabs(error[at]) != worst) /* a NaN can only come of a bad scale */
                at++;
            out->worst = worst;
            out->index = start + at;
        }
    }
    out->signed_sum = total(&signed_sum);
}

/* What `read` gives as worst in each of several units that have no scale and do not count from cells.
 *
 * A quotient can be above the worst so far only where the error is above the product of that and the unit, but for
 * what they round by: most blocks need no division. Products among subnormals round by more, and are taken for 0. */
void ISA(read_units)(const operand *actual, const operand *expected, int64_t n, const unit *units, int count, double *worst) {
    const format *f = actual->format;
    double buffer_y[BLOCK], buffer_r[BLOCK], error[BLOCK], size[BLOCK], ulp[BLOCK], width[BLOCK];
    int any_ulp = 0;
    for (int k = 0; k < count; k++)
        any_ulp |= units[k].per_ulp != 0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int m = n - start < BLOCK ? (int)(n - start) : BLOCK;
        const double *Y = decode(actual, start, buffer_y, m), *R = decode(expected, start, buffer_r, m);
        double largest = 0;
        for (int i = 0; i < m; i++) {
            error[i] = fabs(value_error(Y[i], R[i]));
            size[i] = fabs(R[i]);
        }
#pragma omp simd reduction(max : largest)
        for (int i = 0; i < m; i++)
            largest = error[i] > largest ? error[i] : largest;
        if (largest == 0)
            continue;
        if (any_ulp)
            find_ulps(f, R, ulp, m);
        for (int k = 0; k < count; k++) {
            const double constant = units[k].constant, per_magnitude = units[k].per_magnitude, per_ulp = units[k].per_ulp;
            const double floor = worst[k] * (1 - 0x1p-50);
            double above = largest > DBL_MAX, top = worst[k];
            for (int i = 0; i < m; i++)
                width[i] = constant + per_magnitude * size[i];
            if (per_ulp != 0)
                for (int i = 0; i < m; i++)
                    width[i] += per_ulp * ulp[i];
#pragma omp simd reduction(max : above)
            for (int i = 0; i < m; i++) {
                const double product = floor * width[i], least = product < 0x1p-960 ? 0.0 : product;
                const double hit = error[i] > least ? 1.0 : 0.0;
                above = hit > above ? hit : above;
            }
            if (above == 0)
                continue;
#pragma omp simd reduction(max : top)
            for (int i = 0; i < m; i++) {
                const double quotient = error[i] == 0 ? 0.0 : (error[i] <= DBL_MAX ? error[i] / width[i] : INFINITY);
                top = quotient > top ? quotient : top;
            }
            worst[k] = top;
        }
    }
}

/* Largest finite |r|, the sum of squares of finite r·factor, and how many are finite. */
void ISA(moments)(const operand *x, int64_t n, double factor, moments_result *out) {
    exact_sum squares = {0, 0};
    double buffer[BLOCK];
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int m = n - start < BLOCK ? (int)(n - start) : BLOCK;
        const double *R = decode(x, start, buffer, m);
        double largest = out->largest, sum = 0;
        int64_t finite = 0;
#pragma omp simd reduction(+ : sum, finite) reduction(max : largest)
        for (int i = 0; i < m; i++) {
            int64_t counts = fabs(R[i]) <= DBL_MAX;
            double magnitude = counts ? fabs(R[i]) : 0.0, scaled = magnitude * factor;
            sum += scaled * scaled;
            finite += counts;
            largest = magnitude > largest ? magnitude : largest;
        }
        add_to(&squares, sum);
        out->largest = largest;
        out->finite += finite;
    }
    out->squares = total(&squares);
}

/* Of each part of each row: Σ(nearest multiple of a step − x) for every step, and what Σ loses of terms below
 * `swamp`. Parts `first` … `last` are counted through all rows; `steps` are LOSE_STEPS to a row. */
void ISA(lose)(const double *x, int64_t length, int64_t part, int64_t first, int64_t last, const double *steps,
               const double *swamp, double *sums) {
    const int64_t parts = (length + part - 1) / part;
    for (int64_t k = first; k < last; k++) {
        const int64_t row = k / parts, begin = k % parts * part;
        const int64_t m = length - begin < part ? length - begin : part;
        const double *X = x + row * length + begin, *step = steps + row * LOSE_STEPS, low = swamp[row];
        double *out = sums + k * (LOSE_STEPS + 1), lost = 0;
        for (int p = 0; p < LOSE_STEPS; p += 3) {
            const double a = step[p], b = step[p + 1], c = step[p + 2];
            double in_a = 0, in_b = 0, in_c = 0;
#pragma omp simd reduction(+ : in_a, in_b, in_c)
            for (int64_t i = 0; i < m; i++) {
                in_a += rint(X[i] / a) * a - X[i];
                in_b += rint(X[i] / b) * b - X[i];
                in_c += rint(X[i] / c) * c - X[i];
            }
            out[p] = in_a, out[p + 1] = in_b, out[p + 2] = in_c;
        }
#pragma omp simd reduction(+ : lost)
        for (int64_t i = 0; i < m; i++) {
            const double size = fabs(X[i]), capped = size < low ? size : low;
            lost += size < 4 * low ? capped : 0.0;
        }
        out[LOSE_STEPS] = lost;
    }
}
