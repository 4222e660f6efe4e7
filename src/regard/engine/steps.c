/* Steps of the decoder: one more token per row, over sentences that may be at different lengths. */

#include <stdlib.h>
#include <string.h>

#include "model.h"

#define FIRST_STEPS 16 /* tokens of each beam that there is room for at first */

static void free_each(float **parts, int64_t count) {
    for (int64_t i = 0; parts && i < count; i++) free(parts[i]);
    free(parts);
}

void sentence_free(const RegardModel *model, Sentence *sentence) {
    const int64_t layers = model->config.decoder_layers;
    if (!sentence) return;
    free_each(sentence->own, layers), free_each(sentence->cross, layers), free_each(sentence->recent, layers);
    free(sentence->spare_recent), free(sentence->slots), free(sentence->spare_slots);
    free(sentence->shortlist), free(sentence->shortlist_scales), free(sentence->shortlist_bias);
    free(sentence);
}

Sentence *sentence_new(const RegardModel *model, int32_t source_length, int32_t beams) {
    const int64_t layers = model->config.decoder_layers, row = model->HK + model->HW;
    const int conv = model->config.feed_forward == REGARD_FF_CONV;
    Sentence *sentence = allocate(1, sizeof(Sentence));
    if (!sentence) return 0;
    *sentence = (Sentence){.source_length = source_length, .rows = 1, .beams = beams, .steps = FIRST_STEPS,
                           .capacity = FIRST_STEPS * beams};
    sentence->slots = allocate((int64_t)beams * FIRST_STEPS, sizeof(int32_t));
    sentence->spare_slots = allocate((int64_t)beams * FIRST_STEPS, sizeof(int32_t));
    sentence->own = allocate(layers, sizeof(float *));
    sentence->cross = allocate(layers, sizeof(float *));
    int failed = !sentence->slots || !sentence->spare_slots || !sentence->own || !sentence->cross;
    for (int64_t i = 0; !failed && i < layers; i++) {
        sentence->own[i] = allocate_buffer(sentence->capacity * row, sizeof(float));
        sentence->cross[i] = allocate_buffer(source_length * row, sizeof(float));
        failed = !sentence->own[i] || !sentence->cross[i];
    }
    if (conv && !failed) {
        sentence->recent = allocate(layers, sizeof(float *));
        sentence->spare_recent = allocate(beams * recent_row(model), sizeof(float));
        failed = !sentence->recent || !sentence->spare_recent;
        for (int64_t i = 0; !failed && i < layers; i++)
            failed = !(sentence->recent[i] = allocate(beams * recent_row(model), sizeof(float)));
    }
    if (!failed) return sentence;
    sentence_free(model, sentence);
    return 0;
}

/* Make room for one more token per row. */
static int make_room(const RegardModel *model, Sentence *sentence) {
    const int64_t row = model->HK + model->HW;
    if (sentence->length == sentence->steps) {
        const int32_t steps = 2 * sentence->steps;
        int32_t *more = allocate((int64_t)sentence->beams * steps, sizeof(int32_t));
        int32_t *spare = allocate((int64_t)sentence->beams * steps, sizeof(int32_t));
        if (!more || !spare) return free(more), free(spare), -1;
        for (int64_t r = 0; r < sentence->beams; r++)
            memcpy(more + r * steps, sentence->slots + r * sentence->steps, (size_t)sentence->steps * sizeof(int32_t));
        free(sentence->slots), free(sentence->spare_slots);
        sentence->slots = more, sentence->spare_slots = spare, sentence->steps = steps;
    }
    if (sentence->used + sentence->rows <= sentence->capacity) return 0;
    const int32_t capacity = 2 * sentence->capacity;
    for (int64_t i = 0; i < model->config.decoder_layers; i++) {
        float *more = allocate_buffer(capacity * row, sizeof(float));
        if (!more) return -1;
        memcpy(more, sentence->own[i], (size_t)(sentence->used * row) * sizeof(float));
        free(sentence->own[i]);
        sentence->own[i] = more;
    }
    sentence->capacity = capacity;
    return 0;
}

void sentence_expand(const RegardModel *model, Sentence *sentence) {
    sentence->rows = sentence->beams;
    for (int64_t r = 1; r < sentence->beams; r++) {
        memcpy(sentence->slots + r * sentence->steps, sentence->slots, (size_t)sentence->length * sizeof(int32_t));
        for (int64_t i = 0; sentence->recent && i < model->config.decoder_layers; i++)
            memcpy(sentence->recent[i] + r * recent_row(model), sentence->recent[i], (size_t)recent_row(model) * sizeof(float));
    }
}

void sentence_reorder(const RegardModel *model, Sentence *sentence, const int32_t *parents) {
    int same = 1;
    for (int64_t r = 0; r < sentence->rows; r++) same &= parents[r] == r;
    if (same) return;
    for (int64_t r = 0; r < sentence->rows; r++)
        memcpy(sentence->spare_slots + r * sentence->steps, sentence->slots + parents[r] * sentence->steps,
               (size_t)sentence->length * sizeof(int32_t));
    int32_t *slots = sentence->slots;
    sentence->slots = sentence->spare_slots, sentence->spare_slots = slots;
    for (int64_t i = 0; sentence->recent && i < model->config.decoder_layers; i++) {
        const int64_t row = recent_row(model);
        for (int64_t r = 0; r < sentence->rows; r++)
            memcpy(sentence->spare_recent + r * row, sentence->recent[i] + parents[r] * row, (size_t)row * sizeof(float));
        float *recent = sentence->recent[i];
        sentence->recent[i] = sentence->spare_recent, sentence->spare_recent = recent;
    }
}

/* Arrays of one step, in one allocation. */
typedef struct {
    AttentionCall *own, *cross;
    int32_t *positions, *counts, *zeros, *sources;
} Arrays;

static int make_arrays(Arrays *arrays, int64_t count, int64_t R) {
    arrays->own = malloc((size_t)(2 * count) * sizeof(AttentionCall) + (size_t)(4 * R) * sizeof(int32_t));
    if (!arrays->own) return -1;
    arrays->cross = arrays->own + count;
    arrays->positions = (int32_t *)(arrays->cross + count);
    arrays->counts = arrays->positions + R, arrays->zeros = arrays->counts + R, arrays->sources = arrays->zeros + R;
    return 0;
}

/* Put the new keys and values of a layer into the sentences, and attend to the past of each row. */
static void attend_past(const RegardModel *model, Work *work, int64_t layer, float *x, Sentence **sentences, int64_t count,
                        const Arrays *arrays, int64_t R) {
    const Attention *attention = &model->decoder[layer].own;
    const int64_t HK = model->HK, HW = model->HW, P = attention->project.F, row = HK + HW;
    const float *read = sublayer_input(model, work, &attention->norm, x, R);
    const float *all = read ? project(model, work, attention, read, arrays->positions, R) : 0;
    float *heads = reserve(work, &work->heads, R * HW);
    if (work->failed) return;
    for (int64_t s = 0, at = 0; s < count; at += sentences[s++]->rows) {
        Sentence *one = sentences[s];
        for (int64_t r = 0; r < one->rows; r++)
            memcpy(one->own[layer] + (one->used + r) * row, all + (at + r) * P + HK, (size_t)row * sizeof(float));
        /* With a window only the last slots are seen. */
        const int32_t seen = arrays->counts[at], skipped = one->length + 1 - seen;
        arrays->own[s] = (AttentionCall){.q = all + at * P, .keys = one->own[layer], .values = one->own[layer] + HK, .out = heads + at * HW,
                                .slots = one->slots + skipped, .slots_row = one->steps, .counts = arrays->counts + at, .q_row = P,
                                .row = row, .count = one->rows, .most = seen};
    }
    attend_all(model, work, arrays->own, count, attention->silent);
    if (!work->failed) attention_output(model, work, attention, x, heads, R);
}

int decode_step(const RegardModel *model, Work *work, Sentence **sentences, int64_t count, const int32_t *tokens, float **hidden) {
    const RegardConfig *c = &model->config;
    int64_t R = 0;
    for (int64_t s = 0; s < count; s++) {
        if (make_room(model, sentences[s])) return work->failed = 1, -1;
        R += sentences[s]->rows;
    }
    Arrays arrays;
    float *x = reserve(work, &work->x, R * c->width);
    if (!x || make_arrays(&arrays, count, R)) return work->failed = 1, -1;
    for (int64_t s = 0, at = 0; s < count; s++) {
        Sentence *one = sentences[s];
        for (int64_t r = 0; r < one->rows; r++, at++) {
            one->slots[r * one->steps + one->length] = one->used + (int32_t)r;
            arrays.positions[at] = one->length;
            arrays.counts[at] = c->window >= 0 && one->length > c->window ? c->window + 1 : one->length + 1;
            arrays.zeros[at] = 0, arrays.sources[at] = one->source_length;
        }
    }
    embed(model, work, &model->target, &model->target_learned, tokens, arrays.positions, x, R);
    for (int64_t i = 0; i < c->decoder_layers && !work->failed; i++) {
        const Layer *layer = model->decoder + i;
        if (layer->silent) continue;
        attend_past(model, work, i, x, sentences, count, &arrays, R);
        for (int64_t s = 0, at = 0; s < count; at += sentences[s++]->rows)
            arrays.cross[s] = (AttentionCall){.keys = sentences[s]->cross[i], .firsts = arrays.zeros + at, .counts = arrays.sources + at,
                                     .count = sentences[s]->rows, .most = sentences[s]->source_length};
        if (!work->failed) cross_attention(model, work, &layer->cross, x, arrays.cross, count, R);
        const Taps taps = {.sentences = sentences, .count = count, .layer = i};
        if (!work->failed) feed_forward(model, work, layer, x, &taps, R);
    }
    free(arrays.own);
    if (work->failed) return -1;
    final_norm(model, &model->decoder_norm, x, R);
    for (int64_t s = 0; s < count; s++) sentences[s]->used += sentences[s]->rows, sentences[s]->length++;
    *hidden = x;
    return 0;
}
