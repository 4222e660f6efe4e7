/* What a step of search does between its large products, on one core of a CPU, for float32.

   Each function computes what a few lines of PyTorch in `nn.attention`, `nn.norms` and `decoding.ranking` compute, which
   remain the reference and the fallback. WIDES registers are worked on at a time, since one would wait for itself.

   Shapes: B sentences, Q beams, R = B * Q rows, H heads, K width of a key, W of a value, S slots, D width, V vocabulary,
           G groups of GROUP entries of the vocabulary, C candidates a sentence. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wide.h"

#define WIDES 4
#define STRIDE (WIDES * LANES)
#define LINE 16 /* numbers that come from memory together */
#define GROUP 64 /* entries of the vocabulary that have one bound */

/* exp(x - most) for x of at most `most`, to 2e-7 of it; for x of 87 less or more still 1e-38, next to nothing. */
static inline wide exp_of(wide x, wide most) {
    x = larger(all(-126.0f), (x - most) * 1.44269504088896341f); /* as a power of two */
    const wide shifted = x + 12582912.0f; /* 1.5 * 2^23: the nearest whole number is in its last bits */
    const wide rest = x - (shifted - 12582912.0f);
    wide power = rest * 1.534581242595e-4f + 1.339993090369e-3f; /* 2^rest, the best polynomial from -0.5 to 0.5 */
    power = power * rest + 9.618489071727e-3f;
    power = power * rest + 5.550328642130e-2f;
    power = power * rest + 2.402264624834e-1f;
    power = power * rest + 6.931471824646e-1f;
    power = power * rest + 1.0f;
    return (wide)((whole)power + ((whole)shifted << 23));
}

static inline float dot(const float *a, const float *b, int64_t n) {
    wide sums[WIDES] = {{0}};
    int64_t i = 0;
    for (; i + STRIDE <= n; i += STRIDE)
        for (int j = 0; j < WIDES; j++) sums[j] += load(a + i + j * LANES) * load(b + i + j * LANES);
    float sum = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* The sum of n values of W numbers, `seen` says where they are, by these weights, times `part`. */
static inline void add_up(const float *values, const int32_t *seen, const float *weights, float part, int64_t n, int64_t W,
                          float *out) {
    int64_t w = 0;
    for (; w + STRIDE <= W; w += STRIDE) {
        wide sums[WIDES] = {{0}};
        for (int64_t i = 0; i < n; i++)
            for (int j = 0; j < WIDES; j++) sums[j] += weights[i] * load(values + seen[i] * W + w + j * LANES);
        for (int j = 0; j < WIDES; j++) store(out + w + j * LANES, sums[j] * part);
    }
    for (; w < W; w++) {
        float sum = 0;
        for (int64_t i = 0; i < n; i++) sum += weights[i] * values[seen[i] * W + w];
        out[w] = sum * part;
    }
}

/* Attention of one token a row into its sentence's keys: out [R, H, W] of q [R, H, K] (rows q_row apart), keys [B * H, S, K] and
   values [B * H, S, W] (heads k_head and v_head apart) and a bias [B, Q, S] (0 apart where it is one for all), minus infinity
   for slots that are not looked at. Whether there was memory for it. */
int regard_look(const float *q, int64_t q_row, const float *keys, int64_t k_head, const float *values, int64_t v_head,
         const float *bias, int64_t bias_sentence, int64_t bias_row, int64_t bias_slot, float *out, int64_t B, int64_t Q,
         int64_t H, int64_t S, int64_t K, int64_t W) {
    const float scale = 1.0f / sqrtf((float)K);
    float *scores = malloc((S + LANES) * sizeof(float));
    int32_t *all_seen = malloc((Q * (S + 1) + 1) * sizeof(int32_t)); /* of each beam, which slots and how many */
    for (int64_t b = 0; scores && all_seen && b < B; b++) {
        const float *of_sentence = bias + b * bias_sentence;
        for (int64_t j = 0; j < Q; j++) {
            int32_t *seen = all_seen + j * (S + 1), n = 0;
            for (int64_t s = 0; s < S; s++) { /* without a branch, which nobody could foresee */
                seen[n] = (int32_t)s;
                n += of_sentence[j * bias_row + s * bias_slot] != -INFINITY;
            }
            seen[S] = n;
        }
        for (int64_t h = 0; h < H; h++) {
            const float *key = keys + (b * H + h) * k_head, *value = values + (b * H + h) * v_head;
            for (int64_t j = 0; j < Q; j++) {
                const int32_t *seen = all_seen + j * (S + 1), n = seen[S];
                const float *query = q + (b * Q + j) * q_row + h * K, *more = of_sentence + j * bias_row;
                float best = -INFINITY;
                for (int64_t i = 0; i < n; i++) {
                    for (int64_t k = 0; k < K; k += LINE) __builtin_prefetch(key + k_head + seen[i] * K + k);
                    for (int64_t w = 0; w < W; w += LINE) __builtin_prefetch(value + v_head + seen[i] * W + w);
                    scores[i] = dot(query, key + seen[i] * K, K) * scale + more[seen[i] * bias_slot];
                    best = scores[i] > best ? scores[i] : best;
                }
                for (int64_t i = n; i < n + LANES; i++) scores[i] = -INFINITY;
                wide sums = {0};
                for (int64_t i = 0; i < n; i += LANES) {
                    const wide weights = exp_of(load(scores + i), all(best));
                    store(scores + i, weights);
                    sums += weights;
                }
                add_up(value, seen, scores, 1.0f / sum_of(sums), n, W, out + ((b * Q + j) * H + h) * W);
            }
        }
    }
    const int enough = scores && all_seen;
    free(scores);
    free(all_seen);
    return enough;
}

/* Keys, or values, [R, H, K] (rows `row` apart) into the slots of their sentences, one behind the other from `slots` on: [B * H, _, K],
   heads `head` apart. */
void regard_write(const float *entries, int64_t row, float *slots, int64_t head, int64_t B, int64_t Q, int64_t H, int64_t K) {
    for (int64_t r = 0; r < B * Q; r++)
        for (int64_t h = 0; h < H; h++)
            memcpy(slots + (r / Q * H + h) * head + r % Q * K, entries + r * row + h * K, K * sizeof(float));
}

/* LayerNorm(x + out), or RMSNorm where there is no bias; rows of D numbers. */
void regard_add_norm(const float *x, float *out, const float *weight, const float *bias, float eps, int64_t R, int64_t D) {
    for (int64_t r = 0; r < R; r++, x += D, out += D) {
        wide sums[WIDES] = {{0}}, squares[WIDES] = {{0}};
        float sum = 0, square = 0;
        int64_t i = 0;
        for (; i + STRIDE <= D; i += STRIDE)
            for (int j = 0; j < WIDES; j++) {
                const wide both = load(x + i + j * LANES) + load(out + i + j * LANES);
                sums[j] += both;
                store(out + i + j * LANES, both);
            }
        for (; i < D; i++) sum += out[i] += x[i];
        for (int j = 0; j < WIDES; j++) sum += sum_of(sums[j]);
        const float mean = bias ? sum / (float)D : 0.0f;
        for (i = 0; i + STRIDE <= D; i += STRIDE)
            for (int j = 0; j < WIDES; j++) {
                const wide off = load(out + i + j * LANES) - mean;
                squares[j] += off * off;
            }
        for (; i < D; i++) square += (out[i] - mean) * (out[i] - mean);
        for (int j = 0; j < WIDES; j++) square += sum_of(squares[j]);
        const float scale = 1.0f / sqrtf(square / (float)D + eps);
        for (i = 0; i < D; i++) out[i] = (out[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0.0f);
    }
}

int64_t regard_group(void) { return GROUP; }

static inline int64_t end_of(int64_t group, int64_t V) { return (group + 1) * GROUP < V ? (group + 1) * GROUP : V; }

/* The largest entry of each group of each row, bounds [R, G], and, if wanted, the log of the sum of exp of each row.
   Rows lie one behind the other, `row` apart, entries side by side. */
void regard_bounds_of_rows(const float *logits, int64_t row, float *bounds, float *normalizer, int64_t R, int64_t V) {
    const int64_t G = (V + GROUP - 1) / GROUP;
    for (int64_t r = 0; r < R; r++, logits += row, bounds += G) {
        float best = -INFINITY;
        for (int64_t g = 0; g < G; g++) {
            const int64_t end = end_of(g, V);
            int64_t v = g * GROUP;
            wide mosts = all(-INFINITY);
            for (; v + LANES <= end; v += LANES) mosts = larger(mosts, load(logits + v));
            float most = largest_of(mosts);
            for (; v < end; v++) most = logits[v] > most ? logits[v] : most;
            bounds[g] = most;
            best = most > best ? most : best;
        }
        if (!normalizer) continue;
        double total = 0; /* one by one in float32 would lose digits: sums of groups do not */
        for (int64_t g = 0; g < G; g++) {
            const int64_t end = end_of(g, V);
            int64_t v = g * GROUP;
            wide sums[WIDES] = {{0}};
            for (; v + STRIDE <= end; v += STRIDE)
                for (int j = 0; j < WIDES; j++) sums[j] += exp_of(load(logits + v + j * LANES), all(best));
            total += sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
            for (; v < end; v++) total += exp_of(all(logits[v]), all(best))[0];
        }
        normalizer[r] = (float)(best + log(total));
    }
}

/* One entry of LANES rows that lie side by side, or of n, if they are fewer. */
static inline wide entry_of(const float *logits, int64_t n) {
    if (n >= LANES) return load(logits);
    wide some = {0};
    for (int64_t r = 0; r < n; r++) some[r] = logits[r];
    return some;
}

/* `bounds_of_rows` for n rows, `wides` wides of them, that lie side by side, `column` from one entry to the next. */
static inline void bounds_of_some(const float *logits, int64_t column, float *bounds, float *normalizer, int64_t V,
                                  const int wides, const int64_t n) {
    const int64_t G = (V + GROUP - 1) / GROUP;
    wide best[WIDES] = {{0}};
    for (int j = 0; j < wides; j++) best[j] = all(-INFINITY);
    for (int64_t g = 0; g < G; g++) {
        wide most[WIDES] = {{0}};
        for (int j = 0; j < wides; j++) most[j] = all(-INFINITY);
        for (int64_t v = g * GROUP; v < end_of(g, V); v++)
            for (int j = 0; j < wides; j++) most[j] = larger(most[j], entry_of(logits + v * column + j * LANES, n));
        for (int j = 0; j < wides; j++) best[j] = larger(best[j], most[j]);
        for (int64_t r = 0; r < n; r++) bounds[r * G + g] = most[r / LANES][r % LANES];
    }
    if (!normalizer) return;
    double total[STRIDE] = {0};
    for (int64_t g = 0; g < G; g++) {
        wide sums[WIDES] = {{0}};
        for (int64_t v = g * GROUP; v < end_of(g, V); v++)
            for (int j = 0; j < wides; j++) sums[j] += exp_of(entry_of(logits + v * column + j * LANES, n), best[j]);
        for (int64_t r = 0; r < n; r++) total[r] += sums[r / LANES][r % LANES];
    }
    for (int64_t r = 0; r < n; r++) normalizer[r] = (float)(best[r / LANES][r % LANES] + log(total[r]));
}

/* `bounds_of_rows` where rows lie side by side. */
void regard_bounds_of_columns(const float *logits, int64_t column, float *bounds, float *normalizer, int64_t R, int64_t V) {
    const int64_t G = (V + GROUP - 1) / GROUP;
    int64_t r = 0;
    for (; r + STRIDE <= R; r += STRIDE)
        bounds_of_some(logits + r, column, bounds + r * G, normalizer ? normalizer + r : 0, V, WIDES, STRIDE);
    for (; r + LANES <= R; r += LANES)
        bounds_of_some(logits + r, column, bounds + r * G, normalizer ? normalizer + r : 0, V, 1, LANES);
    if (r < R) bounds_of_some(logits + r, column, bounds + r * G, normalizer ? normalizer + r : 0, V, 1, R - r);
}

/* The C best entries of each sentence's Q rows, best first, each plus what its row has (more [R]): their scores, entries and rows,
   [B, C]. Groups whose bound is too low are not looked at. Where there are too few: minus infinity, and the entry `none`. */
void regard_best_entries(const float *logits, int64_t row, int64_t column, const float *bounds, const float *more, float *scores,
                  int64_t *entries, int64_t *rows, int64_t B, int64_t Q, int64_t V, int64_t C, int64_t none) {
    const int64_t G = (V + GROUP - 1) / GROUP;
    for (int64_t b = 0; b < B; b++, scores += C, entries += C, rows += C) {
        for (int64_t c = 0; c < C; c++) scores[c] = -INFINITY, entries[c] = none, rows[c] = b * Q;
        for (int64_t r = b * Q; r < (b + 1) * Q; r++)
            for (int64_t g = 0; g < G; g++) {
                if (!(bounds[r * G + g] + more[r] > scores[C - 1])) continue;
                for (int64_t v = g * GROUP; v < end_of(g, V); v++) {
                    const float score = logits[r * row + v * column] + more[r];
                    if (!(score > scores[C - 1])) continue;
                    int64_t c = C - 1;
                    for (; c > 0 && score > scores[c - 1]; c--)
                        scores[c] = scores[c - 1], entries[c] = entries[c - 1], rows[c] = rows[c - 1];
                    scores[c] = score, entries[c] = v, rows[c] = r;
                }
            }
    }
}
