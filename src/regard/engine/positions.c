/* Sines, cosines and powers are computed here from sums and products of doubles, since C libraries differ in their last digits: so
   positions have the same bits everywhere. */

#include "positions.h"

#include <stdatomic.h>
#include <stdlib.h>

/* 10000^-power, from 0 to 1: 2^-halvings * exp(rest). `near` and the first part of log(10000) have 24 bits, so their product is exact. */
static double frequency_of(double power) {
    const double log_10000[2] = {0x1.26bb1ap+3, 0x1.bb5551582dd4bp-21}, log_2[2] = {0x1.62e42fefa2p-1, 0x1.9ef35793c7673p-41};
    const double near = (double)(float)power;
    const int halvings = (int)(power * (log_10000[0] / log_2[0]) + 0.5);
    const double rest = (halvings * log_2[0] - near * log_10000[0]) + halvings * log_2[1] -
                        ((power - near) * log_10000[0] + power * log_10000[1]);
    double sum = 1;
    for (int n = 13; n > 0; n--) sum = 1 + sum * rest / n; /* |rest| is at most log(2) / 2 */
    for (int i = 0; i < halvings; i++) sum *= 0.5;
    return sum;
}

/* 1 / 3!, 1 / 5!, ... and 1 / 2!, 1 / 4!, ...: sin(x) = x - x^3 / 3! + x^5 / 5! - ..., cos(x) = 1 - x^2 / 2! + x^4 / 4! - ... */
static const double SINE[] = {1.0 / 6,        1.0 / 120,        1.0 / 5040,          1.0 / 362880,         1.0 / 39916800.0,
                              1.0 / 6227020800.0, 1.0 / 1307674368000.0, 1.0 / 355687428096000.0, 1.0 / 121645100408832000.0};
static const double COSINE[] = {1.0 / 2,           1.0 / 24,            1.0 / 720,              1.0 / 40320,           1.0 / 3628800.0,
                                1.0 / 479001600.0, 1.0 / 87178291200.0, 1.0 / 20922789888000.0, 1.0 / 6402373705728000.0};

/* The sine and the cosine of an angle from 0 to 2^21, in radians. */
static void sine_cosine(double angle, double *sine, double *cosine) {
    const double quarter[3] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69}; /* of a turn; products of 32 and 21 bits are exact */
    const int64_t quarters = (int64_t)(angle * 0x1.45f306dc9c883p-1 + 0.5);
    const double n = (double)quarters, x = angle - n * quarter[0] - n * quarter[1] - n * quarter[2], square = x * x;
    double s = 0, c = 0;
    for (int i = 8; i >= 0; i--) s = SINE[i] - s * square, c = COSINE[i] - c * square; /* |x| is at most pi / 4 */
    s = x - x * square * s, c = 1 - square * c;
    *sine = quarters & 1 ? c : s, *cosine = quarters & 1 ? s : c;
    if (quarters & 2) *sine = -*sine;
    if ((quarters + 1) & 2) *cosine = -*cosine;
}

void regard_positions(int32_t kind, int64_t width, int64_t first, int64_t count, float *out) {
    const int64_t half = width / 2;
    const int pairs = kind == REGARD_SINUSOID || kind == REGARD_ROTARY;
    for (int64_t i = 0; i < half; i++) {
        const double steps = kind == REGARD_LOG ? (double)(half > 1 ? half - 1 : 1) : (double)width / 2;
        const double frequency = frequency_of((double)i / steps);
        for (int64_t p = 0; p < count; p++) {
            const double angle = (double)(first + p) * frequency;
            double sine, cosine;
            sine_cosine(kind == REGARD_ROTARY ? (double)(float)angle : angle, &sine, &cosine);
            float *one = out + p * width + (pairs ? 2 * i : i), *other = pairs ? one + 1 : one + half;
            *one = (float)(kind == REGARD_ROTARY ? cosine : sine), *other = (float)(kind == REGARD_ROTARY ? sine : cosine);
        }
    }
}

const float *position_vector(const RegardModel *model, int64_t position) {
    const RegardConfig *c = &model->config;
    const int rotary = c->positions == REGARD_ROTARY;
    const int64_t width = rotary ? c->key_width : c->width, block = position / POSITION_BLOCK;
    RegardModel *shared = (RegardModel *)model; /* the one part that changes: blocks appear, and never go */
    float *found = atomic_load(&shared->positions[block]);
    if (!found) {
        float *made = malloc((size_t)(POSITION_BLOCK * width) * sizeof(float));
        if (!made) return 0;
        regard_positions(c->positions, width, block * POSITION_BLOCK + (rotary ? 0 : c->first_position), POSITION_BLOCK, made);
        if (atomic_compare_exchange_strong(&shared->positions[block], &found, made))
            found = made;
        else
            free(made);
    }
    return found + position % POSITION_BLOCK * width;
}

void rotate(const RegardModel *model, Work *work, float *x, int64_t row, const int32_t *positions, int64_t N) {
    const int64_t K = model->config.key_width;
    for (int64_t n = 0; n < N; n++) {
        const float *turn = position_vector(model, positions[n]);
        if (!turn) {
            work->failed = 1;
            return;
        }
        for (int64_t h = 0; h < model->config.num_heads; h++)
            for (int64_t i = 0; i < K; i += 2) {
                float *pair = x + n * row + h * K + i;
                const float even = pair[0], odd = pair[1], cosine = turn[i], sine = turn[i + 1];
                pair[0] = even * cosine - odd * sine, pair[1] = even * sine + odd * cosine;
            }
    }
}
