/* As many numbers as a register holds, with GCC's vectors, which Clang knows as well. */

#include <stdint.h>
#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float wide __attribute__((vector_size(4 * LANES)));
typedef int32_t whole __attribute__((vector_size(4 * LANES)));
typedef float anywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* a wide that begins at any number */

static inline wide load(const float *x) { return *(const anywhere *)x; }

static inline void store(float *x, wide value) { *(anywhere *)x = value; }

static inline wide all(float x) { return x - (wide){0}; }

/* The larger ones; b where one is not a number (Arm: what is not a number). */
static inline wide larger(wide a, wide b) {
#if defined(__AVX512F__)
    return (wide)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (wide)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__ARM_NEON)
    return (wide)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
#else
    const whole first = a > b;
    return (wide)((first & (whole)a) | (~first & (whole)b));
#endif
}

static inline float sum_of(wide x) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

static inline float largest_of(wide x) {
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
}
