/* Rows of matrices in the types in which they are stored; embeddings and shortlists. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "positions.h"

static float from_half(uint16_t half) {
    const uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 0) {
        const float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    const uint32_t bits = sign | (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

const int64_t SIZES[] = {[REGARD_F32] = 4, [REGARD_F16] = 2, [REGARD_I8] = 1};

void read_row(int type, const void *data, const float *scales, int64_t row, int64_t columns, float *out) {
    const char *from = (const char *)data + row * columns * SIZES[type];
    for (int64_t i = 0; i < columns; i++) {
        uint16_t half;
        if (type == REGARD_F32)
            memcpy(out + i, from + 4 * i, 4);
        else if (type == REGARD_F16)
            memcpy(&half, from + 2 * i, 2), out[i] = from_half(half);
        else
            out[i] = (float)((const int8_t *)from)[i] * scales[row];
    }
}

/* The rows of a matrix as 8-bit integers: as they are stored, or the largest magnitude of each row becomes 127. */
int to_integers(int type, const void *data, const float *scales, int64_t rows, int64_t columns, int8_t *integers,
                       float *new_scales) {
    float *row = allocate(columns, sizeof(float));
    if (!row) return -1;
    for (int64_t f = 0; f < rows; f++) {
        if (type == REGARD_I8) {
            memcpy(integers + f * columns, (const int8_t *)data + f * columns, (size_t)columns);
            for (int64_t i = f * columns; i < (f + 1) * columns; i++) integers[i] = integers[i] < -127 ? -127 : integers[i];
            new_scales[f] = scales[f];
            continue;
        }
        read_row(type, data, scales, f, columns, row);
        float most = 1e-30f;
        for (int64_t i = 0; i < columns; i++) most = fabsf(row[i]) > most ? fabsf(row[i]) : most;
        new_scales[f] = most / 127.0f;
        for (int64_t i = 0; i < columns; i++) {
            /* The largest may come out a little above 127; what is not a number becomes 0. */
            const float value = row[i] * (127.0f / most), least = value < -127.0f ? -127.0f : value;
            integers[f * columns + i] = (int8_t)(least <= 127.0f ? lrintf(least) : least > 127.0f ? 127 : 0);
        }
    }
    free(row);
    return 0;
}

void embed(const RegardModel *model, Work *work, const Table *table, const Table *learned, const int32_t *ids, const int32_t *positions,
           float *x, int64_t count) {
    const RegardConfig *c = &model->config;
    const int64_t D = c->width;
    const float scale = c->scale_embeddings ? (float)sqrt((double)D) : 1.0f;
    float place[512];
    for (int64_t r = 0; r < count; r++, x += D) {
        const int32_t id = learned == &model->target_learned && ids[r] == c->bos ? c->start_id : ids[r];
        read_row(table->type, table->data, table->scales, id, D, x);
        if (c->scale_embeddings)
            for (int64_t i = 0; i < D; i++) x[i] *= scale;
        if (c->positions >= REGARD_SINUSOID && c->positions <= REGARD_LOG) {
            const float *encoding = position_vector(model, positions[r]);
            if (!encoding) {
                work->failed = 1;
                return;
            }
            for (int64_t i = 0; i < D; i++) x[i] += encoding[i];
        } else if (learned->data)
            for (int64_t i = 0; i < D; i += 512) { /* rows of a table, a part at a time */
                const int64_t some = D - i < 512 ? D - i : 512, at = (int64_t)positions[r] * D + i;
                read_row(learned->type, (const char *)learned->data + at * SIZES[learned->type],
                         learned->scales ? learned->scales + positions[r] : 0, 0, some, place);
                for (int64_t j = 0; j < some; j++) x[i + j] += place[j];
            }
    }
}

int sentence_shorten(const RegardModel *model, Sentence *sentence, const int32_t *allowed, int64_t count) {
    const RegardKernels *k = model->kernels;
    const Table *rows = model->config.tie == REGARD_TIE_NONE ? &model->output_rows : &model->target;
    const int64_t D = model->config.width;
    const int int8 = model->config.int8;
    void *plain = allocate(count * D, int8 ? 1 : sizeof(float));
    sentence->shortlist = allocate_buffer((int64_t)(int8 ? k->size_int8(D, count) : k->size_f32(D, count)), 1);
    sentence->shortlist_scales = allocate(count, sizeof(float));
    sentence->shortlist_bias = allocate(count, sizeof(float));
    int failed = !plain || !sentence->shortlist || !sentence->shortlist_scales || !sentence->shortlist_bias;
    for (int64_t i = 0; !failed && i < count; i++) {
        if (model->output.bias) sentence->shortlist_bias[i] = model->output.bias[allowed[i]];
        if (!int8)
            read_row(rows->type, rows->data, rows->scales, allowed[i], D, (float *)plain + i * D);
        else {
            const char *data = (const char *)rows->data + allowed[i] * D * SIZES[rows->type];
            failed = to_integers(rows->type, data, rows->scales ? rows->scales + allowed[i] : 0, 1, D, (int8_t *)plain + i * D,
                                 sentence->shortlist_scales + i);
        }
    }
    if (!failed && int8) k->pack_int8(plain, sentence->shortlist, D, count);
    if (!failed && !int8) k->pack_f32(plain, sentence->shortlist, D, count);
    free(plain);
    return failed ? -1 : 0;
}
