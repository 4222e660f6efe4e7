/* Print a hash of what every kernel of every set computes, to compare processors: all lines of a case have to be equal.
   Products of floats are compared with sums of doubles instead. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "positions.h"

static uint64_t state;
static float number(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((int32_t)(state >> 33) - (1 << 30)) / (float)(1 << 29);
}
static float *numbers(int64_t count) {
    float *x = malloc((size_t)(count + 16) * sizeof(float));
    for (int64_t i = 0; i < count; i++) x[i] = number();
    return x;
}
static const char *set;
static void print(const char *name, int64_t a, int64_t b, int64_t c, const void *data, size_t size) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    printf("%s %lld %lld %lld %s %016llx\n", name, (long long)a, (long long)b, (long long)c, set, (unsigned long long)hash);
}

static void products(const RegardKernels *k, int64_t R, int64_t D, int64_t F) {
    const int64_t D8 = (D + 63) / 64 * 64;
    float *x = numbers(R * D), *weight = numbers(F * D), *scales = numbers(F), *bias = numbers(F), *out = numbers(R * F), x_scales[64];
    int8_t *integers = malloc((size_t)(R * D8)), *weight8 = malloc((size_t)(F * D));
    for (int64_t i = 0; i < F * D; i++) weight8[i] = (int8_t)(number() * 63.0f);
    void *packed = aligned_alloc(64, (k->size_int8(D, F) + 63) / 64 * 64), *packed_f32 = aligned_alloc(64, (k->size_f32(D, F) + 63) / 64 * 64);
    k->pack_int8(weight8, packed, D, F);
    k->pack_f32(weight, packed_f32, D, F);
    k->quantize(x, D, integers, x_scales, R, D);
    print("quantize", R, D, 0, integers, (size_t)(R * D8));
    print("scales", R, D, 0, x_scales, (size_t)R * sizeof(float));
    k->times_int8(integers, x_scales, packed, scales, bias, REGARD_RELU, out, F, R, D, F, 0, (F + k->panel_int8 - 1) / k->panel_int8);
    print("times_int8", R, D, F, out, (size_t)(R * F) * sizeof(float));
    k->times_f32(x, D, packed_f32, bias, 0, out, F, R, D, F, 0, (F + k->panel_f32 - 1) / k->panel_f32);
    double worst = 0;
    for (int64_t r = 0; r < R; r++)
        for (int64_t f = 0; f < F; f++) {
            double sum = bias[f], size = fabs(bias[f]);
            for (int64_t d = 0; d < D; d++) sum += (double)x[r * D + d] * weight[f * D + d], size += fabs((double)x[r * D + d] * weight[f * D + d]);
            worst = fmax(worst, fabs(sum - out[r * F + f]) / size);
        }
    const int good = worst < 1e-6;
    print("times_f32", R, D, F, &good, sizeof(good));
    free(x), free(weight), free(scales), free(bias), free(out), free(integers), free(weight8), free(packed), free(packed_f32);
}

static void attention(const RegardKernels *k, int64_t R, int64_t S, int64_t K, int64_t W) {
    float *q = numbers(R * K), *keys = numbers(S * K), *values = numbers(S * W), *out = numbers(R * W), *weights = numbers(R * S);
    float *scores = numbers(S + 16);
    int32_t firsts[64], counts[64], *slots = malloc((size_t)(R * S) * sizeof(int32_t));
    for (int64_t r = 0; r < R; r++) {
        firsts[r] = (int32_t)(r % S), counts[r] = (int32_t)(S - r % S);
        for (int64_t s = 0; s < S; s++) slots[r * S + s] = (int32_t)((s * 7 + r) % S);
    }
    for (int64_t i = 0; i < R * S; i++) weights[i] = 0;
    for (int way = 0; way < 3; way++) { /* slots, contiguous ones, and the same ones for all */
        if (way == 2)
            for (int64_t r = 0; r < R; r++) firsts[r] = 0, counts[r] = (int32_t)S;
        k->attend(q, K, keys, K, values, W, way ? 0 : slots, S, firsts, counts, 0.3f, out, W, weights, S, scores, R, K, W);
        print("attend", R, S, K * 10 + way, out, (size_t)(R * W) * sizeof(float));
        print("weights", R, S, K * 10 + way, weights, (size_t)(R * S) * sizeof(float));
    }
    free(q), free(keys), free(values), free(out), free(weights), free(scores), free(slots);
}

static void others(const RegardKernels *k, int64_t n) {
    float *x = numbers(6 * n), *branch = numbers(3 * n), *weight = numbers(n), *bias = numbers(n), *out = numbers(3 * n), *wide = numbers(n);
    k->add_norm(x, branch, weight, bias, 1e-5f, out, 3, n);
    print("add_norm", n, 0, 0, out, (size_t)(3 * n) * sizeof(float));
    k->add_norm(x, 0, weight, 0, 1e-5f, out, 3, n);
    print("rms_norm", n, 0, 0, out, (size_t)(3 * n) * sizeof(float));
    k->gate(x, out, 3, n);
    print("gate", n, 0, 0, out, (size_t)(3 * n) * sizeof(float));
    for (int64_t i = 0; i < n; i++) wide[i] *= 30.0f;
    memcpy(out, wide, (size_t)n * sizeof(float)), k->gelu(out, n);
    print("gelu", n, 0, 0, out, (size_t)n * sizeof(float));
    memcpy(out, wide, (size_t)n * sizeof(float)), k->silu(out, n);
    print("silu", n, 0, 0, out, (size_t)n * sizeof(float));
    const float sum = k->log_sum_exp(wide, n);
    print("log_sum_exp", n, 0, 0, &sum, sizeof(sum));
    float values[20];
    int32_t places[20];
    const int64_t found = k->best(wide, n, 20, values, places);
    print("best", n, found, 0, places, (size_t)found * sizeof(int32_t));
    free(x), free(branch), free(weight), free(bias), free(out), free(wide);
}

static void positions(void) {
    const int64_t firsts[] = {0, 1000, 2097088};
    float out[64 * 96];
    for (int32_t kind = REGARD_SINUSOID; kind <= REGARD_ROTARY; kind++)
        for (int i = 0; i < 3 && kind != REGARD_LEARNED; i++) {
            regard_positions(kind, 96, firsts[i], 64, out);
            print("positions", kind, firsts[i], 96, out, sizeof(out));
        }
}

int main(void) {
    const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 33}, widths[] = {1, 3, 64, 65, 300}, sizes[] = {1, 3, 16, 17, 64, 65, 1000, 5000};
    for (int64_t number = 0; number < regard_kernels_count(); number++) {
        const RegardKernels *k = regard_kernels(number);
        set = k->name;
        state = 1;
        for (int i = 0; i < 12; i++)
            for (int j = 0; j < 5; j++) products(k, rows[i], widths[j], j % 2 ? 17 : 70);
        for (int i = 0; i < 12; i++)
            for (int j = 0; j < 4; j++) attention(k, rows[i], j == 3 ? 600 : 1 + 20 * j, (int64_t[]){64, 3, 40, 64}[j], (int64_t[]){64, 65, 17, 32}[j]);
        for (int i = 0; i < 8; i++) others(k, sizes[i]);
        positions();
    }
}
