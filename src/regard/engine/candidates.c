/* Candidates for the next token of a sentence, and which of them continue: greedily, by drawing, or by beams. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drawing.h"
#include "search.h"

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

/* Add a token to each row, and let the decoder read it next. */
static void append(const RegardModel *model, Search *search, const int32_t *parents, const int32_t *tokens, const float *sums) {
    const int64_t beam = search->options.beam, rows = beam;
    if (search_make_room(search)) {
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
            search_end_row(model, search, row, tokens[row], sums[row], length);
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
static int is_done(Search *search, float best_open, int64_t length) {
    const RegardOptions *o = &search->options;
    if (search->num_ended >= o->beam && o->early_stopping == 1) return 1;
    if (search->num_ended < o->nbest) return best_open == -INFINITY;
    const double so_far = best_open / search_penalty(o, length);
    if (search->num_ended >= o->beam && o->early_stopping == 0 && so_far <= search_score_at(search, o->beam - 1)) return 1;
    /* Log-probabilities only decrease, and the penalty divides most at the largest length. */
    return best_open / search_penalty(o, o->limit) <= search_score_at(search, o->nbest - 1);
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
        if (possible && found[i].token == eos && i < beam) search_end_row(model, search, found[i].row, eos, found[i].score, length);
        if (possible && found[i].token != eos && found[i].score > best_open) best_open = found[i].score;
    }
    if (length >= o->limit) {
        /* There is no room for another token: open hypotheses count as they are. */
        int64_t room = o->early_stopping == 1 ? beam - search->num_ended : beam;
        for (int64_t i = 0; i < (o->early_stopping == 1 ? wanted : beam) && room > 0; i++)
            if (found[i].score > -INFINITY && found[i].token != eos)
                search_end_row(model, search, found[i].row, found[i].token, found[i].score, length), room--;
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
