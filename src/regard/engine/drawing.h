/* Drawing a token from the model's distribution, as `decoding/drawing.py` does it, given a random number from 0 to 1. */

#ifndef REGARD_DRAWING_H
#define REGARD_DRAWING_H

#include <math.h>
#include <stdlib.h>

#include "model.h"

static int descending(const void *a, const void *b) {
    const double one = *(const double *)a, other = *(const double *)b;
    return one > other ? -1 : one < other;
}

/* The probability of the least likely token of the nucleus: the likeliest tokens, as few as add up to at least `top_p`. */
static double nucleus(const double *probabilities, double *sorted, int64_t n, double top_p) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if (probabilities[i] > 0) sorted[count++] = probabilities[i];
    qsort(sorted, (size_t)count, sizeof(double), descending);
    double before = 0, least = count ? sorted[0] : 0;
    for (int64_t i = 0; i < count && (!i || before < top_p); before += sorted[i++]) least = sorted[i];
    return least;
}

/* A column, or -1 if none is possible. `failed` is set without memory. */
static int32_t draw(const RegardKernels *k, const float *logits, int64_t n, const RegardOptions *o, double number, int *failed) {
    float most, least = -INFINITY;
    int32_t place;
    if (k->best(logits, n, 1, &most, &place) < 1) return -1;
    if (o->temperature == 0 || o->top_k == 1) return place;
    double *p = allocate(2 * n, sizeof(double)), *sorted = p + n, total = 0, sum = 0;
    if (!p) return *failed = 1, -1;
    if (o->top_k && o->top_k < n) {
        float *values = allocate(o->top_k, sizeof(float));
        int32_t *places = allocate(o->top_k, sizeof(int32_t));
        if (!values || !places) return free(p), free(values), free(places), *failed = 1, -1;
        const int64_t found = k->best(logits, n, o->top_k, values, places);
        if (found == o->top_k) least = values[found - 1];
        free(values), free(places);
    }
    for (int64_t i = 0; i < n; i++) {
        p[i] = logits[i] > -INFINITY && logits[i] >= least ? exp(((double)logits[i] - (double)most) / o->temperature) : 0.0;
        total += p[i];
    }
    for (int64_t i = 0; i < n; i++) p[i] /= total;
    if (o->top_p >= 0) {
        const double bound = nucleus(p, sorted, n, o->top_p);
        for (int64_t i = 0; i < n; i++)
            if (p[i] < bound) p[i] = 0;
    }
    if (o->epsilon >= 0) { /* the likeliest token stays, however unlikely it is */
        const double bound = p[place] < o->epsilon ? p[place] : o->epsilon;
        for (int64_t i = 0; i < n; i++)
            if (p[i] < bound) p[i] = 0;
    }
    for (int64_t i = 0; i < n; i++) sum += p[i], p[i] = sum;
    const double bound = number * (1 - 1e-12) * sum;
    int64_t low = 0, high = n - 1;
    while (low < high) { /* the first column up to which the probabilities add up to more than the number */
        const int64_t middle = (low + high) / 2;
        if (p[middle] > bound)
            high = middle;
        else
            low = middle + 1;
    }
    free(p);
    return (int32_t)low;
}

#endif
