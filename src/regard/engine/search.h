/* The search of one sentence: which tokens continue it, which hypotheses have ended, and when it is done. */

#ifndef REGARD_SEARCH_H
#define REGARD_SEARCH_H

#include <stdatomic.h>

#include "model.h"

typedef struct {
    int32_t *ids;
    double *token_scores; /* null if they are not wanted */
    double score;
    int32_t length, num_token_scores;
} Ended;

typedef struct Search {
    struct Search *next; /* in a list of the session */
    int64_t ticket;
    RegardOptions options; /* its arrays are copies */
    int32_t *source;
    int32_t num_source;
    Sentence *sentence;
    int32_t step, room; /* tokens of each output so far, and steps that the history has room for */
    int32_t *tokens;    /* of each row: what the decoder reads next */
    float *logp;        /* of each row */
    /* Per step and row: the row that was continued, the token, and the log-probability so far. */
    int32_t *parents, *outputs;
    float *sums;
    uint8_t *closed; /* samples that have ended */
    Ended *ended;
    int32_t num_ended;
    int done, failed; /* failed: no memory */
    atomic_int cancelled;
} Search;

/* A search of these source tokens, EOS included; null and an error if options or ids cannot be. */
Search *search_new(const RegardModel *model, const int32_t *ids, int64_t count, const RegardOptions *options);
void search_free(const RegardModel *model, Search *search);
/* Columns of the logits of this search: the vocabulary, or its shortlist. */
int64_t search_columns(const RegardModel *model, const Search *search);
/* Continue with the logits of each row, [rows, columns], which are changed. Sets `done` at the end. */
void search_advance(const RegardModel *model, Search *search, float *logits);
/* Keep the output of a row as a hypothesis, followed by a token unless that is EOS. `length` counts EOS. */
void search_end_row(const RegardModel *model, Search *search, int64_t row, int32_t token, double score, int64_t length);
double search_penalty(const RegardOptions *options, int64_t length);
/* The score of the hypothesis at this place, the best first. Sets `failed` without memory. */
double search_score_at(Search *search, int64_t place);
int search_make_room(Search *search); /* for one more step in the history */
/* The best hypotheses; 0, or -1 without memory. */
int search_result(const Search *search, RegardResult *result);

#endif
