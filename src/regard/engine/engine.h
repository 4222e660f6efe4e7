/* The engine: search with a Transformer on a CPU, without other libraries.

   A model is made from a configuration and named tensors. A session searches many sentences at once with threads of its own: each
   thread keeps a batch of sentences, which may be at different steps, and takes new ones as others end. Python reads
   this interface with ctypes (`bindings.py`), a web page through WebAssembly.

   Functions that can fail return null or a negative number and leave a sentence in `regard_error()` of the calling thread.
   Nothing here trusts its input: sizes, ids and options are checked before they are used. */

#ifndef REGARD_ENGINE_H
#define REGARD_ENGINE_H

#include <stdint.h>

#pragma GCC visibility push(default) /* everything else in the library is hidden */

typedef struct RegardModel RegardModel;
typedef struct RegardSession RegardSession;
typedef struct RegardRows RegardRows;

enum { REGARD_F32, REGARD_F16, REGARD_I8 };                                  /* types of tensors */
enum { REGARD_NONE, REGARD_SINUSOID, REGARD_HALVES, REGARD_LOG, REGARD_LEARNED, REGARD_ROTARY }; /* positions */
enum { REGARD_FF_RELU, REGARD_FF_GELU, REGARD_FF_SILU, REGARD_FF_SWIGLU, REGARD_FF_CONV };
enum { REGARD_TIE_ALL, REGARD_TIE_TARGET, REGARD_TIE_NONE };

/* The fields of `TransformerConfig` that search needs; -1 is "unset" for `window`. */
typedef struct {
    int32_t width, hidden, num_heads, key_width, value_width, encoder_layers, decoder_layers;
    int32_t positions, first_position, max_positions;
    int32_t rms_norm, pre_norm, final_norm, feed_forward, attention_bias, qk_norm, window, tie, scale_embeddings, output_bias;
    int32_t start_id, source_eos, copy;
    int32_t source_size, target_size, bos, eos;
    int32_t int8; /* products of 8-bit integers */
    float norm_eps;
} RegardConfig;

RegardModel *regard_model_new(const RegardConfig *config);
/* Give the model a tensor under its name in the run's weights, as `type`; an I8 matrix comes with a vector of scales, one per row.
   Data is copied into the layout that products need; the embeddings of an I8 or F16 model stay as small as they are. */
int regard_model_set(RegardModel *model, const char *name, int32_t type, const void *data, const float *scales, int64_t rows,
                     int64_t columns);
/* Check that no tensor is missing. The model can be used from then on, by any number of threads, and does not change. */
int regard_model_ready(RegardModel *model);
int64_t regard_model_bytes(const RegardModel *model);
void regard_model_free(RegardModel *model);

/* What one sentence asks of search. Fields are those of `SearchOptions`. */
typedef struct {
    int32_t beam, nbest, limit, min_length; /* `limit`: the most tokens of this output, EOS included */
    int32_t power_penalty;                  /* length^alpha in place of ((5 + length) / 6)^alpha */
    int32_t early_stopping;                 /* 1: True, 0: False, 2: "never" */
    int32_t scores, token_scores;
    int32_t sample, top_k; /* top_k 0: all */
    double length_penalty, temperature, top_p, epsilon; /* top_p and epsilon below 0: unset */
    const double *numbers;   /* random numbers of samples: [beam, limit] */
    const int32_t *prefix;   /* tokens that the output begins with */
    const int32_t *never;    /* columns that are never output */
    const int32_t *allowed;  /* a shortlist, ascending; none: the whole vocabulary */
    int64_t num_prefix, num_never, num_allowed;
} RegardOptions;

typedef struct {
    int64_t ticket;
    int32_t count;                 /* hypotheses, best first; 0: scores were not finite, or no output is allowed; -1: no memory */
    const int32_t *lengths;        /* of each, without EOS */
    const int32_t *ids;            /* of all, concatenated */
    const double *scores;          /* of each */
    const int32_t *num_token_scores;
    const double *token_scores;    /* of all, concatenated; null if they are not wanted */
    void *memory;
} RegardResult;

/* `threads` 0: the caller's thread does the work inside `regard_session_next` (WebAssembly has no others).
   `rows`: the most rows of a thread's batch; `tokens`: the most source tokens, times the beam, of a thread's batch. */
RegardSession *regard_session_new(const RegardModel *model, int32_t threads, int32_t rows, int32_t tokens);
/* Queue a source, EOS included. Returns its ticket. */
int64_t regard_session_add(RegardSession *session, const int32_t *ids, int64_t count, const RegardOptions *options);
/* Wait for a sentence to end, at most `milliseconds`. 1: `result` is filled, free it; 0: none has ended; negative: failed. Sentences
   come in the order in which they ended. With `threads` 0 the caller's thread makes steps until a sentence ends or the time is over, at
   least one step; WebAssembly has no clock, so any time above 0 is enough for a sentence to end there. */
int regard_session_next(RegardSession *session, int64_t milliseconds, RegardResult *result);
void regard_result_free(RegardResult *result);
/* Forget a sentence, or all of them with ticket -1. Its result does not come. */
void regard_session_cancel(RegardSession *session, int64_t ticket);
void regard_session_free(RegardSession *session); /* ends the threads first */

/* Steps under the control of the caller, for searches that this library does not have. One row per sentence at first. */
RegardRows *regard_rows_new(const RegardModel *model, const int32_t *ids, const int64_t *offsets, int64_t sentences, int32_t beams,
                            int32_t threads);
/* One more token per row; logits [rows, V] are written to `logits`. */
int regard_rows_step(RegardRows *rows, const int32_t *tokens, float *logits);
int regard_rows_expand(RegardRows *rows);                                   /* to `beams` rows per sentence; once */
/* Row i continues row parents[i]. Whole sentences may be dropped; those that stay keep their order. */
int regard_rows_reorder(RegardRows *rows, const int64_t *parents, int64_t count);
int64_t regard_rows_count(const RegardRows *rows);
void regard_rows_free(RegardRows *rows);

enum { REGARD_ALL_ATTENTION, REGARD_LAST_CROSS_ATTENTION };
/* All positions of a given output at once: log-probabilities of its tokens and of EOS, [targets + 1]. `logp` may be null: then neither
   these nor the best tokens are computed.
   `columns` and their `values` [targets + 1, num_columns], if not null, receive the best tokens of each position.
   `attention`, if not null, receives weights: encoder [layers, heads, S, S], decoder [layers, heads, T, T], cross [layers, heads, T, S],
   concatenated, where T = targets + 1 and S is the number of source tokens that the encoder reads; or, as `which` says, those of the last
   decoder layer to the encoder alone, [heads, T, S]. Keys that a query does not see have weight 0. */
int regard_force(const RegardModel *model, const int32_t *source, int64_t sources, const int32_t *target, int64_t targets,
                 int32_t threads, float *logp, int32_t num_columns, int32_t *columns, float *values, float *attention,
                 int32_t which);
/* Make a head (or, with head -1, a layer) of a stack give nothing; stack 0 encoder, 1 decoder, 2 attention to the encoder. For pages that show
   what a part of a model does. Not while a session searches. */
int regard_model_silence(RegardModel *model, int32_t stack, int32_t layer, int32_t head, int32_t silent);
/* The largest of these sizes that a sentence may have: positions of the source that the encoder reads, and of an output. 0: any. */
int32_t regard_model_max_length(const RegardModel *model);

/* The sizes of RegardConfig, RegardOptions and RegardResult, three digits each: a caller sees whether it has other definitions. */
int64_t regard_sizes(void);
const char *regard_error(void);
const char *regard_processor(void); /* the name of the set of kernels in use */
int64_t regard_choose_kernels(const char *name); /* for tests: use another set that this processor supports */

#pragma GCC visibility pop

#endif
