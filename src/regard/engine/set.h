/* The functions of one set, which `kernels.c` puts into its table. */

#ifndef REGARD_SET_H
#define REGARD_SET_H

#include "kernels.h"
#include "scratch.h"
#include "simd.h"

#if LANES == 16
#define PANEL (3 * LANES) /* columns of a panel of a packed W */
#else
#define PANEL (2 * LANES)
#endif
#define BLOCK_BYTES (512 * 1024) /* of rows that meet all of W before the next ones do: they stay in the second cache */

size_t NAME(size_f32)(int64_t D, int64_t F);
void NAME(pack_f32)(const float *weight, void *packed, int64_t D, int64_t F);
void NAME(times_f32)(const float *x, int64_t x_row, const void *packed, const float *bias, int activation, float *out, int64_t out_row,
                     int64_t R, int64_t D, int64_t F, int64_t first, int64_t last);
size_t NAME(size_int8)(int64_t D, int64_t F);
void NAME(pack_int8)(const int8_t *weight, void *packed, int64_t D, int64_t F);
void NAME(times_int8)(const int8_t *integers, const float *x_scales, const void *packed, const float *w_scales, const float *bias,
                      int activation, float *out, int64_t out_row, int64_t R, int64_t D, int64_t F, int64_t first, int64_t last);
void NAME(attend)(const float *q, int64_t q_row, const float *keys, int64_t key_row, const float *values, int64_t value_row,
                  const int32_t *slots, int64_t slots_row, const int32_t *firsts, const int32_t *counts, float scale, float *out,
                  int64_t out_row, float *weights, int64_t weights_row, float *scores, int64_t R, int64_t K, int64_t W);
float NAME(log_sum_exp)(const float *x, int64_t n);
int64_t NAME(best)(const float *x, int64_t n, int64_t count, float *values, int32_t *places);

#endif
