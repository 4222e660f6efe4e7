/* Norms, activations and quantization of one set, and its table.

   Shapes: R rows, D width, F half the width of a gated layer. */

#include "set.h"

/* x of a partial register is computed in a copy, so that nothing behind the end is touched. */
#define EACH(count, body, last)                                                                                           \
    int64_t i = 0;                                                                                                      \
    for (; i + LANES <= (count); i += LANES) body;                                                                      \
    if (i < (count)) last;

static void add(float *x, const float *branch, int64_t count) {
    EACH(count, store(x + i, load(x + i) + load(branch + i)),
         store_some(x + i, count - i, load_some(x + i, count - i, 0.0f) + load_some(branch + i, count - i, 0.0f)))
}

/* The numbers of a row in 32 partial sums, of which 16 are added to the others in the end. */
#define SUM_ROW(sums, D, number)                                                                                                \
    {                                                                                                                           \
        wide more[PARTS] = {{0}};                                                                                               \
        int64_t i = 0;                                                                                                          \
        for (; i + 2 * SUMS <= (D); i += 2 * SUMS) {                                                                            \
            UNROLL for (int p = 0; p < PARTS; p++) {                                                                            \
                const wide v = load(out + i + p * LANES);                                                                       \
                sums[p] += number;                                                                                              \
            }                                                                                                                   \
            UNROLL for (int p = 0; p < PARTS; p++) {                                                                            \
                const wide v = load(out + i + SUMS + p * LANES);                                                                \
                more[p] += number;                                                                                              \
            }                                                                                                                   \
        }                                                                                                                       \
        for (int half = 0; i < (D); half = 1, i += SUMS)                                                                        \
            UNROLL for (int p = 0; p < PARTS; p++) {                                                                            \
                const wide v = load_of(out, i + p * LANES, D, mean);                                                            \
                if (half)                                                                                                       \
                    more[p] += number;                                                                                          \
                else                                                                                                            \
                    sums[p] += number;                                                                                          \
            }                                                                                                                   \
        UNROLL for (int p = 0; p < PARTS; p++) sums[p] += more[p];                                                              \
    }

static void add_norm(const float *x, const float *branch, const float *weight, const float *bias, float eps, float *out, int64_t R,
                     int64_t D) {
    for (int64_t r = 0; r < R; r++, x += D, out += D) {
        if (branch) {
            EACH(D, store(out + i, load(x + i) + load(branch + i)),
                 store_some(out + i, D - i, load_some(x + i, D - i, 0.0f) + load_some(branch + i, D - i, 0.0f)))
            branch += D;
        } else if (out != x)
            memcpy(out, x, (size_t)D * sizeof(float));
        wide sums[PARTS] = {{0}}, squares[PARTS] = {{0}};
        float mean = 0.0f;
        if (bias) {
            SUM_ROW(sums, D, v)
            mean = total(sums) / (float)D;
        }
        SUM_ROW(squares, D, (v - mean) * (v - mean))
        const float scale = 1.0f / __builtin_sqrtf(total(squares) / (float)D + eps);
        if (bias) {
            EACH(D, store(out + i, (load(out + i) - mean) * scale * load(weight + i) + load(bias + i)),
                 store_some(out + i, D - i, (load_some(out + i, D - i, 0.0f) - mean) * scale * load_some(weight + i, D - i, 0.0f) +
                                                load_some(bias + i, D - i, 0.0f)))
        } else {
            EACH(D, store(out + i, load(out + i) * scale * load(weight + i)),
                 store_some(out + i, D - i, load_some(out + i, D - i, 0.0f) * scale * load_some(weight + i, D - i, 0.0f)))
        }
    }
}

/* The error function within 2 units of the last place: x + x P(x^2) near zero, and 1 - exp(-t + t Q(t)) of t = |x| elsewhere.
   P has the smallest relative error below 0.93; Q, up to 4.1, beyond which 1 is nearest to the result. */
INLINE wide erf_of(wide x) {
    const wide t = fabs_of(x), s = x * x;
    wide far = t * -1.16123229e-5f + 3.26622860e-4f;
    far = far * t + -3.65801062e-3f;
    far = far * t + 2.37950087e-2f;
    far = far * t + -1.06275193e-1f;
    far = far * t + -6.35128081e-1f;
    far = far * t + -1.28654242e-1f;
    far = 1.0f - exp_of(far * t - t);
    far = (wide)((whole)far | ((whole)x & (whole)all(-0.0f)));
    wide near = s * -5.95374498e-4f + 4.98594157e-3f;
    near = near * s + -2.67617200e-2f;
    near = near * s + 1.12816826e-1f;
    near = near * s + -3.76124799e-1f;
    near = near * s + 1.28379151e-1f;
    near = near * x + x;
    return choose(t > 0.93f, far, near);
}
INLINE wide gelu_of(wide x) { return x * 0.5f * (1.0f + erf_of(x * 0.707106781f)); }
INLINE wide silu_of(wide x) { return x / (1.0f + exp_of(-x)); }

static void gelu(float *x, int64_t count) {
    EACH(count, store(x + i, gelu_of(load(x + i))), store_some(x + i, count - i, gelu_of(load_some(x + i, count - i, 0.0f))))
}

static void silu(float *x, int64_t count) {
    EACH(count, store(x + i, silu_of(load(x + i))), store_some(x + i, count - i, silu_of(load_some(x + i, count - i, 0.0f))))
}

static void gate(const float *x, float *out, int64_t R, int64_t F) {
    for (int64_t r = 0; r < R; r++, x += 2 * F, out += F) {
        EACH(F, store(out + i, silu_of(load(x + i)) * load(x + F + i)),
             store_some(out + i, F - i, silu_of(load_some(x + i, F - i, 0.0f)) * load_some(x + F + i, F - i, 0.0f)))
    }
}

/* 16 floats times a factor, as the nearest integers, ties to even. */
INLINE void round16(const wide *x, float factor, int8_t *to) {
    whole n[PARTS];
    UNROLL for (int p = 0; p < PARTS; p++) n[p] = (whole)((bits)(x[p] * factor + 12582912.0f) - 0x4b400000u); /* 1.5 * 2^23 */
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8((__m512i)n[0]));
#elif defined(__AVX2__)
    const __m256i pairs = _mm256_permute4x64_epi64(_mm256_packs_epi32((__m256i)n[0], (__m256i)n[1]), 0xd8);
    _mm_storeu_si128((__m128i *)to, _mm_packs_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1)));
#elif defined(__SSE2__)
    const __m128i low = _mm_packs_epi32((__m128i)n[0], (__m128i)n[1]), high = _mm_packs_epi32((__m128i)n[2], (__m128i)n[3]);
    _mm_storeu_si128((__m128i *)to, _mm_packs_epi16(low, high));
#else
    UNROLL for (int p = 0; p < PARTS; p++) *(bytes_anywhere *)(to + p * LANES) = __builtin_convertvector(n[p], bytes);
#endif
}

static void quantize(const float *x, int64_t x_row, int8_t *integers, float *scales, int64_t R, int64_t D) {
    const int64_t D8 = (D + 63) / 64 * 64;
    for (int64_t r = 0; r < R; r++, x += x_row, integers += D8) {
        whole most[PARTS] = {{0}}; /* magnitudes of floats compare like integers, and NaN is above infinity */
        for (int64_t i = 0; i < D; i += SUMS)
            UNROLL for (int p = 0; p < PARTS; p++) {
                const whole magnitude = (whole)fabs_of(load_of(x, i + p * LANES, D, 0.0f)), more = magnitude > most[p];
                most[p] = (more & magnitude) | (~more & most[p]);
            }
        int32_t largest_bits = 0;
        for (int i = 0; i < SUMS; i++) {
            const int32_t one = most[i / LANES][i % LANES];
            largest_bits = one > largest_bits ? one : largest_bits;
        }
        float magnitude;
        memcpy(&magnitude, &largest_bits, sizeof(magnitude));
        if (!(magnitude >= 1e-30f && magnitude < INFINITE)) { /* 127 / magnitude is not finite, or the row is not */
            for (int64_t i = 0; i < D8; i++) integers[i] = 0;
            scales[r] = magnitude < 1e-30f ? 0.0f : __builtin_nanf("");
            continue;
        }
        const float factor = 127.0f / magnitude;
        scales[r] = magnitude / 127.0f;
        for (int64_t i = 0; i < D8; i += SUMS) {
            wide some[PARTS];
            UNROLL for (int p = 0; p < PARTS; p++) some[p] = load_of(x, i + p * LANES, D, 0.0f);
            round16(some, factor, integers + i);
        }
    }
}

#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)
#define TABLE_(set) regard_set_##set
#define TABLE(set) TABLE_(set)

const RegardKernels *TABLE(REGARD_SET)(void) {
    static const RegardKernels table = {.name = TEXT(REGARD_SET),
                                        .panel_f32 = PANEL,
                                        .panel_int8 = PANEL,
                                        .size_f32 = NAME(size_f32),
                                        .pack_f32 = NAME(pack_f32),
                                        .times_f32 = NAME(times_f32),
                                        .size_int8 = NAME(size_int8),
                                        .pack_int8 = NAME(pack_int8),
                                        .quantize = quantize,
                                        .times_int8 = NAME(times_int8),
                                        .attend = NAME(attend),
                                        .add_norm = add_norm,
                                        .add = add,
                                        .gelu = gelu,
                                        .silu = silu,
                                        .gate = gate,
                                        .log_sum_exp = NAME(log_sum_exp),
                                        .best = NAME(best)};
    return &table;
}
