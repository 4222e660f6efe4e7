/* Whole sequences at once: the encoder over many sources, and the decoder over a given output.

   Shapes: N tokens or rows, D width, H heads, K width of a key, W of a value, P = 2HK + HW columns of a projection. */

#include <stdlib.h>
#include <string.h>

#include "model.h"

/* Of each token of concatenated sequences: its position, the first key that it sees, how many it sees, and the rows that a convolution
   reads: [N, 3]. */
typedef struct {
    int32_t *positions, *firsts, *counts, *neighbours;
} Places;

/* A token sees the keys of its own sequence, up to `window` before it and, unless `causal`, as many after it; -1: all. */
static int find_places(Work *work, const int64_t *offsets, int64_t count, int32_t window, int causal, Places *places) {
    const int64_t N = offsets[count];
    int32_t *found = (int32_t *)reserve(work, &work->places, 6 * N);
    if (!found) return -1;
    *places = (Places){found, found + N, found + 2 * N, found + 3 * N};
    for (int64_t s = 0; s < count; s++) {
        const int32_t length = (int32_t)(offsets[s + 1] - offsets[s]), back = window < 0 ? length : window, ahead = causal ? 0 : back;
        for (int32_t t = 0; t < length; t++) {
            const int64_t n = offsets[s] + t;
            const int32_t first = t > back ? t - back : 0, last = length - 1 - t > ahead ? t + ahead : length - 1;
            places->positions[n] = t, places->firsts[n] = first, places->counts[n] = last - first + 1;
            for (int32_t tap = 0; tap < 3; tap++) {
                const int32_t at = t + tap - (causal ? 2 : 1);
                places->neighbours[3 * n + tap] = at < 0 || at >= length ? -1 : (int32_t)(offsets[s] + at);
            }
        }
    }
    return 0;
}

static void self_attention(const RegardModel *model, Work *work, const Attention *attention, float *x, const int64_t *offsets,
                           int64_t count, const Places *places, float *weights) {
    const int64_t N = offsets[count], HK = model->HK, HW = model->HW, P = attention->project.F;
    const float *read = sublayer_input(model, work, &attention->norm, x, N);
    const float *all = read ? project(model, work, attention, read, places->positions, N) : 0;
    float *heads = reserve(work, &work->heads, N * HW);
    AttentionCall *calls = allocate(count, sizeof(AttentionCall));
    if (!calls) work->failed = 1;
    for (int64_t s = 0; !work->failed && s < count; s++) {
        const int64_t at = offsets[s], length = offsets[s + 1] - at;
        const float *own = all + at * P;
        calls[s] = (AttentionCall){.q = own, .keys = own + HK, .values = own + 2 * HK, .out = heads + at * HW, .firsts = places->firsts + at,
                          .counts = places->counts + at, .q_row = P, .row = P, .count = length, .most = length, .weights = weights,
                          .weights_head = length * length, .weights_row = length};
    }
    if (!work->failed) attend_all(model, work, calls, count, attention->silent);
    free(calls);
    if (!work->failed) attention_output(model, work, attention, x, heads, N);
}

static int encoder_stack(const RegardModel *model, Work *work, float *x, const int64_t *offsets, int64_t count, const Places *places,
                         float *weights) {
    const int64_t H = model->config.num_heads, N = offsets[count];
    for (int64_t i = 0; i < model->config.encoder_layers && !work->failed; i++) {
        const Layer *layer = model->encoder + i;
        if (layer->silent) continue;
        self_attention(model, work, &layer->own, x, offsets, count, places, weights ? weights + i * H * N * N : 0);
        if (!work->failed) feed_forward(model, work, layer, x, &(Taps){.neighbours = places->neighbours}, N);
    }
    final_norm(model, &model->encoder_norm, x, N);
    return work->failed ? -1 : 0;
}

/* Keys and values of a layer for the encoder's output [N, D]: [N, HK + HW]. */
static float *keys_values(const RegardModel *model, Work *work, const Attention *attention, const float *memory, int64_t N) {
    float *out = reserve(work, &work->projected, N * attention->memory.F);
    if (!out) return 0;
    times(model, work, &attention->memory, memory, model->config.width, REGARD_NO_ACTIVATION, out, attention->memory.F, N);
    norm_heads(model, out, attention->memory.F, attention->key_norm, N);
    return work->failed ? 0 : out;
}

int encode(const RegardModel *model, Work *work, const int32_t *ids, const int64_t *offsets, Sentence **sentences, int64_t count,
           float *attention) {
    const int64_t N = offsets[count], row = model->HK + model->HW;
    const Table *table = model->config.tie == REGARD_TIE_ALL ? &model->target : &model->source;
    Places places;
    float *x = reserve(work, &work->x, N * model->config.width);
    if (!x || find_places(work, offsets, count, model->config.window, 0, &places)) return -1;
    embed(model, work, table, &model->source_learned, ids, places.positions, x, N);
    if (encoder_stack(model, work, x, offsets, count, &places, attention)) return -1;
    for (int64_t i = 0; i < model->config.decoder_layers; i++) {
        const float *found = keys_values(model, work, &model->decoder[i].cross, x, N);
        for (int64_t s = 0; found && s < count; s++)
            memcpy(sentences[s]->cross[i], found + offsets[s] * row, (size_t)((offsets[s + 1] - offsets[s]) * row) * sizeof(float));
    }
    return work->failed ? -1 : 0;
}

int decode_all(const RegardModel *model, Work *work, const Sentence *sentence, const int32_t *ids, int64_t N, float *x, float *own_weights,
               float *cross_weights, int64_t first_cross) {
    const int64_t H = model->config.num_heads, S = sentence->source_length, offsets[2] = {0, N};
    Places places;
    if (find_places(work, offsets, 1, model->config.window, 1, &places)) return -1;
    int32_t *all = allocate(2 * N, sizeof(int32_t));
    if (!all) return work->failed = 1, -1;
    for (int64_t n = 0; n < N; n++) all[n] = 0, all[N + n] = (int32_t)S;
    embed(model, work, &model->target, &model->target_learned, ids, places.positions, x, N);
    for (int64_t i = 0; i < model->config.decoder_layers && !work->failed; i++) {
        const Layer *layer = model->decoder + i;
        if (layer->silent) continue;
        self_attention(model, work, &layer->own, x, offsets, 1, &places, own_weights ? own_weights + i * H * N * N : 0);
        AttentionCall call = {.keys = sentence->cross[i], .firsts = all, .counts = all + N, .count = N, .most = S,
                     .weights = cross_weights && i >= first_cross ? cross_weights + (i - first_cross) * H * N * S : 0, .weights_head = N * S, .weights_row = S};
        if (!work->failed) cross_attention(model, work, &layer->cross, x, &call, 1, N);
        if (!work->failed) feed_forward(model, work, layer, x, &(Taps){.neighbours = places.neighbours}, N);
    }
    free(all);
    final_norm(model, &model->decoder_norm, x, N);
    return work->failed ? -1 : 0;
}
