/* Products of 8-bit integers, exact, and their scales: out = (integers Wᵀ) * (x_scale * w_scale) + b.

   Four kinds of instructions are used:
     x86 with VNNI   sums of four products of unsigned by signed 8-bit integers: W is kept as weight + 128
     Arm, dotprod    sums of four products of signed 8-bit integers
     Arm, others     products of 16-bit integers
     others          sums of two products of 16-bit integers (8-bit ones would saturate)
   16-bit integers are made from x in a copy, and from W when it is loaded.

   Shapes: R rows, D width in, D8 the same as a multiple of 64, F width out. */

#include "set.h"

#if LANES == 16 && defined(__AVX512VNNI__) || LANES == 8 && defined(__AVXVNNI__)
#define VNNI
#endif
#if defined(VNNI) || defined(__ARM_FEATURE_DOTPROD)
#define IN_UNIT 4 /* numbers of the width in a unit */
#else
#define IN_UNIT 2
#endif
#define W_UNIT IN_UNIT
#if defined(VNNI)
#define FLIP 0x80
#else
#define FLIP 0
#endif

typedef whole Sum;
typedef whole Weights;
typedef struct {
    const float *bias, *w_scales, *x_scales;
    int activation;
    float *out;
    int64_t out_row, F;
    int32_t *excess; /* what FLIP adds to every sum of a row: 128 times the sum of its integers */
    int64_t excess_from;
} Call;

INLINE Weights load_weights(const char *weight) {
#if IN_UNIT == 4
    return load_whole(weight);
#elif defined(__AVX2__)
    return (whole)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)weight));
#elif defined(__SSE2__)
    const __m128i eight = _mm_loadl_epi64((const __m128i *)weight);
    return (whole)_mm_srai_epi16(_mm_unpacklo_epi8(eight, eight), 8);
#elif defined(__aarch64__)
    return (whole)vmovl_s8(vld1_s8((const int8_t *)weight));
#elif defined(__wasm_simd128__)
    return (whole)wasm_i16x8_load8x8(weight);
#else
    shorts wider;
    for (int i = 0; i < 2 * LANES; i++) wider[i] = ((const int8_t *)weight)[i];
    return (whole)wider;
#endif
}

INLINE Sum multiply(Sum sum, Weights w, Sum x) {
#if defined(VNNI) && LANES == 16
    return (whole)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
#elif defined(VNNI)
    return (whole)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, (__m256i)x);
#elif defined(__ARM_FEATURE_DOTPROD)
    return (whole)vdotq_s32((int32x4_t)sum, (int8x16_t)w, (int8x16_t)x);
#elif defined(__aarch64__)
    const int32x4_t low = vmlal_lane_s16((int32x4_t)sum, vget_low_s16((int16x8_t)w), vget_low_s16((int16x8_t)x), 0);
    return (whole)vmlal_high_laneq_s16(low, (int16x8_t)w, (int16x8_t)x, 1);
#else
    return sum + sum_pairs((shorts)w, (shorts)x);
#endif
}

#if defined(__aarch64__)
INLINE Sum multiply_lane(Sum sum, Weights w, Sum x, const int lane) {
    switch (lane) { /* the instruction holds its number */
#if defined(__ARM_FEATURE_DOTPROD)
/* Written as an instruction for the same reason as in product_f32.c. */
#define LANE(n) __asm__("sdot %0.4s, %1.16b, %2.4b[" #n "]" : "+w"(sum) : "w"(w), "w"(x)); return sum
#else
#define LANE(n)                                                                                                                 \
    return (whole)vmlal_high_laneq_s16(                                                                                         \
        vmlal_laneq_s16((int32x4_t)sum, vget_low_s16((int16x8_t)w), (int16x8_t)x, 2 * n), (int16x8_t)w, (int16x8_t)x, 2 * n + 1)
#endif
        case 0: LANE(0);
        case 1: LANE(1);
        case 2: LANE(2);
        default: LANE(3);
    }
}
#endif

#include "tiles.h"

INLINE void finish(const Sum *sums, const Call *call, const Part *part, int i, int p, const int wides) {
    const float x_scale = call->x_scales[part->r + i];
    const int32_t excess = FLIP ? call->excess[part->r + i - call->excess_from] : 0;
    UNROLL for (int j = 0; j < wides; j++) {
        const int64_t column = p * PANEL + j * LANES;
        wide sum = __builtin_convertvector(sums[j] - excess, wide) * (load(part->w_scales + column) * x_scale);
        sum += part->bias ? load(part->bias + column) : (wide){0};
        if (call->activation == REGARD_RELU) sum = larger((wide){0}, sum);
        store(part->out + i * part->out_row + column, sum);
    }
}

INLINE int64_t padded(int64_t D) { return (D + 63) / 64 * 64; }

size_t NAME(size_int8)(int64_t D, int64_t F) { return (size_t)((F + PANEL - 1) / PANEL * PANEL * padded(D)); }

/* Where number k of the width of column j lies in a unit. */
INLINE int64_t place(int64_t j, int64_t k) {
#if defined(__aarch64__) && IN_UNIT == 2
    return j / 4 * 8 + k * 4 + j % 4; /* each half of a register has one number of four columns */
#else
    return j * IN_UNIT + k;
#endif
}

void NAME(pack_int8)(const int8_t *weight, void *packed, int64_t D, int64_t F) {
    uint8_t *unit = packed;
    for (int64_t f = 0; f < F; f += PANEL)
        for (int64_t d = 0; d < padded(D); d += IN_UNIT, unit += PANEL * IN_UNIT)
            for (int64_t j = 0; j < PANEL; j++)
                for (int64_t k = 0; k < IN_UNIT; k++)
                    unit[place(j, k)] = (uint8_t)(f + j < F && d + k < D ? weight[(f + j) * D + d + k] : 0) ^ FLIP;
}

#if IN_UNIT == 2
/* Rows that are too long for the copy. */
static void long_rows(const int8_t *x, const int8_t *weight, const Call *call, int64_t R, int64_t D8, int64_t first, int64_t last) {
    for (int64_t r = 0; r < R; r++)
        for (int64_t f = first * PANEL; f < last * PANEL && f < call->F; f++) {
            int32_t total_of_row = 0;
            for (int64_t d = 0; d < D8; d++)
                total_of_row += x[r * D8 + d] * weight[f / PANEL * PANEL * D8 + d / 2 * (PANEL * 2) + place(f % PANEL, d % 2)];
            float sum = (float)total_of_row * (call->w_scales[f] * call->x_scales[r]) + (call->bias ? call->bias[f] : 0.0f);
            if (call->activation == REGARD_RELU) sum = 0.0f > sum ? 0.0f : sum;
            call->out[r * call->out_row + f] = sum;
        }
}
#endif

void NAME(times_int8)(const int8_t *integers, const float *x_scales, const void *packed, const float *w_scales, const float *bias,
                      int activation, float *out, int64_t out_row, int64_t R, int64_t D, int64_t F, int64_t first, int64_t last) {
    int32_t excess[MOST_ROWS];
    Call call = {bias, w_scales, x_scales, activation, out, out_row, F, excess, 0};
    const int64_t D8 = padded(D), x_row = D8 * 4 / IN_UNIT;
    const int64_t most = (IN_UNIT == 4 ? BLOCK_BYTES : REGARD_SCRATCH) / (x_row + 1), block = rows_of_block(R, most);
#if IN_UNIT == 2
    if (most < ROWS) {
        long_rows(integers, packed, &call, R, D8, first, last);
        return;
    }
#endif
    for (int64_t r = 0; r < R; r += block) {
        const int64_t rows = R - r < block ? R - r : block;
        call.excess_from = r;
        const int8_t *from = integers + r * D8;
#if IN_UNIT == 2
        int16_t *wider = (int16_t *)regard_scratch();
        for (int64_t i = 0; i < rows * D8; i++) wider[i] = from[i];
        all_tiles((const char *)wider, x_row, packed, D8 / IN_UNIT, first, last, &call, r, rows);
#else
        for (int64_t i = 0; FLIP && i < rows; i++) {
            int32_t sum = 0;
            for (int64_t d = 0; d < D8; d++) sum += from[i * D8 + d];
            excess[i] = 128 * sum;
        }
        all_tiles((const char *)from, x_row, packed, D8 / IN_UNIT, first, last, &call, r, rows);
#endif
    }
}
