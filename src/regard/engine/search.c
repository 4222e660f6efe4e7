#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BEAM 1000
#define FIRST_ROOM 32

static void *copy_of(const void *data, int64_t count, int64_t size) {
    void *copy = allocate(count, size);
    if (copy && count) memcpy(copy, data, (size_t)(count * size));
    return copy;
}

static int refuse(const RegardModel *model, const int32_t *ids, int64_t count, const RegardOptions *o) {
    const RegardConfig *c = &model->config;
    const int32_t most = regard_model_max_length(model);
    if (bad_ids("the source", ids, count, c->source_size, MAX_LENGTH) || bad_ids("the prefix", o->prefix, o->num_prefix, c->target_size, MAX_LENGTH) ||
        bad_ids("never", o->never, o->num_never, c->target_size, c->target_size) ||
        bad_ids("the shortlist", o->allowed, o->num_allowed, c->target_size, c->target_size))
        return 1;
    for (int64_t i = 1; i < o->num_allowed; i++)
        if (o->allowed[i] <= o->allowed[i - 1]) return set_error("the shortlist is not in ascending order"), 1;
    if (count < 1) return set_error("the source is empty"), 1;
    if (most && (count > most || o->limit > most)) return set_error("the model has learned %d positions", most), 1;
    if (o->beam < 1 || o->beam > MAX_BEAM || o->nbest < 1 || o->nbest > o->beam)
        return set_error("beam is %d and nbest %d; they must be from 1 to %d, and nbest at most beam", o->beam, o->nbest, MAX_BEAM), 1;
    if (o->limit < 1 || o->limit > MAX_LENGTH) return set_error("limit is %d; it must be from 1 to %d", o->limit, MAX_LENGTH), 1;
    if (!(o->length_penalty >= 0 && o->length_penalty <= 100)) return set_error("length_penalty must be from 0 to 100"), 1;
    if (o->early_stopping < 0 || o->early_stopping > 2) return set_error("early_stopping must be 0, 1 or 2"), 1;
    if (o->sample && (!o->numbers || !(o->temperature >= 0 && o->temperature <= 1e6) || o->top_k < 0))
        return set_error("samples need random numbers, a temperature of 0 or more, and top_k of 0 or more"), 1;
    return 0;
}

/* Columns that are kept for every row of a step. */
int search_make_room(Search *search) {
    const int64_t beam = search->options.beam;
    if (search->step < search->room) return 0;
    const int32_t room = search->room ? 2 * search->room : FIRST_ROOM;
    int32_t *parents = realloc(search->parents, (size_t)(room * beam) * sizeof(int32_t));
    if (parents) search->parents = parents;
    int32_t *outputs = realloc(search->outputs, (size_t)(room * beam) * sizeof(int32_t));
    if (outputs) search->outputs = outputs;
    float *sums = realloc(search->sums, (size_t)(room * beam) * sizeof(float));
    if (sums) search->sums = sums;
    if (!parents || !outputs || !sums) return -1;
    search->room = room;
    return 0;
}

Search *search_new(const RegardModel *model, const int32_t *ids, int64_t count, const RegardOptions *options) {
    if (!model->ready) return set_error("the model is not complete"), (Search *)0;
    if (refuse(model, ids, count, options)) return 0;
    Search *search = allocate(1, sizeof(Search));
    if (!search) return set_error("there is no memory"), (Search *)0;
    RegardOptions *o = &search->options;
    const int64_t beam = options->beam, numbers = options->sample ? beam * options->limit : 0;
    *o = *options;
    o->numbers = copy_of(options->numbers, numbers, sizeof(double));
    o->prefix = copy_of(options->prefix, o->num_prefix, sizeof(int32_t));
    o->never = copy_of(options->never, o->num_never, sizeof(int32_t));
    o->allowed = copy_of(options->allowed, o->num_allowed, sizeof(int32_t));
    search->source = copy_of(ids, count, sizeof(int32_t)), search->num_source = (int32_t)count;
    search->tokens = allocate(beam, sizeof(int32_t));
    search->logp = allocate(beam, sizeof(float));
    search->closed = allocate(beam, 1);
    if (!o->numbers || !o->prefix || !o->never || !o->allowed || !search->source || !search->tokens || !search->logp || !search->closed ||
        search_make_room(search)) {
        search_free(model, search);
        return set_error("there is no memory for a beam of %lld", (long long)beam), (Search *)0;
    }
    search->tokens[0] = model->config.bos;
    return search;
}

void search_free(const RegardModel *model, Search *search) {
    if (!search) return;
    const RegardOptions *o = &search->options;
    for (int32_t i = 0; i < search->num_ended; i++) free(search->ended[i].ids), free(search->ended[i].token_scores);
    free((void *)o->numbers), free((void *)o->prefix), free((void *)o->never), free((void *)o->allowed);
    free(search->source), free(search->tokens), free(search->logp), free(search->closed), free(search->ended);
    free(search->parents), free(search->outputs), free(search->sums);
    sentence_free(model, search->sentence);
    free(search);
}

int64_t search_columns(const RegardModel *model, const Search *search) {
    return search->options.num_allowed ? search->options.num_allowed : model->config.target_size;
}

double search_penalty(const RegardOptions *o, int64_t length) {
    return pow(o->power_penalty ? (double)length : (5.0 + (double)length) / 6.0, o->length_penalty);
}

/* Hypotheses */

/* Keep the output of a row, followed by a token unless that is EOS. */
void search_end_row(const RegardModel *model, Search *search, int64_t row, int32_t token, double score, int64_t length) {
    const int64_t beam = search->options.beam, step = search->step;
    Ended *more = realloc(search->ended, (size_t)(search->num_ended + 1) * sizeof(Ended));
    if (!more) {
        search->failed = 1;
        return;
    }
    search->ended = more;
    Ended *one = more + search->num_ended;
    const int64_t count = step + (token != model->config.eos);
    const RegardOptions *o = &search->options;
    const int unscored = !o->scores && (o->sample || o->beam == 1);
    *one = (Ended){.ids = allocate(count, sizeof(int32_t)), .length = (int32_t)count, .score = unscored ? 0 : score / search_penalty(o, length)};
    if (search->options.token_scores) one->token_scores = allocate(step + 1, sizeof(double)), one->num_token_scores = (int32_t)step + 1;
    search->num_ended++;
    if (!one->ids || (search->options.token_scores && !one->token_scores)) {
        search->failed = 1;
        return;
    }
    if (token != model->config.eos) one->ids[step] = token;
    double after = score;
    for (int64_t t = step - 1; t >= 0; t--) {
        const double sum = search->sums[t * beam + row];
        one->ids[t] = search->outputs[t * beam + row];
        if (one->token_scores) one->token_scores[t + 1] = after - sum;
        after = sum;
        row = search->parents[t * beam + row];
    }
    if (one->token_scores) one->token_scores[0] = after;
}

static int by_score(const void *a, const void *b) {
    const Ended *one = *(Ended *const *)a, *other = *(Ended *const *)b;
    if (one->score != other->score) return one->score > other->score ? -1 : 1;
    return one < other ? -1 : 1; /* the earlier first */
}

static Ended **ranked(const Search *search) {
    Ended **order = allocate(search->num_ended, sizeof(Ended *));
    for (int32_t i = 0; order && i < search->num_ended; i++) order[i] = search->ended + i;
    if (order) qsort(order, (size_t)search->num_ended, sizeof(Ended *), by_score);
    return order;
}

double search_score_at(Search *search, int64_t place) {
    Ended **order = ranked(search);
    const double found = order ? order[place]->score : -INFINITY;
    if (!order) search->failed = 1;
    free(order);
    return found;
}

int search_result(const Search *search, RegardResult *result) {
    *result = (RegardResult){.ticket = search->ticket, .count = -1};
    if (search->failed) return 0;
    Ended **order = ranked(search);
    if (!order) return -1;
    const int64_t count = search->num_ended < search->options.nbest ? search->num_ended : search->options.nbest;
    int64_t ids = 0, scores = 0;
    for (int64_t i = 0; i < count; i++) ids += order[i]->length, scores += order[i]->num_token_scores;
    char *memory = allocate((count + scores) * 8 + (2 * count + ids) * 4 + 8, 1);
    if (!memory) return free(order), -1;
    double *all_scores = (double *)memory, *all_token_scores = all_scores + count;
    int32_t *lengths = (int32_t *)(all_token_scores + scores), *num_token_scores = lengths + count, *all_ids = num_token_scores + count;
    *result = (RegardResult){.ticket = search->ticket, .count = (int32_t)count, .lengths = lengths, .ids = all_ids, .scores = all_scores,
                             .num_token_scores = num_token_scores, .memory = memory,
                             .token_scores = search->options.token_scores ? all_token_scores : 0};
    for (int64_t i = 0; i < count; i++) {
        lengths[i] = order[i]->length, num_token_scores[i] = order[i]->num_token_scores, all_scores[i] = order[i]->score;
        memcpy(all_ids, order[i]->ids, (size_t)order[i]->length * sizeof(int32_t));
        if (order[i]->token_scores)
            memcpy(all_token_scores, order[i]->token_scores, (size_t)order[i]->num_token_scores * sizeof(double));
        all_ids += order[i]->length, all_token_scores += order[i]->num_token_scores;
    }
    free(order);
    return 0;
}

void regard_result_free(RegardResult *result) {
    free(result->memory);
    *result = (RegardResult){0};
}
