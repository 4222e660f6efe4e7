/* Products of float32 matrices for search, on one core of a CPU: xWᵀ + b for a W that was laid out for it once.

   A library for all shapes lays out both matrices anew in every call, which for the few rows of a search is a good part of the
   work. A tile of ROWS x COLUMNS sums stays in registers while the whole width is gone through. Each sum is made in the same
   order whatever rows are beside it, so a row's result does not depend on its neighbours, to the last bit.

   Shapes: R rows, D width in, F width out. */

#include <math.h>
#include <stdint.h>

#include "wide.h"

#define ROWS 8
#define COLUMNS (2 * LANES)
#define BLOCK 131072 /* numbers of x that meet all of W before the next ones come: what the second cache holds */

int64_t columns(void) { return COLUMNS; } /* that a packed W has a multiple of */

int64_t room(int64_t D) { return BLOCK > ROWS * D ? BLOCK : ROWS * D; } /* numbers that `times` lays out at a time */

/* W [F, D], its entries `row` and `column` apart, as panels of [D, COLUMNS], the last one filled up with zeros. */
void pack(const float *weight, int64_t row, int64_t column, float *packed, int64_t D, int64_t F) {
    for (int64_t f = 0; f < F; f += COLUMNS)
        for (int64_t d = 0; d < D; d++)
            for (int64_t j = f; j < f + COLUMNS; j++) *packed++ = j < F ? weight[j * row + d * column] : 0.0f;
}

/* x [R, D] as panels of [D, ROWS], the last one filled up with its last row. */
static void lay_out(const float *x, int64_t row, float *laid, int64_t R, int64_t D) {
    for (int64_t r = 0; r < R; r += ROWS, laid += ROWS * D)
        for (int64_t i = 0; i < ROWS; i++) {
            const float *from = x + (r + i < R ? r + i : R - 1) * row;
            for (int64_t d = 0; d < D; d++) laid[d * ROWS + i] = from[d];
        }
}

/* tile [ROWS, COLUMNS] = x Wᵀ, of a panel of each. */
static inline void multiply(const float *x, const float *weight, float tile[ROWS][COLUMNS], int64_t D) {
    wide sums[ROWS][2] = {{{0}}};
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
    for (int i = 0; i < ROWS; i++) store(tile[i], sums[i][0]), store(tile[i] + LANES, sums[i][1]);
}

/* out [R, F] = x Wᵀ + b, or max(0, x Wᵀ + b), of x [R, D], rows x_row apart, a packed W, and b if there is one.
   `laid` is `room` to work in. */
void times(const float *x, int64_t x_row, const float *packed, const float *bias, int64_t relu, float *out, float *laid,
           int64_t R, int64_t D, int64_t F) {
    const int64_t most = BLOCK / D / ROWS > 0 ? BLOCK / D / ROWS * ROWS : ROWS;
    const wide least = all(relu ? 0.0f : -INFINITY);
    for (int64_t begin = 0; begin < R; begin += most) {
        const int64_t end = R - begin < most ? R : begin + most;
        lay_out(x + begin * x_row, x_row, laid, end - begin, D);
        for (int64_t f = 0; f < F; f += COLUMNS) {
            const int64_t there = F - f < COLUMNS ? F - f : COLUMNS;
            float more[COLUMNS] = {0};
            for (int64_t j = 0; bias && j < there; j++) more[j] = bias[f + j];
            for (int64_t r = begin; r < end; r += ROWS) {
                float tile[ROWS][COLUMNS];
                multiply(laid + (r - begin) * D, packed + f * D, tile, D);
                for (int64_t i = 0; i < ROWS && r + i < R; i++) {
                    const wide first = larger(load(tile[i]) + load(more), least);
                    const wide second = larger(load(tile[i] + LANES) + load(more + LANES), least);
                    float *to = there == COLUMNS ? out + (r + i) * F + f : tile[i];
                    store(to, first);
                    store(to + LANES, second);
                    for (int64_t j = 0; there < COLUMNS && j < there; j++) out[(r + i) * F + f + j] = to[j];
                }
            }
        }
    }
}
