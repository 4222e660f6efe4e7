/* Steps under the control of the caller, and given outputs scored all at once. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define MAX_ROWS ((int64_t)1 << 24)
#define POSITIONS_AT_ONCE ((int64_t)1 << 21) /* logits that are in memory together */

struct RegardRows {
    const RegardModel *model;
    Work work;
    Sentence **sentences;
    int64_t count;
    int32_t *parents;
    int expanded;
};

static int start_team(Work *work, int32_t threads) {
    if (threads < 2) return 0;
    if (!(work->team = team_new())) return -1;
    team_start_helpers(work->team, threads - 1); /* fewer helpers compute the same */
    return 0;
}

static void end_team(Work *work) {
    Team *team = work->team;
    work_free(work);
    if (team) team_free(team);
}

static int64_t total_rows(const RegardRows *rows) {
    int64_t total = 0;
    for (int64_t i = 0; i < rows->count; i++) total += rows->sentences[i]->rows;
    return total;
}

RegardRows *regard_rows_new(const RegardModel *model, const int32_t *ids, const int64_t *offsets, int64_t sentences, int32_t beams,
                            int32_t threads) {
    const int32_t most = regard_model_max_length(model);
    if (!model->ready) return set_error("the model is not complete"), (RegardRows *)0;
    if (sentences < 1 || beams < 1 || sentences > MAX_ROWS / beams || offsets[0] || threads < 0 || threads > 256)
        return set_error("%lld sentences and %d beams", (long long)sentences, beams), (RegardRows *)0;
    for (int64_t s = 0; s < sentences; s++) {
        const int64_t length = offsets[s + 1] - offsets[s];
        if (length < 1 || length > MAX_LENGTH || (most && length > most))
            return set_error("a source has %lld tokens", (long long)length), (RegardRows *)0;
    }
    if (bad_ids("a source", ids, offsets[sentences], model->config.source_size, INT64_MAX)) return 0;
    RegardRows *rows = allocate(1, sizeof(RegardRows));
    int32_t *read = allocate(offsets[sentences], sizeof(int32_t));
    int64_t *places = allocate(sentences + 1, sizeof(int64_t));
    int failed = !rows || !read || !places;
    if (!failed) {
        rows->model = model;
        rows->sentences = allocate(sentences, sizeof(Sentence *));
        rows->parents = allocate(beams, sizeof(int32_t));
        failed = !rows->sentences || !rows->parents || start_team(&rows->work, threads);
    }
    for (int64_t s = 0; !failed && s < sentences; s++) {
        const int64_t given = offsets[s + 1] - offsets[s], length = given - (!model->config.source_eos && given > 1);
        memcpy(read + places[s], ids + offsets[s], (size_t)length * sizeof(int32_t));
        places[s + 1] = places[s] + length;
        failed = !(rows->sentences[s] = sentence_new(model, (int32_t)length, beams));
        rows->count += !failed;
    }
    failed = failed || encode(model, &rows->work, read, places, rows->sentences, sentences, 0);
    free(read), free(places);
    if (!failed) return rows;
    regard_rows_free(rows);
    return set_error("there is no memory for %lld sentences", (long long)sentences), (RegardRows *)0;
}

int64_t regard_rows_count(const RegardRows *rows) { return total_rows(rows); }

int regard_rows_step(RegardRows *rows, const int32_t *tokens, float *logits) {
    const RegardModel *model = rows->model;
    const int32_t most = regard_model_max_length(model);
    float *hidden;
    if (!rows->count) return 0;
    if (rows->sentences[0]->length >= (most ? most : MAX_LENGTH)) return set_error("there is no further position"), -1;
    if (bad_ids("a step", tokens, total_rows(rows), model->config.target_size, INT64_MAX)) return -1;
    if (decode_step(model, &rows->work, rows->sentences, rows->count, tokens, &hidden)) return set_error("there is no memory for a step"), -1;
    output_layer(model, &rows->work, hidden, logits, total_rows(rows));
    return rows->work.failed ? (set_error("there is no memory for a step"), -1) : 0;
}

int regard_rows_expand(RegardRows *rows) {
    if (rows->expanded) return set_error("rows are expanded once"), -1;
    rows->expanded = 1;
    for (int64_t s = 0; s < rows->count; s++) sentence_expand(rows->model, rows->sentences[s]);
    return 0;
}

int regard_rows_reorder(RegardRows *rows, const int64_t *parents, int64_t count) {
    const int64_t per = rows->count ? rows->sentences[0]->rows : 1, all = total_rows(rows);
    int64_t last = -1;
    if (count < 0 || count > all || count % per) return set_error("%lld rows of %lld", (long long)count, (long long)all), -1;
    for (int64_t i = 0; i < count; i++) {
        if (parents[i] < 0 || parents[i] >= all || parents[i] / per != parents[i / per * per] / per ||
            (i % per == 0 && parents[i] / per <= last))
            return set_error("rows of a sentence continue rows of one sentence, and sentences keep their order"), -1;
        last = parents[i] / per;
    }
    int64_t kept = 0;
    for (int64_t s = 0; s < rows->count; s++) {
        const int64_t at = kept * per;
        if (at >= count || parents[at] / per != s) {
            sentence_free(rows->model, rows->sentences[s]);
            continue;
        }
        for (int64_t r = 0; r < per; r++) rows->parents[r] = (int32_t)(parents[at + r] % per);
        sentence_reorder(rows->model, rows->sentences[s], rows->parents);
        rows->sentences[kept++] = rows->sentences[s];
    }
    rows->count = kept;
    return 0;
}

void regard_rows_free(RegardRows *rows) {
    if (!rows) return;
    for (int64_t s = 0; s < rows->count; s++) sentence_free(rows->model, rows->sentences[s]);
    end_team(&rows->work);
    free(rows->sentences), free(rows->parents), free(rows);
}

/* Given outputs */

/* Log-probabilities of the tokens of an output and of EOS, and the best tokens at each position; x [T, D] is what the output layer reads. */
static int score_positions(const RegardModel *model, Work *work, const float *x, const int32_t *target, int64_t targets, float *logp,
                           int32_t num_columns, int32_t *columns, float *values) {
    const RegardKernels *k = model->kernels;
    const int64_t T = targets + 1, D = model->config.width, V = model->config.target_size, step = POSITIONS_AT_ONCE / V + 1;
    float *logits = allocate((step < T ? step : T) * V, sizeof(float));
    if (!logits) return -1;
    for (int64_t t = 0; t < T && !work->failed; t += step) {
        const int64_t some = T - t < step ? T - t : step;
        output_layer(model, work, x + t * D, logits, some);
        for (int64_t i = 0; !work->failed && i < some; i++) {
            const float *row = logits + i * V, normalizer = k->log_sum_exp(row, V);
            logp[t + i] = row[t + i < targets ? target[t + i] : model->config.eos] - normalizer;
            if (!num_columns) continue;
            const int64_t at = (t + i) * num_columns, found = k->best(row, V, num_columns, values + at, columns + at);
            for (int64_t j = 0; j < found; j++) values[at + j] -= normalizer;
            for (int64_t j = found; j < num_columns; j++) values[at + j] = -INFINITY, columns[at + j] = -1;
        }
    }
    free(logits);
    return work->failed ? -1 : 0;
}

int regard_force(const RegardModel *model, const int32_t *source, int64_t sources, const int32_t *target, int64_t targets,
                 int32_t threads, float *logp, int32_t num_columns, int32_t *columns, float *values, float *attention,
                 int32_t which) {
    const RegardConfig *c = &model->config;
    const int32_t most = regard_model_max_length(model);
    const int64_t T = targets + 1, S = sources - (!c->source_eos && sources > 1), V = c->target_size, H = c->num_heads;
    if (!model->ready) return set_error("the model is not complete"), -1;
    if (sources < 1 || targets < 0 || sources > MAX_LENGTH || T > MAX_LENGTH || (most && (sources > most || T > most)) || threads < 0 ||
        threads > 256 || num_columns < 0 || num_columns > V || which < REGARD_ALL_ATTENTION || which > REGARD_LAST_CROSS_ATTENTION)
        return set_error("a source of %lld tokens and an output of %lld", (long long)sources, (long long)targets), -1;
    if (bad_ids("the source", source, sources, c->source_size, MAX_LENGTH) || bad_ids("the output", target, targets, V, MAX_LENGTH)) return -1;
    Work work = {0};
    const int all = which == REGARD_ALL_ATTENTION;
    const int64_t in_encoder = all ? c->encoder_layers * H * S * S : 0, in_decoder = all ? c->decoder_layers * H * T * T : 0;
    const int64_t cross_layers = all ? c->decoder_layers : c->decoder_layers > 0, offsets[2] = {0, S};
    if (attention) memset(attention, 0, (size_t)(in_encoder + in_decoder + cross_layers * H * T * S) * sizeof(float));
    Sentence *sentence = sentence_new(model, (int32_t)S, 1);
    int32_t *read = allocate(T, sizeof(int32_t));
    float *x = allocate(T * c->width, sizeof(float));
    int failed = !sentence || !read || !x || start_team(&work, threads);
    failed = failed || encode(model, &work, source, offsets, &sentence, 1, all ? attention : 0);
    if (!failed) {
        read[0] = c->bos;
        memcpy(read + 1, target, (size_t)targets * sizeof(int32_t));
        failed = decode_all(model, &work, sentence, read, T, x, attention && all ? attention + in_encoder : 0,
                            attention ? attention + in_encoder + in_decoder : 0, c->decoder_layers - cross_layers);
    }
    if (logp && !failed) failed = score_positions(model, &work, x, target, targets, logp, num_columns, columns, values);
    sentence_free(model, sentence), free(read), free(x);
    end_team(&work);
    return failed ? (set_error("there is no memory for an output of %lld tokens", (long long)targets), -1) : 0;
}
