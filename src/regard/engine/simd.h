/* Vectors of floats and integers with GCC's and Clang's vector extensions, so that one source serves every processor.

   A `wide` is one register of LANES floats. Code that works on each number alone may use any LANES. A sum of many numbers depends
   on its order, so sums are made in SUMS = 16 partial sums on every processor (number i goes into partial sum i % 16), kept in
   PARTS registers and added in the order of `total`. Files that include this one are compiled with -ffp-contract=off. */

#ifndef REGARD_SIMD_H
#define REGARD_SIMD_H

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
#define SUMS 16
#define PARTS (SUMS / LANES)

#define INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define JOIN_(a, b, c) a##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(function) JOIN(regard_, REGARD_SET, function) /* a function of this set */

typedef float wide __attribute__((vector_size(4 * LANES)));
typedef int32_t whole __attribute__((vector_size(4 * LANES)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef int16_t shorts __attribute__((vector_size(4 * LANES)));
typedef uint16_t short_bits __attribute__((vector_size(4 * LANES)));
typedef int8_t bytes __attribute__((vector_size(LANES)));
typedef float anywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* a wide at any address of a float */
typedef int32_t whole_anywhere __attribute__((vector_size(4 * LANES), aligned(1), may_alias));
typedef int8_t bytes_anywhere __attribute__((vector_size(LANES), aligned(1), may_alias));

#define INFINITE __builtin_inff()

INLINE wide load(const float *x) { return *(const anywhere *)x; }
INLINE void store(float *x, wide value) { *(anywhere *)x = value; }
INLINE whole load_whole(const void *x) { return *(const whole_anywhere *)x; }
INLINE wide all(float x) { return x - (wide){0}; } /* x - 0 is x, also for -0 */
INLINE whole all_whole(int32_t x) { return x + (whole){0}; }
INLINE wide choose(whole mask, wide yes, wide no) { return (wide)((mask & (whole)yes) | (~mask & (whole)no)); }

/* a > b ? a : b in each lane: b if one is not a number, and b of two zeros. */
INLINE wide larger(wide a, wide b) {
#if defined(__AVX512F__)
    return (wide)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (wide)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (wide)_mm_max_ps((__m128)a, (__m128)b);
#elif defined(__wasm_simd128__)
    return (wide)wasm_f32x4_pmax((v128_t)b, (v128_t)a);
#else
    return choose(a > b, a, b); /* Arm's maximum treats zeros and NaN differently */
#endif
}

INLINE wide fabs_of(wide x) { return (wide)((whole)x & 0x7fffffff); }

/* Whether a mask has a lane that is set. */
INLINE int any(whole mask) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#elif defined(__SSE2__)
    return _mm_movemask_epi8((__m128i)mask) != 0;
#elif defined(__aarch64__)
    return vmaxvq_u32((uint32x4_t)mask) != 0;
#elif defined(__wasm_simd128__)
    return wasm_v128_any_true((v128_t)mask);
#else
    return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
#endif
}

/* Sums of neighbours' products: a[0] * b[0] + a[1] * b[1], a[2] * b[2] + a[3] * b[3], ... */
INLINE whole sum_pairs(shorts a, shorts b) {
#if defined(__AVX512BW__)
    return (whole)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (whole)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (whole)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif defined(__wasm_simd128__)
    return (whole)wasm_i32x4_dot_i16x8((v128_t)a, (v128_t)b);
#else
    const whole low_a = (whole)((bits)a << 16) >> 16, low_b = (whole)((bits)b << 16) >> 16;
    return low_a * low_b + ((whole)a >> 16) * ((whole)b >> 16);
#endif
}

/* n < LANES floats, the rest `filler`. */
INLINE wide load_some(const float *x, int64_t n, float filler) {
    float some[LANES];
    for (int64_t i = 0; i < LANES; i++) some[i] = i < n ? x[i] : filler;
    return load(some);
}
INLINE void store_some(float *x, int64_t n, wide value) {
    float some[LANES];
    store(some, value);
    for (int64_t i = 0; i < n; i++) x[i] = some[i];
}
/* The numbers i .. i + LANES of n, `filler` behind the end. */
INLINE wide load_of(const float *x, int64_t i, int64_t n, float filler) {
    return i + LANES <= n ? load(x + i) : i < n ? load_some(x + i, n - i, filler) : all(filler);
}
INLINE void store_of(float *x, int64_t i, int64_t n, wide value) {
    if (i + LANES <= n)
        store(x + i, value);
    else
        store_some(x + i, n - i, value);
}

/* The sum of 16 partial sums: halves are added until one is left. */
INLINE float total(const wide *sums) {
    float s[SUMS];
    for (int p = 0; p < PARTS; p++) store(s + p * LANES, sums[p]);
    for (int half = SUMS / 2; half; half /= 2)
        for (int i = 0; i < half; i++) s[i] += s[i + half];
    return s[0];
}
INLINE float largest(wide x) {
    float s[LANES];
    store(s, x);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) s[i] = s[i] > s[i + half] ? s[i] : s[i + half];
    return s[0];
}

/* The sums of four times 16 partial sums, which come in the order of `total`, as four floats. */
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE __builtin_shufflevector
INLINE void four_totals(const wide sums[4][PARTS], float *to) {
    typedef float quad __attribute__((vector_size(16)));
    quad result;
#if LANES == 16
    const wide a = sums[0][0], b = sums[1][0], c = sums[2][0], d = sums[3][0];
    const wide ab = SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                    SHUFFLE(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    const wide cd = SHUFFLE(c, d, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                    SHUFFLE(c, d, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    wide t = SHUFFLE(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
             SHUFFLE(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    t += SHUFFLE(t, t, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    t += SHUFFLE(t, t, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    result = SHUFFLE(t, t, 0, 4, 8, 12);
#elif LANES == 8
    const wide a = sums[0][0] + sums[0][1], b = sums[1][0] + sums[1][1], c = sums[2][0] + sums[2][1], d = sums[3][0] + sums[3][1];
    const wide ab = SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    const wide cd = SHUFFLE(c, d, 0, 1, 2, 3, 8, 9, 10, 11) + SHUFFLE(c, d, 4, 5, 6, 7, 12, 13, 14, 15);
    wide t = SHUFFLE(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) + SHUFFLE(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
    t += SHUFFLE(t, t, 1, 0, 3, 2, 5, 4, 7, 6);
    result = SHUFFLE(t, t, 0, 4, 2, 6);
#else
    wide k[4];
    UNROLL for (int i = 0; i < 4; i++) k[i] = (sums[i][0] + sums[i][2]) + (sums[i][1] + sums[i][3]);
    const wide ab = SHUFFLE(k[0], k[1], 0, 1, 4, 5) + SHUFFLE(k[0], k[1], 2, 3, 6, 7);
    const wide cd = SHUFFLE(k[2], k[3], 0, 1, 4, 5) + SHUFFLE(k[2], k[3], 2, 3, 6, 7);
    result = SHUFFLE(ab, cd, 0, 2, 4, 6) + SHUFFLE(ab, cd, 1, 3, 5, 7);
#endif
    memcpy(to, &result, sizeof(result));
}
#else
INLINE void four_totals(const wide sums[4][PARTS], float *to) {
    for (int i = 0; i < 4; i++) to[i] = total(sums[i]);
}
#endif

/* exp(x) from -87.3 to 88.3 within 1.5 units of the last place; NaN stays NaN. */
INLINE wide exp_inside(wide x) {
    const wide shifted = x * 1.44269504f + 12582912.0f; /* + 1.5 * 2^23: the nearest integer is in its last bits */
    const wide power = shifted - 12582912.0f;
    const wide rest = (x - power * 0.693359375f) - power * -2.12194440e-4f; /* x - power * log(2); the first product is exact */
    wide y = rest * 1.38144556e-3f + 8.36878549e-3f; /* (exp(rest) - 1 - rest) / rest^2, to 3e-9 of exp(rest) */
    y = y * rest + 4.16683964e-2f;
    y = y * rest + 1.66665196e-1f;
    y = y * rest + 4.99999940e-1f;
    y = (y * (rest * rest) + rest) + 1.0f;
    return y * (wide)(((bits)shifted << 23) + (127u << 23));
}

/* exp(x), at most exp(88.3), and 0 below the smallest normal number. */
INLINE wide exp_of(wide x) {
    const whole keep = ~(x < -87.3f);
    return (wide)((whole)exp_inside(choose(x > 88.3f, all(88.3f), x)) & keep);
}

/* exp(x) of x up to 0; at least exp(-87.3), which is nothing next to the 1 of the largest. */
INLINE wide exp_below(wide x) { return exp_inside(larger(all(-87.3f), x)); }

#endif
