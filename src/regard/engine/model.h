/* What the files of the engine share: weights, work space, and the state of one sentence in search.

   Shapes: R rows (one token each), D width, H heads, K width of a key, W of a value, S source tokens, V vocabulary. */

#ifndef REGARD_MODEL_H
#define REGARD_MODEL_H

#include "engine.h"
#include "kernels.h"
#include "parallel.h"

#define MAX_LENGTH (1 << 20) /* of a source or an output, in tokens */
#define POSITION_BLOCK 64    /* positions that are computed together */

/* AddressSanitizer sees reads behind the end of a matrix only where the next one does not follow at once. */
#if defined(__has_feature)
#define WITH_ASAN __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#else
#define WITH_ASAN 0
#endif
#define GUARD (WITH_ASAN ? 64 : 0)

/* x Wᵀ + b. The matrix is packed as float32 or as 8-bit integers with a scale per row. */
typedef struct {
    int64_t D, F, offset, size; /* the bytes of `packed`, and where they begin in the block of the model */
    void *packed;
    float *scales, *bias;
} Matrix;

/* Rows of an embedding, in the type in which they are stored. */
typedef struct {
    int64_t rows, width;
    int type;
    void *data;
    float *scales;
} Table;

typedef struct {
    float *weight, *bias;
} NormWeights;

typedef struct {
    Matrix project, query, memory, output; /* `project`: queries, keys and values of self-attention; else `query` and `memory` */
    float *query_norm, *key_norm;
    NormWeights norm;
    uint8_t *silent; /* one per head; the last one is for the sub-layer */
} Attention;

typedef struct {
    Attention own, cross;
    Matrix inner, outer;
    NormWeights norm;
    uint8_t silent;
} Layer;

struct RegardModel {
    RegardConfig config;
    const RegardKernels *kernels;
    int64_t HK, HW; /* widths of the keys and of the values of all heads */
    Layer *encoder, *decoder;
    NormWeights encoder_norm, decoder_norm;
    Table source, target, output_rows, source_learned, target_learned;
    Matrix output;
    float *_Atomic positions[MAX_LENGTH / POSITION_BLOCK]; /* computed when they are first needed */
    char *packed; /* all matrices */
    int64_t packed_bytes, bytes;
    int ready;
};

/* Buffers of one thread, which grow. `failed` is set when there is no memory; what is computed then is of no use. */
typedef struct {
    float *data;
    int64_t size;
} Buffer;

typedef struct {
    Team *team; /* threads that may help, or null */
    Buffer x, branch, projected, heads, hidden, wide, logits, scales, scores;
    Buffer integers, places; /* of other types, but counted in floats */
    int failed;
} Work;

/* What the decoder keeps of one sentence. Keys and values of a token lie side by side: [HK + HW]. The tokens of all beams share
   `own`; `slots` says which entries belong to the past of each row. */
typedef struct {
    int32_t source_length, rows, beams, length; /* `length`: tokens that have been read */
    int32_t used, capacity;                     /* entries of `own` */
    int32_t steps;                              /* room in a row of `slots` */
    int32_t *slots, *spare_slots;               /* [beams, steps] */
    float **own, **cross;                       /* per layer */
    float **recent, *spare_recent;              /* per layer, the last two inputs of both convolutions: [beams, 2 D + 2 F] */
    void *shortlist;                            /* the output layer with the columns of this sentence alone */
    float *shortlist_scales, *shortlist_bias;
} Sentence;

/* The arguments of attention for one sentence: queries, keys and values of all heads. */
typedef struct {
    const float *q, *keys, *values;
    float *out, *weights;
    const int32_t *slots, *firsts, *counts;
    int64_t q_row, row, slots_row, count, most; /* `row`: between keys, and between values; `most`: slots that a query may see */
    int64_t weights_head, weights_row;
} AttentionCall;

/* Where a convolution finds the two neighbours of each row: in the same batch, or in what sentences keep of previous steps. */
typedef struct {
    const int32_t *neighbours;
    Sentence **sentences;
    int64_t count, layer;
} Taps;

static inline int64_t recent_row(const RegardModel *model) { return 2 * ((int64_t)model->config.width + model->config.hidden); }

float *reserve(Work *work, Buffer *buffer, int64_t count);
void work_free(Work *work);
#define LARGEST ((int64_t)1 << 40) /* bytes of one allocation */
void *allocate(int64_t count, int64_t size); /* zeros; null if there is no memory, or the size is absurd */
void *allocate_buffer(int64_t count, int64_t size); /* not cleared, from the beginning of a cache line */
void *allocate_pages(int64_t bytes);                /* zeros, in large pages where the system has them */
void *use_pages(void *pages, int64_t bytes);         /* a part of them, which is written from now on */
void free_pages(void *pages, int64_t bytes);

/* A row of a matrix that is stored as `type`, as floats; and its rows as 8-bit integers with their scales. */
extern const int64_t SIZES[];
void read_row(int type, const void *data, const float *scales, int64_t row, int64_t columns, float *out);
int to_integers(int type, const void *data, const float *scales, int64_t rows, int64_t columns, int8_t *integers, float *new_scales);
int wants_final_norm(const RegardConfig *config);

/* x [count, D]: embeddings and, if the model adds them, positions. */
void embed(const RegardModel *model, Work *work, const Table *table, const Table *learned, const int32_t *ids, const int32_t *positions,
           float *x, int64_t count);
void times(const RegardModel *model, Work *work, const Matrix *matrix, const float *x, int64_t x_row, int activation, float *out,
           int64_t out_row, int64_t R);

/* The parts of a layer, which complete sequences (`sequences.c`) and steps (`steps.c`) share. */
void norm_heads(const RegardModel *model, float *x, int64_t row, const float *weight, int64_t N);
const float *sublayer_input(const RegardModel *model, Work *work, const NormWeights *norm, const float *x, int64_t N);
float *project(const RegardModel *model, Work *work, const Attention *attention, const float *x, const int32_t *positions, int64_t N);
void attend_all(const RegardModel *model, Work *work, const AttentionCall *calls, int64_t count, const uint8_t *silent);
void attention_output(const RegardModel *model, Work *work, const Attention *attention, float *x, const float *heads, int64_t N);
void cross_attention(const RegardModel *model, Work *work, const Attention *attention, float *x, AttentionCall *calls, int64_t count, int64_t N);
void feed_forward(const RegardModel *model, Work *work, const Layer *layer, float *x, const Taps *taps, int64_t N);
void final_norm(const RegardModel *model, const NormWeights *norm, float *x, int64_t N);

/* Encode concatenated sources; each sentence gets the keys and values of every decoder layer. 0, or -1 without memory. */
int encode(const RegardModel *model, Work *work, const int32_t *ids, const int64_t *offsets, Sentence **sentences, int64_t count,
           float *attention);
/* All tokens of one output at once; x [N, D] becomes what the output layer reads. `cross_weights`, like `own_weights` if not null, begin
   with layer `first_cross`. */
int decode_all(const RegardModel *model, Work *work, const Sentence *sentence, const int32_t *ids, int64_t N, float *x, float *own_weights,
               float *cross_weights, int64_t first_cross);
Sentence *sentence_new(const RegardModel *model, int32_t source_length, int32_t beams);
void sentence_free(const RegardModel *model, Sentence *sentence);
int sentence_shorten(const RegardModel *model, Sentence *sentence, const int32_t *allowed, int64_t count);
void sentence_expand(const RegardModel *model, Sentence *sentence);
/* Row j continues row parents[j]. */
void sentence_reorder(const RegardModel *model, Sentence *sentence, const int32_t *parents);
/* One more token per row of each sentence. `hidden` [R, D] is what the output layer reads. 0, or -1 without memory. */
int decode_step(const RegardModel *model, Work *work, Sentence **sentences, int64_t count, const int32_t *tokens, float **hidden);
void output_layer(const RegardModel *model, Work *work, const float *hidden, float *logits, int64_t R);

void set_error(const char *format, ...);
/* Whether `count` is above `most`, or an id is not below `size`; then there is an error, which begins with `what`. */
int bad_ids(const char *what, const int32_t *ids, int64_t count, int64_t size, int64_t most);

#endif
