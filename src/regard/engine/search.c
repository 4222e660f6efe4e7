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

static int bad_ids(const char *what, const int32_t *ids, int64_t count, int64_t size, int64_t most) {
    if (count < 0 || count > most || (count && !ids)) return set_error("%s has %lld ids", what, (long long)count), 1;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= size)
            return set_error("%s has the id %d, and there are %lld", what, ids[i], (long long)size), 1;
    return 0;
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
    if (o->sample && (!o->numbers || !(o->temperature >= 0 && o->temperature <= 1e6f) || o->top_k < 0))
        return set_error("samples need random numbers, a temperature of 0 or more, and top_k of 0 or more"), 1;
    return 0;
}

/* Columns that are kept for every row of a step. */
static int grow_history(Search *search) {
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
        grow_history(search)) {
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

static double penalty(const RegardOptions *o, int64_t length) {
    return pow(o->power_penalty ? (double)length : (5.0 + (double)length) / 6.0, o->length_penalty);
}

/* Columns and tokens; they differ where there is a shortlist. */

static int64_t column_of(const Search *search, int32_t token) {
    const RegardOptions *o = &search->options;
    if (!o->num_allowed) return token;
    int64_t low = 0, high = o->num_allowed;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (o->allowed[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low < o->num_allowed && o->allowed[low] == token ? low : -1;
}

static int32_t token_of(const Search *search, int64_t column) {
    return search->options.num_allowed ? search->options.allowed[column] : (int32_t)column;
}

/* Make impossible what may not come next in a row. */
static void restrict_row(const RegardModel *model, const Search *search, float *logits, int64_t columns) {
    const RegardOptions *o = &search->options;
    int64_t column;
    if (search->step < o->min_length && (column = column_of(search, model->config.eos)) >= 0) logits[column] = -INFINITY;
    if (search->step < o->num_prefix) {
        const int64_t only = column_of(search, o->prefix[search->step]);
        const float value = only < 0 ? -INFINITY : logits[only];
        for (column = 0; column < columns; column++) logits[column] = -INFINITY;
        if (only >= 0) logits[only] = value;
        return;
    }
    for (int64_t i = 0; i < o->num_never; i++)
        if ((column = column_of(search, o->never[i])) >= 0) logits[column] = -INFINITY;
}

/* Hypotheses */

/* Keep the output of a row, followed by a token unless that is EOS. */
static void end_row(const RegardModel *model, Search *search, int64_t row, int32_t token, double score, int64_t length) {
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
    *one = (Ended){.ids = allocate(count, sizeof(int32_t)), .length = (int32_t)count, .score = unscored ? 0 : score / penalty(o, length)};
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

static double score_at(const Search *search, int64_t place) {
    Ended **order = ranked(search);
    const double found = order ? order[place]->score : -INFINITY;
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

/* Add a token to each row, and let the decoder read it next. */
static void append(const RegardModel *model, Search *search, const int32_t *parents, const int32_t *tokens, const float *sums) {
    const int64_t beam = search->options.beam, rows = beam;
    if (grow_history(search)) {
        search->failed = 1;
        return;
    }
    if (search->sentence->rows < rows) sentence_expand(model, search->sentence);
    for (int64_t r = 0; r < rows; r++) {
        search->parents[search->step * beam + r] = parents[r];
        search->outputs[search->step * beam + r] = search->tokens[r] = tokens[r];
        search->sums[search->step * beam + r] = sums[r];
    }
    sentence_reorder(model, search->sentence, parents);
    search->step++;
}

/* Greedy search and samples: rows that do not depend on each other */

#include "drawing.h"

static void advance_rows(const RegardModel *model, Search *search, float *logits, int64_t columns) {
    const RegardOptions *o = &search->options;
    const RegardKernels *k = model->kernels;
    const int64_t beam = o->beam, length = search->step + 1;
    int32_t *parents = allocate(2 * beam, sizeof(int32_t)), *tokens = parents + beam;
    float *sums = allocate(beam, sizeof(float));
    if (!parents || !sums) search->failed = 1;
    int open = 0;
    for (int64_t row = 0; !search->failed && row < beam; row++) {
        const int first = search->sentence->rows < beam; /* all samples begin with the same logits */
        float *own = logits + (first ? 0 : row) * columns;
        if (!row || !first) {
            search->logp[row] = o->scores || o->token_scores ? k->log_sum_exp(own, columns) : 0.0f; /* until the token is known */
            restrict_row(model, search, own, columns);
        }
        const float normalizer = search->logp[first ? 0 : row];
        const float before = search->step ? search->sums[(search->step - 1) * beam + row] : 0.0f;
        parents[row] = first ? 0 : (int32_t)row, tokens[row] = model->config.eos, sums[row] = before;
        if (search->closed[row]) continue;
        float value;
        int32_t place;
        int64_t found = 1;
        if (o->sample)
            place = draw(k, own, columns, o, o->numbers[row * o->limit + search->step], &search->failed), value = own[place < 0 ? 0 : place];
        else if ((found = k->best(own, columns, 1, &value, &place)) < 1)
            place = -1;
        if (place < 0 || isnan(normalizer) || isnan(value)) { /* nothing is allowed, or scores are not finite */
            search->closed[row] = 1;
            continue;
        }
        tokens[row] = token_of(search, place);
        sums[row] = before + (value - normalizer);
        if (tokens[row] == model->config.eos || length >= o->limit) {
            end_row(model, search, row, tokens[row], sums[row], length);
            search->closed[row] = 1;
        } else
            open = 1;
    }
    search->done = search->failed || !open;
    if (!search->done) append(model, search, parents, tokens, sums);
    free(parents), free(sums);
}

/* Beam search */

typedef struct {
    float score;
    int32_t token, row;
} Candidate;

static int by_candidate(const void *a, const void *b) {
    const Candidate *one = a, *other = b;
    if (one->score != other->score) return one->score > other->score ? -1 : 1;
    return one->row != other->row ? (one->row < other->row ? -1 : 1) : (one->token < other->token ? -1 : one->token > other->token);
}

/* The best continuations of a sentence, best first, filled up to `wanted` with impossible ones; null without memory. */
static Candidate *find_candidates(const RegardModel *model, Search *search, float *logits, int64_t columns, int64_t wanted) {
    const RegardKernels *k = model->kernels;
    const int64_t rows = search->sentence->rows;
    Candidate *all = allocate((rows > 1 ? rows : 1) * wanted, sizeof(Candidate));
    float *values = allocate(wanted, sizeof(float));
    int32_t *places = allocate(wanted, sizeof(int32_t));
    int64_t count = 0;
    for (int64_t row = 0; all && values && places && row < rows; row++) {
        float *own = logits + row * columns;
        if (search->logp[row] == -INFINITY) continue;
        const float more = search->logp[row] - k->log_sum_exp(own, columns);
        restrict_row(model, search, own, columns);
        const int64_t found = k->best(own, columns, wanted, values, places);
        for (int64_t i = 0; i < found; i++) {
            const float score = values[i] + more;
            if (score > -INFINITY) all[count++] = (Candidate){score, token_of(search, places[i]), (int32_t)row};
        }
    }
    if (all && values && places) {
        qsort(all, (size_t)count, sizeof(Candidate), by_candidate);
        const int32_t last = count ? all[count - 1].row : 0;
        for (; count < wanted; count++) all[count] = (Candidate){-INFINITY, model->config.eos, last};
    } else
        free(all), all = 0;
    free(values), free(places);
    return all;
}

/* Whether enough hypotheses ended, or no open one can still become one of the best. */
static int is_done(const Search *search, float best_open, int64_t length) {
    const RegardOptions *o = &search->options;
    if (search->num_ended >= o->beam && o->early_stopping == 1) return 1;
    if (search->num_ended < o->nbest) return best_open == -INFINITY;
    const double so_far = best_open / penalty(o, length);
    if (search->num_ended >= o->beam && o->early_stopping == 0 && so_far <= score_at(search, o->beam - 1)) return 1;
    /* Log-probabilities only decrease, and the penalty divides most at the largest length. */
    return best_open / penalty(o, o->limit) <= score_at(search, o->nbest - 1);
}

static void advance_beams(const RegardModel *model, Search *search, float *logits, int64_t columns) {
    const RegardOptions *o = &search->options;
    const int64_t beam = o->beam, wanted = 2 * beam, length = search->step + 1; /* at most half of them can be EOS */
    const int32_t eos = model->config.eos;
    Candidate *found = find_candidates(model, search, logits, columns, wanted);
    int32_t *parents = allocate(2 * beam, sizeof(int32_t)), *tokens = parents + beam;
    float *sums = allocate(beam, sizeof(float)), best_open = -INFINITY;
    if (!found || !parents || !sums) {
        search->failed = search->done = 1;
        free(found), free(parents), free(sums);
        return;
    }
    for (int64_t i = 0; i < wanted; i++) {
        const int possible = found[i].score > -INFINITY;
        if (possible && found[i].token == eos && i < beam) end_row(model, search, found[i].row, eos, found[i].score, length);
        if (possible && found[i].token != eos && found[i].score > best_open) best_open = found[i].score;
    }
    if (length >= o->limit) {
        /* There is no room for another token: open hypotheses count as they are. */
        int64_t room = o->early_stopping == 1 ? beam - search->num_ended : beam;
        for (int64_t i = 0; i < (o->early_stopping == 1 ? wanted : beam) && room > 0; i++)
            if (found[i].score > -INFINITY && found[i].token != eos)
                end_row(model, search, found[i].row, found[i].token, found[i].score, length), room--;
    }
    search->done = search->failed || length >= o->limit || is_done(search, best_open, length);
    if (!search->done) {
        int64_t r = 0;
        for (int ends = 0; ends < 2; ends++) /* those that end come last, and are impossible */
            for (int64_t i = 0; i < wanted && r < beam; i++)
                if ((found[i].token == eos) == ends) {
                    parents[r] = found[i].row, tokens[r] = found[i].token, sums[r] = found[i].score;
                    search->logp[r++] = ends ? -INFINITY : found[i].score;
                }
        append(model, search, parents, tokens, sums);
    }
    free(found), free(parents), free(sums);
}

void search_advance(const RegardModel *model, Search *search, float *logits) {
    const int64_t columns = search_columns(model, search);
    if (search->options.sample || search->options.beam == 1)
        advance_rows(model, search, logits, columns);
    else
        advance_beams(model, search, logits, columns);
    if (search->failed) search->done = 1;
}
