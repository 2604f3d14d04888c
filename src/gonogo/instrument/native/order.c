/* Errors, unsorted → sorted, or those at some ranks. Errors are ≥ +0 or +inf, never NaN: they order as their bits do.
 *
 * Sorted into equal slices of the range of bits, and each slice again: no comparisons to mispredict, and slices of
 * rounding errors, which spread over a few binades, are of much the same size.
 */
#include "gonogo.h"

#include <string.h>

#define SLICES 1024
#define FEW 24

typedef struct { uint64_t lowest; int shift; int64_t count[SLICES]; } slices;

static void sort_few(uint64_t *keys, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const uint64_t key = keys[i];
        int64_t at = i;
        for (; at > 0 && keys[at - 1] > key; at--)
            keys[at] = keys[at - 1];
        keys[at] = key;
    }
}

/* Count what falls into each slice; 0 where all keys are equal. About four keys to a slice, SLICES at most. */
static int count_slices(const uint64_t *keys, int64_t n, slices *s) {
    uint64_t lowest = keys[0], highest = keys[0];
    for (int64_t i = 1; i < n; i++) {
        lowest = keys[i] < lowest ? keys[i] : lowest;
        highest = keys[i] > highest ? keys[i] : highest;
    }
    const uint64_t most = n < 4 * SLICES ? (uint64_t)n / 4 + 1 : SLICES;
    s->lowest = lowest;
    s->shift = 0;
    while ((highest - lowest) >> s->shift >= most)
        s->shift++;
    memset(s->count, 0, most * sizeof *s->count);
    for (int64_t i = 0; i < n; i++)
        s->count[(keys[i] - lowest) >> s->shift]++;
    return highest != lowest ? (int)((highest - lowest) >> s->shift) + 1 : 0;
}

/* `scratch` has room for n keys, too. */
void sort_keys(uint64_t *keys, uint64_t *scratch, int64_t n) {
    slices s;
    int64_t next[SLICES], start = 0;
    if (n <= FEW) {
        sort_few(keys, n);
        return;
    }
    const int used = count_slices(keys, n, &s);
    for (int k = 0; k < used; k++)
        next[k] = start, start += s.count[k];
    for (int64_t i = 0; used && i < n; i++)
        scratch[next[(keys[i] - s.lowest) >> s.shift]++] = keys[i];
    if (used)
        memcpy(keys, scratch, n * sizeof *keys);
    for (int k = 0; s.shift && k < used; k++)
        sort_keys(keys + next[k] - s.count[k], scratch, s.count[k]);
}

/* Keys at ascending 0-based `ranks`. `scratch` has room for 2·n keys. */
void select_keys(const uint64_t *keys, uint64_t *scratch, int64_t n, const int64_t *ranks, int n_ranks, uint64_t *out) {
    slices s;
    int64_t below = 0;
    const int used = count_slices(keys, n, &s);
    for (int r = 0, k = 0, sorted = -1; r < n_ranks; r++) {
        for (; used && ranks[r] >= below + s.count[k]; k++)
            below += s.count[k];
        if (used && sorted != k) {
            int64_t found = 0;
            for (int64_t i = 0; i < n; i++) {
                scratch[found] = keys[i];
                found += (keys[i] - s.lowest) >> s.shift == (uint64_t)k;
            }
            sort_keys(scratch, scratch + n, found);
            sorted = k;
        }
        out[r] = used ? scratch[ranks[r] - below] : s.lowest;
    }
}
