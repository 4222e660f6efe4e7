/* The parts of layers: products, attention, feed-forward, norms. Whole sequences (`sequences.c`) and steps (`steps.c`) share them.

   Shapes: N tokens or rows, D width, H heads, K width of a key, W of a value, P = 2HK + HW columns of a projection. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "positions.h"

#define SHARED_FROM ((int64_t)1 << 17) /* multiplications of a product from which helpers are worth waking */
#define CHUNKS 8                       /* of a loop that is shared, at most: threads take the next one when they are done */
#define QK_NORM_EPS 1e-6f

float *reserve(Work *work, Buffer *buffer, int64_t count) {
    if (count <= buffer->size) return buffer->data;
    free(buffer->data);
    const int64_t size = count + count / 4;
    buffer->data = allocate_buffer(size, sizeof(float));
    buffer->size = buffer->data ? size : 0;
    if (!buffer->data) work->failed = 1;
    return buffer->data;
}

void work_free(Work *work) {
    Buffer *all[] = {&work->x,      &work->branch, &work->projected, &work->heads,    &work->hidden, &work->wide,
                     &work->logits, &work->scales, &work->scores,    &work->integers, &work->places};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data), *all[i] = (Buffer){0};
}

/* Products */

typedef struct {
    const RegardKernels *kernels;
    const Matrix *matrix;
    const float *x, *x_scales;
    const int8_t *integers;
    int64_t x_row, out_row, R, panels, chunks;
    float *out;
    int activation;
} Product;

static void multiply(void *argument, int64_t i) {
    const Product *p = argument;
    const Matrix *m = p->matrix;
    const int64_t first = i * p->panels / p->chunks, last = (i + 1) * p->panels / p->chunks;
    if (p->integers)
        p->kernels->times_int8(p->integers, p->x_scales, m->packed, m->scales, m->bias, p->activation, p->out, p->out_row, p->R, m->D,
                               m->F, first, last);
    else
        p->kernels->times_f32(p->x, p->x_row, m->packed, m->bias, p->activation, p->out, p->out_row, p->R, m->D, m->F, first, last);
}

void times(const RegardModel *model, Work *work, const Matrix *matrix, const float *x, int64_t x_row, int activation, float *out,
           int64_t out_row, int64_t R) {
    const RegardKernels *k = model->kernels;
    const int64_t panel = model->config.int8 ? k->panel_int8 : k->panel_f32, panels = (matrix->F + panel - 1) / panel;
    Product product = {.kernels = k, .matrix = matrix, .x = x, .x_row = x_row, .out = out, .out_row = out_row, .R = R,
                       .panels = panels, .activation = activation};
    if (model->config.int8) {
        int8_t *integers = (int8_t *)reserve(work, &work->integers, R * ((matrix->D + 63) / 64 * 16));
        float *scales = reserve(work, &work->scales, R);
        if (work->failed) return;
        k->quantize(x, x_row, integers, scales, R, matrix->D);
        product.integers = integers, product.x_scales = scales;
    }
    product.chunks = R * matrix->D * matrix->F < SHARED_FROM || !work->team ? 1 : panels < CHUNKS ? panels : CHUNKS;
    parallel(work->team, product.chunks, multiply, &product);
}

void output_layer(const RegardModel *model, Work *work, const float *hidden, float *logits, int64_t R) {
    times(model, work, &model->output, hidden, model->config.width, REGARD_NO_ACTIVATION, logits, model->config.target_size, R);
}

/* Attention */

typedef struct {
    const RegardModel *model;
    const AttentionCall *calls;
    const uint8_t *silent;
    float *scores;
    int64_t room; /* scores of one iteration */
} AttentionLoop;

static void attend_head(void *argument, int64_t i) {
    const AttentionLoop *all = argument;
    const RegardConfig *c = &all->model->config;
    const int64_t head = i % c->num_heads, K = c->key_width, W = c->value_width, HW = all->model->HW;
    const AttentionCall *one = all->calls + i / c->num_heads;
    float *out = one->out + head * W;
    if (all->silent[head]) {
        for (int64_t r = 0; r < one->count; r++) memset(out + r * HW, 0, (size_t)W * sizeof(float));
        return;
    }
    all->model->kernels->attend(one->q + head * K, one->q_row, one->keys + head * K, one->row, one->values + head * W, one->row,
                                one->slots, one->slots_row, one->firsts, one->counts, 1.0f / sqrtf((float)K), out, HW,
                                one->weights ? one->weights + head * one->weights_head : 0, one->weights_row,
                                all->scores + i * all->room, one->count, K, W);
    for (int64_t r = 0; one->weights && one->firsts && r < one->count; r++) { /* to the columns of the slots that were seen */
        float *weights = one->weights + head * one->weights_head + r * one->weights_row;
        const size_t first = (size_t)one->firsts[r];
        memmove(weights + first, weights, (size_t)one->counts[r] * sizeof(float));
        memset(weights, 0, first * sizeof(float));
    }
}

void attend_all(const RegardModel *model, Work *work, const AttentionCall *calls, int64_t count, const uint8_t *silent) {
    const int64_t H = model->config.num_heads;
    AttentionLoop all = {.model = model, .calls = calls, .silent = silent};
    int64_t tokens = 0;
    for (int64_t i = 0; i < count; i++) {
        all.room = calls[i].most + 16 > all.room ? calls[i].most + 16 : all.room;
        tokens += calls[i].count * calls[i].most;
    }
    const int shared = work->team && tokens * model->HK > SHARED_FROM / 8;
    if (shared) {
        if ((all.scores = reserve(work, &work->scores, count * H * all.room))) parallel(work->team, count * H, attend_head, &all);
        return;
    }
    if (!(all.scores = reserve(work, &work->scores, all.room))) return;
    all.room = 0; /* iterations in sequence share the space */
    for (int64_t i = 0; i < count * H; i++) attend_head(&all, i);
}

void norm_heads(const RegardModel *model, float *x, int64_t row, const float *weight, int64_t N) {
    const int64_t K = model->config.key_width;
    for (int64_t n = 0; weight && n < N; n++)
        for (int64_t h = 0; h < model->config.num_heads; h++) {
            float *head = x + n * row + h * K;
            model->kernels->add_norm(head, 0, weight, 0, QK_NORM_EPS, head, 1, K);
        }
}

/* Queries, keys and values of self-attention: [N, P]. */
float *project(const RegardModel *model, Work *work, const Attention *attention, const float *x, const int32_t *positions,
                      int64_t N) {
    const int64_t D = model->config.width, HK = model->HK, P = attention->project.F;
    float *out = reserve(work, &work->projected, N * P);
    if (!out) return 0;
    times(model, work, &attention->project, x, D, REGARD_NO_ACTIVATION, out, P, N);
    norm_heads(model, out, P, attention->query_norm, N);
    norm_heads(model, out + HK, P, attention->key_norm, N);
    if (model->config.positions == REGARD_ROTARY)
        rotate(model, work, out, P, positions, N), rotate(model, work, out + HK, P, positions, N);
    return work->failed ? 0 : out;
}

/* Sub-layers */

/* What a sub-layer reads: x, or with pre-norm its norm. */
const float *sublayer_input(const RegardModel *model, Work *work, const NormWeights *norm, const float *x, int64_t N) {
    const int64_t D = model->config.width;
    if (!model->config.pre_norm) return x;
    float *normed = reserve(work, &work->branch, N * D);
    if (normed) model->kernels->add_norm(x, 0, norm->weight, norm->bias, model->config.norm_eps, normed, N, D);
    return normed;
}

/* The residual connection: x becomes x + branch, or with post-norm the norm of it. */
static void add_residual(const RegardModel *model, const NormWeights *norm, float *x, const float *branch, int64_t N) {
    const int64_t D = model->config.width;
    if (model->config.pre_norm)
        model->kernels->add(x, branch, N * D);
    else
        model->kernels->add_norm(x, branch, norm->weight, norm->bias, model->config.norm_eps, x, N, D);
}

void attention_output(const RegardModel *model, Work *work, const Attention *attention, float *x, const float *heads, int64_t N) {
    const int64_t D = model->config.width;
    float *branch = reserve(work, &work->branch, N * D);
    if (!branch) return;
    times(model, work, &attention->output, heads, model->HW, REGARD_NO_ACTIVATION, branch, D, N);
    if (!work->failed) add_residual(model, &attention->norm, x, branch, N);
}

void cross_attention(const RegardModel *model, Work *work, const Attention *attention, float *x, AttentionCall *calls, int64_t count,
                            int64_t N) {
    const int64_t D = model->config.width, HK = model->HK, HW = model->HW;
    if (attention->silent[model->config.num_heads]) return;
    const float *read = sublayer_input(model, work, &attention->norm, x, N);
    float *q = reserve(work, &work->projected, N * HK), *heads = reserve(work, &work->heads, N * HW);
    if (work->failed) return;
    times(model, work, &attention->query, read, D, REGARD_NO_ACTIVATION, q, HK, N);
    norm_heads(model, q, HK, attention->query_norm, N);
    for (int64_t i = 0, at = 0; i < count; at += calls[i++].count) {
        calls[i].q = q + at * HK, calls[i].out = heads + at * HW, calls[i].q_row = HK;
        calls[i].values = calls[i].keys + HK, calls[i].row = HK + HW;
    }
    attend_all(model, work, calls, count, attention->silent);
    if (!work->failed) attention_output(model, work, attention, x, heads, N);
}

/* Inputs of a convolution with three taps: each row concatenated with its two neighbours, zeros where there are none. */
static void gather_neighbours(const float *x, int64_t width, const int32_t *neighbours, float *out, int64_t N) {
    for (int64_t n = 0; n < N; n++)
        for (int64_t tap = 0; tap < 3; tap++) {
            const int32_t from = neighbours[3 * n + tap];
            float *to = out + (3 * n + tap) * width;
            if (from < 0)
                memset(to, 0, (size_t)width * sizeof(float));
            else
                memcpy(to, x + from * width, (size_t)width * sizeof(float));
        }
}

/* The same in search, where the two previous rows are kept for the next step. `at` is where they are in `recent`. */
static void gather_recent(const Taps *taps, const float *x, int64_t width, int64_t at, int64_t row, float *out) {
    for (int64_t s = 0; s < taps->count; s++)
        for (int64_t r = 0; r < taps->sentences[s]->rows; r++, x += width, out += 3 * width) {
            float *recent = taps->sentences[s]->recent[taps->layer] + r * row + at;
            memcpy(out, recent, (size_t)(2 * width) * sizeof(float));
            memcpy(out + 2 * width, x, (size_t)width * sizeof(float));
            memcpy(recent, out + width, (size_t)(2 * width) * sizeof(float));
        }
}

static void gather_taps(const RegardModel *model, const Taps *taps, const float *x, int64_t width, int64_t at, float *out, int64_t N) {
    if (taps->neighbours)
        gather_neighbours(x, width, taps->neighbours, out, N);
    else
        gather_recent(taps, x, width, at, recent_row(model), out);
}

void feed_forward(const RegardModel *model, Work *work, const Layer *layer, float *x, const Taps *taps, int64_t N) {
    const RegardConfig *c = &model->config;
    const RegardKernels *k = model->kernels;
    const int64_t D = c->width, F = c->hidden;
    const int gated = c->feed_forward == REGARD_FF_SWIGLU, conv = c->feed_forward == REGARD_FF_CONV;
    const float *read = sublayer_input(model, work, &layer->norm, x, N);
    float *hidden = reserve(work, &work->hidden, N * F * (gated ? 2 : 1)), *wide = 0;
    if (conv || gated) wide = reserve(work, &work->wide, N * (conv ? 3 * (D > F ? D : F) : F));
    if (work->failed) return;
    if (conv) gather_taps(model, taps, read, D, 0, wide, N), read = wide;
    times(model, work, &layer->inner, read, layer->inner.D, c->feed_forward == REGARD_FF_RELU || conv ? REGARD_RELU : 0, hidden,
          layer->inner.F, N);
    if (c->feed_forward == REGARD_FF_GELU) k->gelu(hidden, N * F);
    if (c->feed_forward == REGARD_FF_SILU) k->silu(hidden, N * F);
    const float *inside = hidden;
    if (gated) k->gate(hidden, wide, N, F), inside = wide;
    if (conv) gather_taps(model, taps, hidden, F, 2 * D, wide, N), inside = wide;
    float *branch = reserve(work, &work->branch, N * D);
    if (work->failed) return;
    times(model, work, &layer->outer, inside, layer->outer.D, REGARD_NO_ACTIVATION, branch, D, N);
    if (!work->failed) add_residual(model, &layer->norm, x, branch, N);
}

void final_norm(const RegardModel *model, const NormWeights *norm, float *x, int64_t N) {
    if (norm->weight) model->kernels->add_norm(x, 0, norm->weight, norm->bias, model->config.norm_eps, x, N, model->config.width);
}
