/* The numerical kernels of the engine, one set per kind of processor.

   The files that implement it are compiled once per set, with other flags (PER_SET in `build.py`). The engine calls a set through this
   table and chooses it at run time, so one library runs on every processor.

   Results of a row never depend on other rows. Everything but `times_f32` gives the same bits in all sets: sums of floats are made in
   LANES = 16 partial sums that are added in one order, nothing is contracted to fused multiply-adds, and integer sums are exact. So a
   model of 8-bit integers has the same log-probabilities on every processor.

   Shapes: R rows, D width in, F width out, K width of a key, W of a value, S slots, V vocabulary. */

#ifndef REGARD_KERNELS_H
#define REGARD_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum { REGARD_NO_ACTIVATION, REGARD_RELU };

typedef struct {
    const char *name; /* "avx512vnni", "avxvnni", "avx2", "neon_dotprod", "neon", "wasm", "scalar" */

    /* Products x Wᵀ + b. A packed W [F, D] consists of panels of `panel` columns of the output; the last one is filled up with zeros.
       `times_*` computes the columns of the panels from `first` up to `last`, so that threads can share a product.
       `out` has `out_row` numbers per row; only columns below F are written. `bias` may be null. */
    int64_t panel_f32, panel_int8;
    size_t (*size_f32)(int64_t D, int64_t F); /* bytes of a packed W */
    void (*pack_f32)(const float *weight, void *packed, int64_t D, int64_t F);
    void (*times_f32)(const float *x, int64_t x_row, const void *packed, const float *bias, int activation, float *out,
                      int64_t out_row, int64_t R, int64_t D, int64_t F, int64_t first, int64_t last);

    /* The same with 8-bit integers. Rows of W and of x have a scale each: row f of W is weight[f] * scale[f]. `quantize` gives each row
       of x as D8 = 64 * ceil(D / 64) integers from -127 to 127, the rest zeros, and its scale: the largest magnitude / 127. */
    size_t (*size_int8)(int64_t D, int64_t F);
    void (*pack_int8)(const int8_t *weight, void *packed, int64_t D, int64_t F);
    void (*quantize)(const float *x, int64_t x_row, int8_t *integers, float *scales, int64_t R, int64_t D);
    void (*times_int8)(const int8_t *integers, const float *x_scales, const void *packed, const float *w_scales, const float *bias,
                       int activation, float *out, int64_t out_row, int64_t R, int64_t D, int64_t F, int64_t first, int64_t last);

    /* Attention of R queries of one head to its keys [S, K] and values [S, W], `key_row` and `value_row` apart:
       out = softmax(q kᵀ * scale) v.
       Query r sees counts[r] slots: slots[r * slots_row + 0 .. counts[r]), or, without `slots`, the slots from firsts[r] on.
       `scores` is work space of at least the largest count + 16 numbers. With `weights` (rows `weights_row` apart) the softmax of the
       seen slots is kept too. A query that sees nothing gives zeros. */
    void (*attend)(const float *q, int64_t q_row, const float *keys, int64_t key_row, const float *values, int64_t value_row,
                   const int32_t *slots, int64_t slots_row, const int32_t *firsts, const int32_t *counts, float scale, float *out,
                   int64_t out_row, float *weights, int64_t weights_row, float *scores, int64_t R, int64_t K, int64_t W);

    /* out = LayerNorm(x + branch), or RMSNorm without a bias; `branch` may be null; out may be x or branch. Rows are D apart. */
    void (*add_norm)(const float *x, const float *branch, const float *weight, const float *bias, float eps, float *out, int64_t R,
                     int64_t D);
    void (*add)(float *x, const float *branch, int64_t count); /* x += branch */
    void (*gelu)(float *x, int64_t count); /* x * Phi(x), exact (erf), in place */
    void (*silu)(float *x, int64_t count); /* x / (1 + exp(-x)), in place */
    void (*gate)(const float *x, float *out, int64_t R, int64_t F); /* rows of x are [2 F]: out = silu(first half) * second half */

    /* The logarithm of the sum of exp of n entries, computed in groups as the engine's search needs it; and of the largest
       entries the `count` best, best first, among equal ones the earlier first. Entries of minus infinity are never returned;
       returns how many were found. */
    float (*log_sum_exp)(const float *x, int64_t n);
    int64_t (*best)(const float *x, int64_t n, int64_t count, float *values, int32_t *places);
} RegardKernels;

#pragma GCC visibility push(default)
/* The sets that are compiled in and that this processor supports, the fastest first; the number of them. */
int64_t regard_kernels_count(void);
const RegardKernels *regard_kernels(int64_t number);
#pragma GCC visibility pop

#endif
