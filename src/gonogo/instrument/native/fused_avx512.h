/* A span of two arrays of one 16- or 32-bit format → its part of ErrorStats, in registers, by AVX-512.
 *
 * Every bit is loaded once, and what takes whole vectors is done in as narrow lanes as hold it exactly. ULPs are
 * integers of the format's width. A difference of two 16-bit values is taken in float32, which holds it unless their
 * exponents lie far apart; the span's largest distance in ULPs proves that they do not. A float32 difference, every
 * quotient and every sum is float64. A span with a NaN or an infinity, or whose differences float32 might round, is
 * refused: nothing of it has been added yet, and the plain loops take it.
 */
#define SPAN 2048 /* its two sides fill half of a first-level cache at most */
#define STEP 32
#define INLINED static inline __attribute__((always_inline))

typedef struct {
    block_sums errors;
    uint64_t max_ulp;
    double sum_ulp;
    int below_low[BRACKETS], below_high[BRACKETS], found; /* errors gathered for brackets that keep */
} span_sums;

INLINED __m512d abs_pd(__m512d x) {
    return _mm512_castsi512_pd(_mm512_and_si512(_mm512_castpd_si512(x), _mm512_set1_epi64(MAGNITUDE)));
}

INLINED __m512 abs_ps(__m512 x) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
}

INLINED __m512d widen(__m512 x, int half) {
    return _mm512_cvtps_pd(half ? _mm512_extractf32x8_ps(x, 1) : _mm512_castps512_ps256(x));
}

/* The least float32 not below a cut: a float32 is below the one if and only if it is below the other. */
static inline float raise_to_float(double cut) {
    const float nearest = (float)cut;
    return nearest < cut ? nextafterf(nearest, INFINITY) : nearest;
}

/* Values of 16 elements: those from i + 16·half of float16, the even or the odd ones of 32 in bfloat16. */
INLINED __m512 decode_half(const uint16_t *bits, __m512i loaded, int half, const int is_bf16) {
    if (!is_bf16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(bits + 16 * half)));
    return _mm512_castsi512_ps(half ? _mm512_and_si512(loaded, _mm512_set1_epi32((int)0xffff0000))
                                    : _mm512_slli_epi32(loaded, 16));
}

/* Which of 16 errors, in two vectors and rounded towards 0 to `rounded`, lie below a cut. Where float32 has the cut, as
 * `is_float` says, rounding down moves none across it. */
INLINED __mmask16 find_below(const __m512d *d, __m512 rounded, double cut, const int is_float) {
    if (is_float)
        return _mm512_cmp_ps_mask(rounded, _mm512_set1_ps((float)cut), _CMP_LT_OQ);
    const __m512d wide = _mm512_set1_pd(cut);
    return _mm512_kunpackb(_mm512_cmp_pd_mask(d[1], wide, _CMP_LT_OQ), _mm512_cmp_pd_mask(d[0], wide, _CMP_LT_OQ));
}

/* Append those of 8 errors that `hit` marks. Compressing straight to memory is microcoded on some chips. */
INLINED int gather(double *inside, int found, __m512d d, __mmask8 hit) {
    _mm512_storeu_pd(inside + found, _mm512_maskz_compress_pd(hit, d));
    return found + __builtin_popcount(hit);
}

/* n is a multiple of STEP. `inside` has room for all of them and 8 more; it is written only if some bracket keeps. */
INLINED int fuse_16(const uint16_t *a, const uint16_t *e, int n, double atol, const bracket *b, double *inside,
                    span_sums *out, const int is_bf16, const int gathers) {
    const __m512i sign = _mm512_set1_epi16((short)0x8000), zero = _mm512_setzero_si512();
    const __m512 tolerance = _mm512_set1_ps(-raise_to_float(-atol)), infinite = _mm512_set1_ps(INFINITY);
    __m512i max_ulp = zero, sum_ulp = zero;
    __m512 max_abs = _mm512_setzero_ps();
    __m512d sum_abs[2], sum_rel[2], max_rel[2];
    __m512 low[BRACKETS], high[BRACKETS];
    int found = 0, zeros = 0, exceeding = 0, below_low[BRACKETS] = {0}, below_high[BRACKETS] = {0};
    for (int k = 0; k < BRACKETS; k++) {
        low[k] = _mm512_set1_ps(raise_to_float(b[k].low));
        high[k] = _mm512_set1_ps(raise_to_float(b[k].high));
    }
    for (int side = 0; side < 2; side++)
        sum_abs[side] = sum_rel[side] = max_rel[side] = _mm512_setzero_pd();
    for (int i = 0; i < n; i += STEP) {
        const __m512i A = _mm512_loadu_si512(a + i), E = _mm512_loadu_si512(e + i);
        /* Keys of one sign lie as far apart as their patterns; of two signs, by the sum of their magnitudes. */
        const __mmask32 opposed = _mm512_movepi16_mask(_mm512_xor_si512(A, E));
        const __m512i apart = _mm512_sub_epi16(_mm512_max_epu16(A, E), _mm512_min_epu16(A, E));
        const __m512i ulps = _mm512_mask_add_epi16(apart, opposed, _mm512_add_epi16(A, E), sign);
        max_ulp = _mm512_max_epu16(max_ulp, ulps);
        /* Less 2^15 each, for the product that adds neighbours takes them as signed. */
        sum_ulp = _mm512_add_epi32(sum_ulp, _mm512_madd_epi16(_mm512_xor_si512(ulps, sign), _mm512_set1_epi16(1)));
        zeros += __builtin_popcount(_mm512_testn_epi16_mask(E, _mm512_set1_epi16(0x7fff)));
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const __m512 r = decode_half(e + i, E, half, is_bf16), size = abs_ps(r);
            /* A quotient by infinity is the 0 that an element with reference 0 adds. */
            const __mmask16 none = _mm512_cmp_ps_mask(size, _mm512_setzero_ps(), _CMP_EQ_OQ);
            const __m512 divisor = _mm512_mask_mov_ps(size, none, infinite);
            const __m512 d = abs_ps(_mm512_sub_ps(decode_half(a + i, A, half, is_bf16), r));
            __mmask16 hit = 0;
            max_abs = _mm512_max_ps(max_abs, d);
            exceeding += __builtin_popcount(_mm512_cmp_ps_mask(d, tolerance, _CMP_GT_OQ));
#pragma GCC unroll 3
            for (int k = 0; k < BRACKETS; k++) {
                const __mmask16 l = _mm512_cmp_ps_mask(d, low[k], _CMP_LT_OQ);
                const __mmask16 h = _mm512_cmp_ps_mask(d, high[k], _CMP_LT_OQ);
                below_low[k] += __builtin_popcount(l);
                below_high[k] += __builtin_popcount(h);
                hit |= gathers && b[k].capacity ? h & ~l : 0;
            }
#pragma GCC unroll 2
            for (int side = 0; side < 2; side++) {
                const __m512d wide = widen(d, side), rel = _mm512_div_pd(wide, widen(divisor, side));
                sum_abs[side] = _mm512_add_pd(sum_abs[side], wide);
                sum_rel[side] = _mm512_add_pd(sum_rel[side], rel);
                max_rel[side] = _mm512_max_pd(max_rel[side], rel);
                if (gathers)
                    found = gather(inside, found, wide, (__mmask8)(hit >> 8 * side));
            }
        }
    }
    out->errors.sum_abs = _mm512_reduce_add_pd(_mm512_add_pd(sum_abs[0], sum_abs[1]));
    out->errors.max_abs = _mm512_reduce_max_ps(max_abs);
    max_ulp = _mm512_max_epu16(max_ulp, _mm512_srli_epi32(max_ulp, 16));
    out->max_ulp = _mm512_reduce_max_epu32(_mm512_and_si512(max_ulp, _mm512_set1_epi32(0xffff)));
    /* p digits each, exponents up to 23 − p apart: the difference has 24 digits at most, as float32 has. Or less
     * than 2^24 of float16's smallest steps: 1 may already be a rounded 1 + 2^−24. */
    const uint64_t nearby = is_bf16 ? (23 - 8) << 7 : (23 - 11) << 10;
    const int exact = out->max_ulp <= nearby || (!is_bf16 && out->errors.max_abs < 1);
    if (!exact || !(out->errors.sum_abs <= DBL_MAX))
        return 0;
    out->errors.max_rel = _mm512_reduce_max_pd(_mm512_max_pd(max_rel[0], max_rel[1]));
    out->errors.sum_rel = _mm512_reduce_add_pd(_mm512_add_pd(sum_rel[0], sum_rel[1]));
    out->errors.exceeding = exceeding;
    out->errors.nonzero = n - zeros;
    out->sum_ulp = (double)(_mm512_reduce_add_epi32(sum_ulp) + 32768LL * n);
    memcpy(out->below_low, below_low, sizeof below_low);
    memcpy(out->below_high, below_high, sizeof below_high);
    out->found = found;
    return 1;
}

INLINED int fuse_32(const float *a, const float *e, int n, double atol, const bracket *b, double *inside,
                    span_sums *out, const int gathers, const int float_cuts) {
    const __m512i sign = _mm512_set1_epi32((int)0x80000000), word = _mm512_set1_epi64(0xffffffff);
    const __m512d tolerance = _mm512_set1_pd(atol), infinite = _mm512_set1_pd(INFINITY);
    __m512i max_ulp = _mm512_setzero_si512(), sum_ulp = max_ulp;
    __m512d sum_abs = _mm512_setzero_pd(), max_abs = sum_abs, sum_rel = sum_abs, max_rel = sum_abs;
    int found = 0, zeros = 0, exceeding = 0, below_low[BRACKETS] = {0}, below_high[BRACKETS] = {0};
    for (int i = 0; i < n; i += 16) {
        const __m512i A = _mm512_loadu_si512(a + i), E = _mm512_loadu_si512(e + i);
        const __mmask16 opposed = _mm512_movepi32_mask(_mm512_xor_si512(A, E));
        const __m512i apart = _mm512_sub_epi32(_mm512_max_epu32(A, E), _mm512_min_epu32(A, E));
        const __m512i ulps = _mm512_mask_add_epi32(apart, opposed, _mm512_add_epi32(A, E), sign);
        const __mmask16 none = _mm512_testn_epi32_mask(E, _mm512_set1_epi32(0x7fffffff));
        __m512d d[2];
        __m256 rounded[2];
        __mmask8 over[2];
        __mmask16 hit = 0;
        max_ulp = _mm512_max_epu32(max_ulp, ulps);
        sum_ulp = _mm512_add_epi64(sum_ulp, _mm512_and_si512(ulps, word));
        sum_ulp = _mm512_add_epi64(sum_ulp, _mm512_srli_epi64(ulps, 32));
        zeros += __builtin_popcount(none);
#pragma GCC unroll 2
        for (int side = 0; side < 2; side++) {
            const __m512d r = _mm512_cvtps_pd(_mm256_loadu_ps(e + i + 8 * side));
            const __m512d divisor = _mm512_mask_mov_pd(abs_pd(r), (__mmask8)(none >> 8 * side), infinite);
            d[side] = abs_pd(_mm512_sub_pd(_mm512_cvtps_pd(_mm256_loadu_ps(a + i + 8 * side)), r));
            const __m512d rel = _mm512_div_pd(d[side], divisor);
            sum_abs = _mm512_add_pd(sum_abs, d[side]), max_abs = _mm512_max_pd(max_abs, d[side]);
            sum_rel = _mm512_add_pd(sum_rel, rel), max_rel = _mm512_max_pd(max_rel, rel);
            over[side] = _mm512_cmp_pd_mask(d[side], tolerance, _CMP_GT_OQ);
            rounded[side] = _mm512_cvt_roundpd_ps(d[side], _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
        }
        const __m512 all = _mm512_insertf32x8(_mm512_castps256_ps512(rounded[0]), rounded[1], 1);
        exceeding += __builtin_popcount(_mm512_kunpackb(over[1], over[0]));
#pragma GCC unroll 3
        for (int k = 0; k < BRACKETS; k++) {
            const __mmask16 l = find_below(d, all, b[k].low, float_cuts);
            const __mmask16 h = find_below(d, all, b[k].high, float_cuts);
            below_low[k] += __builtin_popcount(l);
            below_high[k] += __builtin_popcount(h);
            hit |= gathers && b[k].capacity ? h & ~l : 0;
        }
#pragma GCC unroll 2
        for (int side = 0; gathers && side < 2; side++)
            found = gather(inside, found, d[side], (__mmask8)(hit >> 8 * side));
    }
    out->errors.sum_abs = _mm512_reduce_add_pd(sum_abs);
    if (!(out->errors.sum_abs <= DBL_MAX))
        return 0;
    out->errors.max_abs = _mm512_reduce_max_pd(max_abs);
    out->errors.max_rel = _mm512_reduce_max_pd(max_rel);
    out->errors.sum_rel = _mm512_reduce_add_pd(sum_rel);
    out->errors.exceeding = exceeding;
    out->errors.nonzero = n - zeros;
    out->max_ulp = _mm512_reduce_max_epu32(max_ulp);
    out->sum_ulp = (double)_mm512_reduce_add_epi64(sum_ulp);
    memcpy(out->below_low, below_low, sizeof below_low);
    memcpy(out->below_high, below_high, sizeof below_high);
    out->found = found;
    return 1;
}

/* Whether the span could be measured here. */
static int fuse_span(const operand *actual, const operand *expected, int64_t start, int n, double atol,
                     const bracket *b, double *inside, span_sums *out) {
    const int gathers = b[0].capacity || b[1].capacity || b[2].capacity;
    int float_cuts = 1;
    for (int k = 0; k < BRACKETS; k++)
        float_cuts &= (float)b[k].low == b[k].low && (float)b[k].high == b[k].high;
    if (actual->format->kind == KIND_F32) {
        const float *a = (const float *)actual->data + start, *e = (const float *)expected->data + start;
        if (!float_cuts)
            return fuse_32(a, e, n, atol, b, inside, out, 1, 0);
        return gathers ? fuse_32(a, e, n, atol, b, inside, out, 1, 1) : fuse_32(a, e, n, atol, b, inside, out, 0, 1);
    }
    const uint16_t *a = (const uint16_t *)actual->data + start, *e = (const uint16_t *)expected->data + start;
    if (actual->format->kind == KIND_BF16)
        return gathers ? fuse_16(a, e, n, atol, b, inside, out, 1, 1) : fuse_16(a, e, n, atol, b, inside, out, 1, 0);
    return gathers ? fuse_16(a, e, n, atol, b, inside, out, 0, 1) : fuse_16(a, e, n, atol, b, inside, out, 0, 0);
}
