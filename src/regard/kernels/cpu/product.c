/* Products of float32 matrices for search, on one core of a CPU: xWᵀ + b for a W that was laid out for it once.

   A library for all shapes lays out both matrices anew in every call, which for the few rows of a search is a good part of the
   work. A tile of ROWS x COLUMNS sums stays in registers while DEPTH of the width is gone through. Each sum is made in the same
   order whatever rows are beside it, so a row's result does not depend on its neighbours, to the last bit.

   Shapes: R rows, D width in, F width out. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "wide.h"

#define ROWS 8
#define COLUMNS (2 * LANES)
#define DEPTH 512 /* of the width at a time: a panel of W and the rows that it meets stay in the first cache */
#define BLOCK 256 /* rows that meet all of W before the next ones come: they stay in the second */

int64_t regard_panel(void) { return COLUMNS; } /* a packed W has a multiple of it */

/* W [F, D], its entries `row` and `column` apart, as panels of [D, COLUMNS], the last one filled up with zeros. */
void regard_pack(const float *weight, int64_t row, int64_t column, float *packed, int64_t D, int64_t F) {
    for (int64_t f = 0; f < F; f += COLUMNS)
        for (int64_t d = 0; d < D; d++)
            for (int64_t j = f; j < f + COLUMNS; j++) *packed++ = j < F ? weight[j * row + d * column] : 0.0f;
}

/* x [R, D] as panels of [D, ROWS], the last one filled up with its last row. */
static void lay_out(const float *x, int64_t row, float *laid, int64_t R, int64_t D) {
    for (int64_t r = 0; r < R; r += ROWS, laid += ROWS * D) {
        const float *from[ROWS];
        for (int64_t i = 0; i < ROWS; i++) from[i] = x + (r + i < R ? r + i : R - 1) * row;
        for (int64_t d = 0; d < D; d++)
#pragma GCC unroll 8
            for (int64_t i = 0; i < ROWS; i++) laid[d * ROWS + i] = from[i][d];
    }
}

/* to [ROWS, COLUMNS] = what it begins with + x Wᵀ, of a panel of each, and at least so much. */
static inline void multiply(const float *x, const float *weight, const float *from, int64_t from_row, float *to, int64_t to_row,
                            wide least, int64_t D) {
    wide sums[ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) sums[i][0] = load(from + i * from_row), sums[i][1] = load(from + i * from_row + LANES);
    for (int64_t d = 0; d < D; d++, x += ROWS, weight += COLUMNS) {
        const wide first = load(weight), second = load(weight + LANES);
#if LANES == 4
        const wide some[2] = {load(x), load(x + LANES)}; /* Arm multiplies by a lane of a register */
#define X(i) some[(i) / LANES][(i) % LANES]
#else
#define X(i) x[i]
#endif
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) sums[i][0] += X(i) * first, sums[i][1] += X(i) * second;
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
        store(to + i * to_row, larger(least, sums[i][0]));
        store(to + i * to_row + LANES, larger(least, sums[i][1]));
    }
}

/* out [R, F] = x Wᵀ + b, or max(0, x Wᵀ + b), of x [R, D], rows x_row apart, a packed W, and b if there is one.
   Whether there was memory for it. */
int regard_times(const float *x, int64_t x_row, const float *packed, const float *bias, int64_t relu, float *out, int64_t R,
                 int64_t D, int64_t F) {
    const int64_t most = R < BLOCK ? (R + ROWS - 1) / ROWS * ROWS : BLOCK;
    float *laid = malloc(most * (D < DEPTH ? D : DEPTH) * sizeof(float));
    for (int64_t begin = 0; laid && begin < R; begin += most)
        for (int64_t d = 0; d < D; d += DEPTH) {
            const int64_t end = R - begin < most ? R : begin + most, depth = D - d < DEPTH ? D - d : DEPTH;
            const wide least = all(relu && d + depth == D ? 0.0f : -INFINITY);
            lay_out(x + begin * x_row + d, x_row, laid, end - begin, depth);
            for (int64_t f = 0; f < F; f += COLUMNS) {
                const int64_t columns = F - f < COLUMNS ? F - f : COLUMNS;
                float from[COLUMNS] = {0}; /* what sums begin with: the bias, and then what came of the depth before */
                for (int64_t j = 0; bias && j < columns; j++) from[j] = bias[f + j];
                for (int64_t r = begin; r < end; r += ROWS) {
                    const int64_t rows = end - r < ROWS ? end - r : ROWS;
                    const float *rows_of_x = laid + (r - begin) * depth, *weight = packed + f * D + d * COLUMNS;
                    float *to = out + r * F + f;
                    if (rows == ROWS && columns == COLUMNS) {
                        multiply(rows_of_x, weight, d ? to : from, d ? F : 0, to, F, least, depth);
                        continue;
                    }
                    float tile[ROWS][COLUMNS] = {{0}}; /* of which too little is there */
                    for (int64_t i = 0; i < rows; i++)
                        for (int64_t j = 0; j < columns; j++) tile[i][j] = d ? to[i * F + j] : from[j];
                    multiply(rows_of_x, weight, tile[0], COLUMNS, tile[0], COLUMNS, least, depth);
                    for (int64_t i = 0; i < rows; i++)
                        for (int64_t j = 0; j < columns; j++) to[i * F + j] = tile[i][j];
                }
            }
        }
    const int enough = laid != 0;
    free(laid);
    return enough;
}
