/* Attention of queries to the keys and values of one head.

   Shapes: R queries, K width of a key, W of a value, n slots that a query sees. */

#include "set.h"

INLINE float dot(const float *a, const float *b, int64_t n) {
    wide sums[PARTS] = {{0}};
    for (int64_t i = 0; i < n; i += SUMS)
        UNROLL for (int p = 0; p < PARTS; p++)
            sums[p] += load_of(a, i + p * LANES, n, 0.0f) * load_of(b, i + p * LANES, n, 0.0f);
    return total(sums);
}

/* Scores become their exponentials, less the largest; returns 1 / the sum. `scores` has 16 numbers behind its end. */
INLINE float exponentials(float *scores, int64_t n) {
    wide most = all(-INFINITE), sums[PARTS] = {{0}};
    for (int64_t i = n; i < n + SUMS; i++) scores[i] = -INFINITE;
    for (int64_t i = 0; i < n; i += LANES) most = larger(load(scores + i), most);
    most = all(largest(most));
    for (int64_t i = 0; i < n; i += SUMS)
        UNROLL for (int p = 0; p < PARTS; p++) {
            const wide weight = exp_of(load(scores + i + p * LANES) - most);
            store(scores + i + p * LANES, weight);
            sums[p] += weight;
        }
    return 1.0f / total(sums);
}

/* out = the sum of the values by their weights, times `part`. */
INLINE void add_values(const float *values, int64_t value_row, const int32_t *slots, int64_t first, const float *weights, float part,
                       float *out, int64_t n, int64_t W) {
    int64_t w = 0;
    for (; w + 4 * LANES <= W; w += 4 * LANES) {
        wide sums[4] = {{0}};
        for (int64_t s = 0; s < n; s++) {
            const float *value = values + (slots ? slots[s] : first + s) * value_row + w;
            UNROLL for (int j = 0; j < 4; j++) sums[j] += weights[s] * load(value + j * LANES);
        }
        UNROLL for (int j = 0; j < 4; j++) store(out + w + j * LANES, sums[j] * part);
    }
    for (; w < W; w += LANES) {
        wide sums = {0};
        for (int64_t s = 0; s < n; s++)
            sums += weights[s] * load_of(values + (slots ? slots[s] : first + s) * value_row, w, W, 0.0f);
        if (w + LANES <= W)
            store(out + w, sums * part);
        else
            store_some(out + w, W - w, sums * part);
    }
}

void NAME(attend)(const float *q, int64_t q_row, const float *keys, int64_t key_row, const float *values, int64_t value_row,
                  const int32_t *slots, int64_t slots_row, const int32_t *firsts, const int32_t *counts, float scale, float *out,
                  int64_t out_row, float *weights, int64_t weights_row, float *scores, int64_t R, int64_t K, int64_t W) {
    for (int64_t r = 0; r < R; r++) {
        const int64_t n = counts[r], first = slots ? 0 : firsts[r];
        const int32_t *seen = slots ? slots + r * slots_row : 0;
        if (n <= 0) {
            memset(out + r * out_row, 0, (size_t)W * sizeof(float));
            continue;
        }
        for (int64_t s = 0; s < n; s++) scores[s] = dot(q + r * q_row, keys + (seen ? seen[s] : first + s) * key_row, K) * scale;
        const float part = exponentials(scores, n);
        add_values(values, value_row, seen, first, scores, part, out + r * out_row, n, W);
        if (weights)
            for (int64_t s = 0; s < n; s++) weights[r * weights_row + s] = scores[s] * part;
    }
}
