/* A batch of sentences, which may be at different steps, advanced together. */

#include "batch.h"

#include <stdlib.h>
#include <string.h>

#define LOGITS_AT_ONCE ((int64_t)1 << 21) /* numbers: they stay in the second and third cache */

/* Encode the new sentences at the end of a batch. */
int batch_encode(Batch *batch, int64_t added) {
    const RegardModel *model = batch->model;
    Search **new = batch->active + batch->count - added;
    int64_t total = 0;
    for (int64_t i = 0; i < added; i++) total += new[i]->num_source;
    int32_t *ids = allocate(total, sizeof(int32_t));
    int64_t *offsets = allocate(added + 1, sizeof(int64_t));
    Sentence **sentences = allocate(added, sizeof(Sentence *));
    int failed = !ids || !offsets || !sentences;
    for (int64_t i = 0; !failed && i < added; i++) {
        /* Without `source_eos` the encoder reads all tokens but the last, unless that is the only one. */
        const int32_t length = new[i]->num_source - (!model->config.source_eos && new[i]->num_source > 1);
        memcpy(ids + offsets[i], new[i]->source, (size_t)length * sizeof(int32_t));
        offsets[i + 1] = offsets[i] + length;
        sentences[i] = new[i]->sentence = sentence_new(model, length, new[i]->options.beam);
        failed = !sentences[i] || (new[i]->options.num_allowed &&
                                   sentence_shorten(model, sentences[i], new[i]->options.allowed, new[i]->options.num_allowed));
    }
    if (!failed) failed = encode(model, &batch->work, ids, offsets, sentences, added, 0);
    free(ids), free(offsets), free(sentences);
    return failed;
}

typedef struct {
    const RegardModel *model;
    Search **searches;
    float **logits;
} Advance;

static void advance_one(void *argument, int64_t i) {
    const Advance *all = argument;
    search_advance(all->model, all->searches[i], all->logits[i]);
}

/* Logits of some sentences of a batch and what follows from them. `hidden` are the rows of all of these. */
static int rank(Batch *batch, int64_t first, int64_t last, const float *hidden, float **logits_of) {
    const RegardModel *model = batch->model;
    Work *work = &batch->work;
    const int64_t D = model->config.width, V = model->config.target_size;
    int64_t numbers = 0, plain = 0, R = 0;
    for (int64_t i = first; i < last; i++) {
        const int64_t rows = batch->active[i]->sentence->rows;
        numbers += rows * search_columns(model, batch->active[i]), R += rows;
        if (!batch->active[i]->options.num_allowed) plain += rows;
    }
    float *logits = reserve(work, &work->logits, numbers);
    if (!logits) return -1;
    if (plain == R) output_layer(model, work, hidden, logits, R);
    for (int64_t i = first, row = 0; i < last && !work->failed; i++) {
        const Search *search = batch->active[i];
        const int64_t rows = search->sentence->rows, columns = search_columns(model, search);
        if (search->options.num_allowed) {
            const Matrix some = {.D = D, .F = columns, .packed = search->sentence->shortlist,
                                 .scales = search->sentence->shortlist_scales, .bias = model->output.bias ? search->sentence->shortlist_bias : 0};
            times(model, work, &some, hidden + row * D, D, REGARD_NO_ACTIVATION, logits, columns, rows);
        } else if (plain < R)
            times(model, work, &model->output, hidden + row * D, D, REGARD_NO_ACTIVATION, logits, V, rows);
        logits_of[i - first] = logits;
        logits += rows * columns, row += rows;
    }
    Advance all = {model, batch->active + first, logits_of};
    if (!work->failed) parallel(work->team, last - first, advance_one, &all);
    return work->failed ? -1 : 0;
}

int batch_step(Batch *batch) {
    const RegardModel *model = batch->model;
    const int64_t D = model->config.width;
    int64_t R = 0;
    for (int64_t i = 0; i < batch->count; i++) R += batch->active[i]->sentence->rows;
    Sentence **sentences = allocate(batch->count, sizeof(Sentence *));
    float **logits = allocate(batch->count, sizeof(float *)), *hidden = 0;
    int32_t *tokens = allocate(R, sizeof(int32_t));
    int failed = !sentences || !logits || !tokens;
    for (int64_t i = 0, at = 0; !failed && i < batch->count; i++) {
        sentences[i] = batch->active[i]->sentence;
        memcpy(tokens + at, batch->active[i]->tokens, (size_t)sentences[i]->rows * sizeof(int32_t));
        at += sentences[i]->rows;
    }
    failed = failed || decode_step(model, &batch->work, sentences, batch->count, tokens, &hidden);
    for (int64_t first = 0, last; !failed && first < batch->count; first = last) {
        int64_t numbers = 0, rows = 0;
        for (last = first; last < batch->count; last++) {
            const int64_t more = sentences[last]->rows * search_columns(model, batch->active[last]);
            if (last > first && numbers + more > LOGITS_AT_ONCE) break;
            numbers += more, rows += sentences[last]->rows;
        }
        failed = rank(batch, first, last, hidden, logits);
        hidden += rows * D;
    }
    free(sentences), free(logits), free(tokens);
    return failed;
}
