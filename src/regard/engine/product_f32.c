/* Products of float32 matrices, x Wᵀ + b, for a W that was packed once.

   A tile of rows and one panel of columns keeps its sums in registers while the width is gone through. Each sum is made in the order of
   the width, one number after the other, whatever rows and columns share the tile: a row's result does not depend on its neighbours.
   With few rows several panels are computed at a time, since a register would wait for its own last sum.

   Shapes: R rows, D width in, F width out. */

#include "set.h"

#define PANEL PANEL_F32
#define WIDES (PANEL / LANES)
#if defined(__AVX512F__)
#define ROWS 12
#elif defined(__AVX2__)
#define ROWS 6
#elif defined(__aarch64__)
#define ROWS 8
#else
#define ROWS 4
#endif

size_t NAME(size_f32)(int64_t D, int64_t F) { return (size_t)((F + PANEL - 1) / PANEL * PANEL * D) * sizeof(float); }

/* W [F, D] as panels of [D, PANEL]. */
void NAME(pack_f32)(const float *weight, void *packed, int64_t D, int64_t F) {
    float *to = packed;
    for (int64_t f = 0; f < F; f += PANEL)
        for (int64_t d = 0; d < D; d++)
            for (int64_t j = f; j < f + PANEL; j++) *to++ = j < F ? weight[j * D + d] : 0.0f;
}

INLINE wide multiply_add(wide a, wide b, wide sum) {
#if defined(__AVX512F__)
    return (wide)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__FMA__)
    return (wide)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#elif defined(__aarch64__)
    return (wide)vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + sum;
#endif
}

/* `rows` of out from column f on, of `panels` panels. */
INLINE void tile(const float *x, int64_t x_row, const float *weight, const float *bias, int activation, float *out, int64_t out_row,
                 int64_t D, int64_t columns, const int rows, const int panels) {
    wide sums[ROWS][8];
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < panels * WIDES; j++) sums[i][j] = (wide){0};
    for (int64_t d = 0; d < D; d++) {
        wide w[8];
        UNROLL for (int j = 0; j < panels * WIDES; j++) w[j] = load(weight + j / WIDES * D * PANEL + d * PANEL + j % WIDES * LANES);
        UNROLL for (int i = 0; i < rows; i++) {
            const wide some = all(x[i * x_row + d]);
            UNROLL for (int j = 0; j < panels * WIDES; j++) sums[i][j] = multiply_add(some, w[j], sums[i][j]);
        }
    }
    UNROLL for (int j = 0; j < panels * WIDES; j++) {
        const int64_t left = columns - j * LANES;
        if (left <= 0) break;
        const wide more = bias ? load_of(bias, j * LANES, columns, 0.0f) : (wide){0};
        UNROLL for (int i = 0; i < rows; i++) {
            wide sum = sums[i][j] + more;
            if (activation == REGARD_RELU) sum = larger((wide){0}, sum);
            if (left >= LANES)
                store(out + i * out_row + j * LANES, sum);
            else
                store_some(out + i * out_row + j * LANES, left, sum);
        }
    }
}

void NAME(times_f32)(const float *x, int64_t x_row, const void *packed, const float *bias, int activation, float *out, int64_t out_row,
                     int64_t R, int64_t D, int64_t F, int64_t first, int64_t last) {
    const float *weight = packed;
    int64_t block = BLOCK_BYTES / ((int64_t)sizeof(float) * (D ? D : 1)) / ROWS * ROWS;
    if (block < ROWS) block = ROWS;
    if (last * PANEL > F + PANEL - 1) last = (F + PANEL - 1) / PANEL;
    for (int64_t begin = 0; begin < R; begin += block) {
        const int64_t end = R - begin < block ? R : begin + block;
        for (int64_t panel = first; panel < last; panel++) {
            const float *w = weight + panel * PANEL * D, *b = bias ? bias + panel * PANEL : 0;
            const int64_t columns = F - panel * PANEL < PANEL ? F - panel * PANEL : PANEL;
            for (int64_t r = begin; r < end;) {
                const float *from = x + r * x_row;
                float *to = out + r * out_row + panel * PANEL;
#define TILE(rows)                                                                                                      \
    case rows:                                                                                                          \
        tile(from, x_row, w, b, activation, to, out_row, D, columns, rows, 1);                                          \
        r += rows;                                                                                                      \
        break;
                switch (end - r < ROWS ? end - r : ROWS) {
                    TILE(1) TILE(2) TILE(3) TILE(4)
#if ROWS > 4
                    TILE(5) TILE(6)
#endif
#if ROWS > 6
                    TILE(7) TILE(8)
#endif
#if ROWS > 8
                    TILE(9) TILE(10) TILE(11) TILE(12)
#endif
                }
            }
        }
    }
}
