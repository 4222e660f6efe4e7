/* Products of 8-bit integers, exact, and their scales: out = (integers Wᵀ) * (x_scale * w_scale) + b.

   A packed W has, in each panel, four numbers of the width of each column next to each other: [D8 / 4, PANEL, 4].

   Shapes: R rows, D width in, D8 the same as a multiple of 64, F width out. */

#include "set.h"

#define PANEL PANEL_INT8
#define WIDES (PANEL / LANES)
#if defined(__AVX512VNNI__)
#define ROWS 12
#elif defined(__AVX2__)
#define ROWS 4
#elif defined(__aarch64__)
#define ROWS 8
#else
#define ROWS 4
#endif
#if defined(__AVX512VNNI__)
#define FLIP 0x80 /* the instruction multiplies unsigned by signed numbers: W is kept as weight + 128 */
#else
#define FLIP 0
#endif

INLINE int64_t padded(int64_t D) { return (D + 63) / 64 * 64; }

size_t NAME(size_int8)(int64_t D, int64_t F) { return (size_t)((F + PANEL - 1) / PANEL * PANEL * padded(D)); }

void NAME(pack_int8)(const int8_t *weight, void *packed, int64_t D, int64_t F) {
    uint8_t *to = packed;
    for (int64_t f = 0; f < F; f += PANEL)
        for (int64_t d = 0; d < padded(D); d += 4)
            for (int64_t j = f; j < f + PANEL; j++)
                for (int64_t i = d; i < d + 4; i++) *to++ = (uint8_t)(j < F && i < D ? weight[j * D + i] : 0) ^ FLIP;
}

/* sums + the products of four numbers of each column with four of a row. */
INLINE whole add_products(whole sums, whole w, whole x) {
#if defined(__AVX512VNNI__)
    return (whole)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)w, (__m512i)x);
#elif defined(__ARM_FEATURE_DOTPROD)
    return (whole)vdotq_s32((int32x4_t)sums, (int8x16_t)w, (int8x16_t)x);
#elif defined(__aarch64__)
    const int8x16_t a = (int8x16_t)w, b = (int8x16_t)x;
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return sums + (whole)vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
#else
    const shorts even_w = (shorts)((short_bits)w << 8) >> 8, even_x = (shorts)((short_bits)x << 8) >> 8;
    return sums + (sum_pairs(even_w, even_x) + sum_pairs((shorts)w >> 8, (shorts)x >> 8));
#endif
}

INLINE int32_t four(const int8_t *x) {
    int32_t value;
    memcpy(&value, x, 4);
    return value;
}

/* What FLIP adds to every sum of a row: 128 times the sum of its integers. */
INLINE int32_t excess(const int8_t *x, int64_t D8) {
    int32_t sum = 0;
    if (FLIP)
        for (int64_t d = 0; d < D8; d++) sum += x[d];
    return 128 * sum;
}

INLINE void tile(const int8_t *x, const float *x_scales, const int8_t *weight, const float *w_scales, const float *bias,
                 int activation, float *out, int64_t out_row, int64_t D8, int64_t columns, const int rows) {
    whole sums[ROWS][WIDES];
    UNROLL for (int i = 0; i < rows; i++) {
        const whole start = all_whole(-excess(x + i * D8, D8));
        UNROLL for (int j = 0; j < WIDES; j++) sums[i][j] = start;
    }
    for (int64_t d = 0; d < D8; d += 4) {
        whole w[WIDES];
        UNROLL for (int j = 0; j < WIDES; j++) w[j] = load_whole(weight + d * PANEL + j * LANES * 4);
        UNROLL for (int i = 0; i < rows; i++) {
            const whole some = all_whole(four(x + i * D8 + d));
            UNROLL for (int j = 0; j < WIDES; j++) sums[i][j] = add_products(sums[i][j], w[j], some);
        }
    }
    UNROLL for (int j = 0; j < WIDES; j++) {
        const int64_t left = columns - j * LANES;
        if (left <= 0) break;
        const wide scales = load_of(w_scales, j * LANES, columns, 0.0f);
        const wide more = bias ? load_of(bias, j * LANES, columns, 0.0f) : (wide){0};
        UNROLL for (int i = 0; i < rows; i++) {
            wide sum = __builtin_convertvector(sums[i][j], wide) * (scales * x_scales[i]) + more;
            if (activation == REGARD_RELU) sum = larger((wide){0}, sum);
            if (left >= LANES)
                store(out + i * out_row + j * LANES, sum);
            else
                store_some(out + i * out_row + j * LANES, left, sum);
        }
    }
}

void NAME(times_int8)(const int8_t *integers, const float *x_scales, const void *packed, const float *w_scales, const float *bias,
                      int activation, float *out, int64_t out_row, int64_t R, int64_t D, int64_t F, int64_t first, int64_t last) {
    const int8_t *weight = packed;
    const int64_t D8 = padded(D);
    int64_t block = BLOCK_BYTES / (D8 ? D8 : 1) / ROWS * ROWS;
    if (block < ROWS) block = ROWS;
    if (last * PANEL > F + PANEL - 1) last = (F + PANEL - 1) / PANEL;
    for (int64_t begin = 0; begin < R; begin += block) {
        const int64_t end = R - begin < block ? R : begin + block;
        for (int64_t panel = first; panel < last; panel++) {
            const int8_t *w = weight + panel * PANEL * D8;
            const float *scales = w_scales + panel * PANEL, *b = bias ? bias + panel * PANEL : 0;
            const int64_t columns = F - panel * PANEL < PANEL ? F - panel * PANEL : PANEL;
            for (int64_t r = begin; r < end;) {
                const int8_t *from = integers + r * D8;
                float *to = out + r * out_row + panel * PANEL;
#define TILE(rows)                                                                                                      \
    case rows:                                                                                                          \
        tile(from, x_scales + r, w, scales, b, activation, to, out_row, D8, columns, rows);                             \
        r += rows;                                                                                                      \
        break;
                switch (end - r < ROWS ? end - r : ROWS) {
                    TILE(1) TILE(2) TILE(3) TILE(4)
#if ROWS > 4
                    TILE(5) TILE(6) TILE(7) TILE(8)
#endif
#if ROWS > 8
                    TILE(9) TILE(10) TILE(11) TILE(12)
#endif
                }
            }
        }
    }
}
