/* Attention of queries to the keys and values of one head.

   Sums are made in 16 partial sums, so products cannot be fused with additions on any processor: the additions are the limit, and
   sharing loads among queries would gain nothing.

   Shapes: R queries, K width of a key, W of a value, n slots that a query sees. */

#include "set.h"

#define LINE 16 /* floats that come from memory together */
#if defined(__SSE2__) && !defined(__AVX2__) || defined(__wasm__)
#define WIDES 8 /* registers of sums of values */
#else
#define WIDES (64 / LANES)
#endif

typedef struct {
    const float *keys, *values;
    int64_t key_row, value_row, first;
    const int32_t *slots;
    int fetch; /* whether keys and values are likely not to be in the first cache */
} Seen;

INLINE int64_t slot(const Seen *seen, int64_t s) { return seen->slots ? seen->slots[s] : seen->first + s; }

INLINE void fetch(const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i += LINE) __builtin_prefetch(x + i);
}

/* The partial sums of a dot product. */
INLINE void multiply(const float *a, const float *b, int64_t n, wide *sums) {
    UNROLL for (int p = 0; p < PARTS; p++) sums[p] = (wide){0};
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        UNROLL for (int p = 0; p < PARTS; p++) sums[p] += load(a + i + p * LANES) * load(b + i + p * LANES);
    if (i < n)
        UNROLL for (int p = 0; p < PARTS; p++)
            sums[p] += load_of(a, i + p * LANES, n, 0.0f) * load_of(b, i + p * LANES, n, 0.0f);
}

/* scores = q kᵀ; up to three more of them are overwritten. */
INLINE void multiply_keys(const float *q, const Seen *seen, float *scores, int64_t n, int64_t K, int64_t W) {
    for (int64_t s = 0; s < n; s += 4) {
        wide sums[4][PARTS];
        for (int64_t i = s; seen->fetch && i < s + 4 && i < n; i++) {
            if (i + 8 < n) fetch(seen->keys + slot(seen, i + 8) * seen->key_row, K);
            fetch(seen->values + slot(seen, i) * seen->value_row, W);
        }
        UNROLL for (int i = 0; i < 4; i++)
            multiply(q, seen->keys + slot(seen, s + i < n ? s + i : n - 1) * seen->key_row, K, sums[i]);
        four_totals((const wide(*)[PARTS])sums, scores + s);
    }
}

/* Scores become exp(score * scale - the largest of them); returns 1 / the sum. `scores` has 16 numbers behind its end. */
INLINE float exponentials(float *scores, float scale, int64_t n) {
    wide most = all(-INFINITE), sums[PARTS] = {{0}};
    for (int64_t i = n; i < n + SUMS; i++) scores[i] = -INFINITE;
    for (int64_t i = 0; i < n; i += LANES) {
        const wide scaled = load(scores + i) * scale;
        store(scores + i, scaled);
        most = larger(scaled, most);
    }
    most = all(largest(most));
    for (int64_t i = 0; i < n; i += SUMS)
        UNROLL for (int p = 0; p < PARTS; p++) {
            const wide weight = exp_below(load(scores + i + p * LANES) - most);
            store(scores + i + p * LANES, weight);
            sums[p] += weight;
        }
    return 1.0f / total(sums);
}

/* out = the sum of the values by their weights, times `part`. */
INLINE void add_values(const Seen *seen, const float *weights, float part, float *out, int64_t n, int64_t W) {
    int64_t w = 0;
    for (; w + WIDES * LANES <= W; w += WIDES * LANES) {
        wide sums[WIDES];
        UNROLL for (int j = 0; j < WIDES; j++) sums[j] = (wide){0};
        for (int64_t s = 0; s < n; s++) {
            const float *value = seen->values + slot(seen, s) * seen->value_row + w;
            UNROLL for (int j = 0; j < WIDES; j++) sums[j] += weights[s] * load(value + j * LANES);
        }
        UNROLL for (int j = 0; j < WIDES; j++) store(out + w + j * LANES, sums[j] * part);
    }
    for (; w < W; w += LANES) {
        wide sums = {0};
        for (int64_t s = 0; s < n; s++) sums += weights[s] * load_of(seen->values + slot(seen, s) * seen->value_row, w, W, 0.0f);
        store_of(out, w, W, sums * part);
    }
}

void NAME(attend)(const float *q, int64_t q_row, const float *keys, int64_t key_row, const float *values, int64_t value_row,
                  const int32_t *slots, int64_t slots_row, const int32_t *firsts, const int32_t *counts, float scale, float *out,
                  int64_t out_row, float *weights, int64_t weights_row, float *scores, int64_t R, int64_t K, int64_t W) {
    for (int64_t r = 0; r < R; r++) {
        const int64_t n = counts[r];
        const Seen seen = {keys, values, key_row, value_row, slots ? 0 : firsts[r], slots ? slots + r * slots_row : 0, slots || r == 0};
        if (n <= 0) {
            memset(out + r * out_row, 0, (size_t)W * sizeof(float));
            continue;
        }
        if (K == 64) /* the usual width has a query that stays in registers */
            multiply_keys(q + r * q_row, &seen, scores, n, 64, W);
        else
            multiply_keys(q + r * q_row, &seen, scores, n, K, W);
        const float part = exponentials(scores, scale, n);
        add_values(&seen, scores, part, out + r * out_row, n, W);
        if (weights)
            for (int64_t s = 0; s < n; s++) weights[r * weights_row + s] = scores[s] * part;
    }
}
