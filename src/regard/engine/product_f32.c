/* Products of float32 matrices, x Wᵀ + b, for a W that was packed once.

   Shapes: R rows, D width in, F width out. */

#include "set.h"

#define W_UNIT 4

typedef wide Sum;
typedef wide Weights;
typedef struct {
    const float *bias, *w_scales; /* there are no scales */
    int activation;
    float *out;
    int64_t out_row, F;
} Call;

INLINE Weights load_weights(const char *weight) { return (wide)load_whole(weight); }

INLINE Sum multiply(Sum sum, Weights w, Sum x) {
#if defined(__AVX512F__)
    return (wide)_mm512_fmadd_ps((__m512)x, (__m512)w, (__m512)sum);
#elif defined(__FMA__)
    return (wide)_mm256_fmadd_ps((__m256)x, (__m256)w, (__m256)sum);
#elif defined(__aarch64__)
    return (wide)vfmaq_f32((float32x4_t)sum, (float32x4_t)x, (float32x4_t)w);
#else
    return sum + x * w;
#endif
}

#if defined(__aarch64__)
/* Written as an instruction: compilers copy the sums of intrinsics from register to register, which takes a fifth of the time. */
INLINE Sum multiply_lane(Sum sum, Weights w, Sum x, const int lane) {
#define LANE(n) __asm__("fmla %0.4s, %1.4s, %2.s[" #n "]" : "+w"(sum) : "w"(w), "w"(x)); return sum
    switch (lane) { /* the instruction holds its number */
        case 0: LANE(0);
        case 1: LANE(1);
        case 2: LANE(2);
        default: LANE(3);
    }
}
#endif

#include "tiles.h"

INLINE void finish(const Sum *sums, const Call *call, const Part *part, int i, int p, const int wides) {
    UNROLL for (int j = 0; j < wides; j++) {
        wide sum = sums[j];
        if (part->bias) sum += load(part->bias + p * PANEL + j * LANES);
        if (call->activation == REGARD_RELU) sum = larger((wide){0}, sum);
        store(part->out + i * part->out_row + p * PANEL + j * LANES, sum);
    }
}

size_t NAME(size_f32)(int64_t D, int64_t F) { return (size_t)((F + PANEL - 1) / PANEL * PANEL * D) * sizeof(float); }

void NAME(pack_f32)(const float *weight, void *packed, int64_t D, int64_t F) {
    float *to = packed;
    for (int64_t f = 0; f < F; f += PANEL)
        for (int64_t d = 0; d < D; d++)
            for (int64_t j = f; j < f + PANEL; j++) *to++ = j < F ? weight[j * D + d] : 0.0f;
}

void NAME(times_f32)(const float *x, int64_t x_row, const void *packed, const float *bias, int activation, float *out, int64_t out_row,
                     int64_t R, int64_t D, int64_t F, int64_t first, int64_t last) {
    const Call call = {bias, 0, activation, out, out_row, F};
    char *scratch = regard_scratch();
    /* Rows that are a multiple of 4 KiB apart would compete for the same lines of the first cache: they are copied. */
    const int64_t spread = (D + 2 * SUMS) * (int64_t)sizeof(float);
    const int copied = LANES == 16 && R > 6 && x_row % 1024 == 0 && last - first >= 4 && spread * ROWS <= REGARD_SCRATCH;
    const int64_t block = rows_of_block(R, copied ? REGARD_SCRATCH / spread : BLOCK_BYTES / (D * (int64_t)sizeof(float) + 1));
    for (int64_t r = 0; r < R; r += block) {
        const int64_t rows = R - r < block ? R - r : block;
        const float *from = x + r * x_row;
        if (copied)
            for (int64_t i = 0; i < rows; i++) memcpy(scratch + i * spread, from + i * x_row, (size_t)D * sizeof(float));
        all_tiles(copied ? scratch : (const char *)from, copied ? spread : x_row * (int64_t)sizeof(float), packed, D, first, last, &call,
                  r, rows);
    }
}
