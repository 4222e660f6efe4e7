/* What search asks of the scores of a vocabulary: the logarithm of their sum of exp, and the best entries. */

#include "set.h"

#define GROUP 64 /* entries whose largest is compared with the worst entry that is kept */

/* log(x) of a normal number, within a few units of the last place of a double. */
static double log_of(double x) {
    uint64_t as_bits;
    memcpy(&as_bits, &x, sizeof(x));
    int64_t power = (int64_t)(as_bits >> 52) - 1023;
    as_bits = (as_bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&x, &as_bits, sizeof(x));
    if (x > 1.4142135623730951) x *= 0.5, power++;
    /* log((1 + s) / (1 - s)) = 2 (s + s^3 / 3 + s^5 / 5 + ...) with |s| below 0.172 */
    const double s = (x - 1.0) / (x + 1.0), square = s * s;
    double series = 0.0;
    for (int i = 21; i >= 1; i -= 2) series = series * square + 1.0 / i;
    return (double)power * 0.6931471805599453 + 2.0 * s * series;
}

float NAME(log_sum_exp)(const float *x, int64_t n) {
    wide mosts[4] = {all(-INFINITE), all(-INFINITE), all(-INFINITE), all(-INFINITE)};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        UNROLL for (int j = 0; j < 4; j++) mosts[j] = larger(load(x + i + j * LANES), mosts[j]);
    for (; i < n; i += LANES) mosts[0] = larger(load_of(x, i, n, -INFINITE), mosts[0]);
    const float most = largest(larger(larger(mosts[0], mosts[1]), larger(mosts[2], mosts[3])));
    if (most == -INFINITE || most == INFINITE) return most;
    double sum = 0; /* of groups: float32 would lose digits */
    for (i = 0; i < n; i += 4 * GROUP) {
        wide sums[4][PARTS] = {{{0}}};
        float totals[4];
        if (i + 4 * GROUP <= n) {
            UNROLL for (int g = 0; g < 4; g++)
                UNROLL for (int j = 0; j < GROUP; j += LANES)
                    sums[g][j / LANES % PARTS] += exp_below(load(x + i + g * GROUP + j) - most);
        } else
            for (int g = 0; g < 4; g++)
                for (int j = 0; j < GROUP; j += LANES)
                    sums[g][j / LANES % PARTS] += exp_below(load_of(x, i + g * GROUP + j, n, -INFINITE) - most);
        four_totals((const wide(*)[PARTS])sums, totals);
        for (int g = 0; g < 4; g++) sum += (double)totals[g];
    }
    return sum == sum ? (float)((double)most + log_of(sum)) : (float)sum;
}

typedef struct {
    float *values;
    int32_t *places;
    int64_t size;
} Heap; /* its first entry is the worst: the smallest, of equal ones the last */

INLINE int worse(float value, int32_t place, float other, int32_t other_place) {
    return value < other || (value == other && place > other_place);
}

/* Put an entry where the one at `hole` was, below entries that are worse. */
static void sink(const Heap *heap, int64_t hole, float value, int32_t place) {
    for (int64_t child; (child = 2 * hole + 1) < heap->size; hole = child) {
        if (child + 1 < heap->size &&
            worse(heap->values[child + 1], heap->places[child + 1], heap->values[child], heap->places[child]))
            child++;
        if (!worse(heap->values[child], heap->places[child], value, place)) break;
        heap->values[hole] = heap->values[child], heap->places[hole] = heap->places[child];
    }
    heap->values[hole] = value, heap->places[hole] = place;
}

/* Add an entry at the end, above entries that are better. */
static void rise(const Heap *heap, int64_t hole, float value, int32_t place) {
    while (hole > 0) {
        const int64_t parent = (hole - 1) / 2;
        if (!worse(value, place, heap->values[parent], heap->places[parent])) break;
        heap->values[hole] = heap->values[parent], heap->places[hole] = heap->places[parent];
        hole = parent;
    }
    heap->values[hole] = value, heap->places[hole] = place;
}

int64_t NAME(best)(const float *x, int64_t n, int64_t count, float *values, int32_t *places) {
    Heap heap = {values, places, 0};
    if (count <= 0) return 0;
    float bound = -INFINITE; /* entries of interest are above */
    for (int64_t i = 0; i < n; i += GROUP) {
        const int64_t end = n - i < GROUP ? n : i + GROUP;
        if (end == i + GROUP) {
            wide most = load(x + i);
            UNROLL for (int j = 1; j < GROUP / LANES; j++) most = larger(load(x + i + j * LANES), most);
            if (!any(most > bound)) continue;
        }
        for (int64_t j = i; j < end; j++) {
            if (!(x[j] > bound)) continue;
            if (heap.size < count)
                rise(&heap, heap.size++, x[j], (int32_t)j);
            else
                sink(&heap, 0, x[j], (int32_t)j);
            if (heap.size == count) bound = values[0];
        }
    }
    const int64_t found = heap.size;
    while (heap.size > 1) { /* the worst goes to the end */
        const float value = values[heap.size - 1], worst = values[0];
        const int32_t place = places[heap.size - 1], worst_place = places[0];
        heap.size--;
        sink(&heap, 0, value, place);
        values[heap.size] = worst, places[heap.size] = worst_place;
    }
    return found;
}
