/* A fuzz target for the engine: every decision is a byte of the input. Compile it together with the engine's sources:

       cc -g -O1 -fsanitize=address,undefined -fno-sanitize-recover ... fuzz_engine.c    random inputs: ./fuzz SECONDS SEED
       clang -fsanitize=fuzzer,address,undefined -DLIBFUZZER ... fuzz_engine.c           libFuzzer chooses them

   A model gets weights that may be damaged (missing, twice, of another shape or type, not finite) under a configuration that may
   be absurd; then sessions, steps and scores of given outputs run with options that may be absurd. Nothing may crash, and searches end. */

#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"
#include "kernels.h"

typedef struct {
    const uint8_t *data;
    size_t size, at;
    uint64_t state; /* what follows the data */
} Input;

static uint32_t byte(Input *in) {
    if (in->at < in->size) return in->data[in->at++];
    in->state ^= in->state << 13, in->state ^= in->state >> 7, in->state ^= in->state << 17;
    return (uint32_t)(in->state >> 32) & 255;
}

static int chance(Input *in, uint32_t of) { return byte(in) < of; } /* in 256 */
static int32_t below(Input *in, int32_t n) { return n < 1 ? 0 : (int32_t)((byte(in) << 8 | byte(in)) % (uint32_t)n); }
static int32_t between(Input *in, int32_t least, int32_t most) { return least + below(in, most - least + 1); }

static int32_t absurd(Input *in) {
    static const int32_t numbers[] = {0, -1, 1, 2147483647, -2147483647 - 1, 65536, 1 << 20, (1 << 20) + 1, 1000000, 255, 3, -7};
    return numbers[below(in, sizeof numbers / sizeof *numbers)];
}

static float number(Input *in, int damaged) {
    static const float odd[] = {0, -0.0f, 1e30f, -1e30f, 3.4e38f, 1e-40f, NAN, INFINITY, -INFINITY};
    if (damaged && chance(in, 8)) return odd[below(in, sizeof odd / sizeof *odd)];
    return ((float)byte(in) - 127.5f) / 200.0f;
}

static RegardConfig make_config(Input *in) {
    RegardConfig c = {
        .width = 2 * between(in, 1, 20), .hidden = between(in, 1, 40), .num_heads = between(in, 1, 4), .key_width = 2 * between(in, 1, 5),
        .value_width = between(in, 1, 9), .encoder_layers = between(in, 0, 2), .decoder_layers = between(in, 0, 2),
        .positions = between(in, 0, 5), .first_position = between(in, 0, 3), .max_positions = between(in, 8, 40),
        .rms_norm = chance(in, 64), .pre_norm = chance(in, 128), .feed_forward = between(in, 0, 4), .attention_bias = chance(in, 64),
        .qk_norm = chance(in, 64), .window = chance(in, 64) ? between(in, 0, 4) : -1, .tie = between(in, 0, 2),
        .scale_embeddings = chance(in, 200), .output_bias = chance(in, 64), .source_eos = chance(in, 200), .source_size = between(in, 4, 90),
        .int8 = chance(in, 128), .norm_eps = 1e-6f, .bos = 1, .eos = 2};
    c.final_norm = chance(in, 64) ? chance(in, 128) : c.pre_norm;
    c.target_size = c.tie == REGARD_TIE_ALL ? c.source_size : between(in, 4, 90);
    c.start_id = below(in, c.target_size);
    if (chance(in, 16)) {
        int32_t *fields = (int32_t *)&c;
        fields[below(in, (int32_t)(sizeof c / sizeof *fields) - 1)] = absurd(in);
    }
    if (chance(in, 4)) c.norm_eps = NAN;
    return c;
}

/* Give a tensor, or something like it. */
static void set(Input *in, RegardModel *model, const char *name, int64_t rows, int64_t columns, int damaged) {
    if (rows < 1 || columns < 1 || rows > 4096 || columns > 4096 || (damaged && chance(in, 6))) return;
    const int32_t type = chance(in, 128) ? REGARD_F32 : chance(in, 128) && rows > 1 ? REGARD_I8 : REGARD_F16;
    float *data = malloc((size_t)(rows * columns) * sizeof(float)), *scales = malloc((size_t)rows * sizeof(float));
    for (int64_t i = 0; i < rows; i++) scales[i] = number(in, damaged) / 100;
    for (int64_t i = 0; i < rows * columns; i++) {
        if (type == REGARD_F32)
            data[i] = number(in, damaged);
        else if (type == REGARD_I8)
            ((int8_t *)data)[i] = (int8_t)byte(in);
        else
            ((uint16_t *)data)[i] = (uint16_t)((chance(in, 128) ? 0x8000u : 0) | (0x2000u + (byte(in) << 5)));
    }
    if (damaged && chance(in, 10)) rows += between(in, -2, 0), columns += between(in, -1, 0); /* never more than there is */
    regard_model_set(model, name, damaged && chance(in, 3) ? absurd(in) % 3 : type == REGARD_I8 && rows < 2 ? REGARD_F16 : type, data,
                     scales, rows, columns);
    if (damaged && chance(in, 6)) regard_model_set(model, name, REGARD_F32, data, 0, 1, 1);
    free(data), free(scales);
}

static void set_layer(Input *in, RegardModel *model, const RegardConfig *c, const char *stack, int32_t number, int damaged) {
    const int64_t D = c->width, HK = (int64_t)c->num_heads * c->key_width, HW = (int64_t)c->num_heads * c->value_width;
    const int64_t taps = c->feed_forward == REGARD_FF_CONV ? 3 : 1, gated = c->feed_forward == REGARD_FF_SWIGLU ? 2 : 1;
    const struct {
        const char *name;
        int64_t rows, columns;
    } parts[] = {
        {"attention.project.weight", 2 * HK + HW, D}, {"attention.output.weight", D, HW}, {"around_attention.norm.weight", 1, D},
        {"around_attention.norm.bias", 1, D}, {"feed_forward.inner.weight", gated * c->hidden, taps * D},
        {"feed_forward.inner.bias", 1, gated * c->hidden}, {"feed_forward.outer.weight", D, taps * c->hidden},
        {"feed_forward.outer.bias", 1, D}, {"around_feed_forward.norm.weight", 1, D}, {"around_feed_forward.norm.bias", 1, D},
        {"attention.project.bias", 1, 2 * HK + HW}, {"attention.output.bias", 1, D}, {"attention.query_norm.weight", 1, c->key_width},
        {"attention.key_norm.weight", 1, c->key_width}, {"cross_attention.query.weight", HK, D},
        {"cross_attention.memory.weight", HK + HW, D}, {"cross_attention.output.weight", D, HW},
        {"around_cross_attention.norm.weight", 1, D}, {"around_cross_attention.norm.bias", 1, D}, {"cross_attention.query.bias", 1, HK},
        {"cross_attention.memory.bias", 1, HK + HW}, {"cross_attention.output.bias", 1, D},
        {"cross_attention.query_norm.weight", 1, c->key_width}, {"cross_attention.key_norm.weight", 1, c->key_width}};
    char name[96];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) { /* those that a model does not have are refused */
        snprintf(name, sizeof name, "%s.%d.%s", stack, number, parts[i].name);
        set(in, model, name, parts[i].rows, parts[i].columns, damaged);
    }
}

static void set_all(Input *in, RegardModel *model, const RegardConfig *c, int damaged) {
    for (int32_t i = 0; i < c->encoder_layers; i++) set_layer(in, model, c, "encoder", i, damaged);
    for (int32_t i = 0; i < c->decoder_layers; i++) set_layer(in, model, c, "decoder", i, damaged);
    set(in, model, "target_embedding", c->target_size, c->width, damaged);
    set(in, model, "source_embedding", c->source_size, c->width, damaged);
    set(in, model, "output", c->target_size, c->width, damaged);
    set(in, model, "output_bias", 1, c->target_size, damaged);
    set(in, model, "source_positions.learned", c->max_positions, c->width, damaged);
    set(in, model, "target_positions.learned", c->max_positions, c->width, damaged);
    set(in, model, "encoder_norm.weight", 1, c->width, damaged), set(in, model, "encoder_norm.bias", 1, c->width, damaged);
    set(in, model, "decoder_norm.weight", 1, c->width, damaged), set(in, model, "decoder_norm.bias", 1, c->width, damaged);
    if (damaged) set(in, model, "encoder.99999999999.attention", 1, 4, 1), set(in, model, "", 1, 1, 1);
}

static int32_t *make_ids(Input *in, int64_t count, int32_t size, int ascending) {
    int32_t *ids = malloc((size_t)(count ? count : 1) * sizeof(int32_t));
    for (int64_t i = 0; i < count; i++) ids[i] = chance(in, 1) ? absurd(in) : ascending ? (int32_t)(i * size / count) : below(in, size);
    return ids;
}

static void try_session(Input *in, const RegardModel *model, const RegardConfig *c) {
    RegardSession *session =
        regard_session_new(model, between(in, 0, 3), chance(in, 8) ? absurd(in) % 5000 : between(in, 1, 12), between(in, 1, 200));
    if (!session) return;
    int64_t added = 0, got = 0, cancelled = 0;
    for (int32_t n = between(in, 1, 8); n > 0; n--) {
        RegardOptions o = {.beam = between(in, 1, 5), .limit = between(in, 1, 24), .min_length = between(in, 0, 6), .nbest = 1,
                           .power_penalty = chance(in, 64), .early_stopping = between(in, 0, 2), .scores = chance(in, 200),
                           .token_scores = chance(in, 128), .sample = chance(in, 64), .top_k = chance(in, 64) ? between(in, 1, 100) : 0,
                           .length_penalty = 0.6f, .temperature = chance(in, 64) ? 0 : 1.3f, .top_p = chance(in, 64) ? 0.7f : -1,
                           .epsilon = chance(in, 64) ? 0.01f : -1, .num_prefix = between(in, 0, 3), .num_never = between(in, 0, 4)};
        o.nbest = between(in, 1, o.beam);
        o.num_allowed = chance(in, 64) ? between(in, 1, c->target_size) : 0;
        if (chance(in, 16)) ((int32_t *)&o)[below(in, 10)] = absurd(in);
        if (chance(in, 8)) (&o.length_penalty)[below(in, 4)] = number(in, 1);
        const int64_t source = between(in, 1, 30), numbers = o.beam > 0 && o.limit > 0 && o.beam < 2000 && o.limit < 2000 ? (int64_t)o.beam * o.limit : 0;
        double *random = malloc((size_t)(numbers + 1) * sizeof(double));
        for (int64_t i = 0; i < numbers; i++) random[i] = byte(in) / 256.0;
        int32_t *ids = make_ids(in, source, c->source_size, 0), *prefix = make_ids(in, o.num_prefix, c->target_size, 0);
        int32_t *never = make_ids(in, o.num_never, c->target_size, 0), *allowed = make_ids(in, o.num_allowed, c->target_size, 1);
        o.numbers = numbers ? random : 0, o.prefix = prefix, o.never = never, o.allowed = allowed;
        if (o.limit > 2000 && o.limit <= 1 << 20) o.limit = 40; /* allowed, and without an end for this purpose */
        if (o.limit == 40) o.sample = 0;
        const int64_t ticket = regard_session_add(session, ids, source, &o);
        added += ticket >= 0;
        free(random), free(ids), free(prefix), free(never), free(allowed);
        if (ticket >= 0 && chance(in, 20)) regard_session_cancel(session, chance(in, 128) ? ticket : absurd(in)), cancelled = 1;
        if (chance(in, 6)) regard_session_cancel(session, -1), cancelled = 1;
    }
    RegardResult result;
    for (int tries = 0; got < added && tries < (cancelled ? 20 : 100000); tries++) {
        const int found = regard_session_next(session, cancelled ? 2 : 1000, &result);
        if (found > 0) {
            int64_t sum = 0;
            for (int32_t i = 0, at = 0; i < result.count; i++)
                for (int32_t j = 0; j < result.lengths[i]; j++) sum += result.ids[at++];
            if (sum < 0) abort();
            got++;
            regard_result_free(&result);
        }
        if (chance(in, 2)) break; /* free a session that is still searching */
    }
    regard_session_free(session);
}

static void try_rows(Input *in, const RegardModel *model, const RegardConfig *c) {
    const int64_t sentences = between(in, 1, 4);
    int64_t offsets[5] = {0};
    for (int64_t s = 0; s < sentences; s++) offsets[s + 1] = offsets[s] + between(in, chance(in, 4) ? 0 : 1, 12);
    const int32_t beams = chance(in, 6) ? absurd(in) % 100 : between(in, 1, 4);
    int32_t *ids = make_ids(in, offsets[sentences], c->source_size, 0);
    RegardRows *rows = regard_rows_new(model, ids, offsets, sentences, beams, between(in, 0, 2));
    free(ids);
    if (!rows) return;
    const int64_t most = sentences * (beams > 1 ? beams : 1);
    float *logits = malloc((size_t)(most * c->target_size) * sizeof(float));
    int64_t *parents = malloc((size_t)most * sizeof(int64_t));
    for (int32_t step = between(in, 1, 40); step > 0 && regard_rows_count(rows); step--) {
        const int64_t count = regard_rows_count(rows);
        int32_t *tokens = make_ids(in, count, c->target_size, 0);
        regard_rows_step(rows, tokens, logits);
        free(tokens);
        if (chance(in, 60)) regard_rows_expand(rows);
        const int64_t now = regard_rows_count(rows), kept = chance(in, 230) ? now : below(in, (int32_t)now + 1);
        const int64_t per = now > count ? beams : now / (sentences < 1 ? 1 : sentences) < 1 ? 1 : beams;
        for (int64_t i = 0; i < kept; i++) parents[i] = chance(in, 4) ? absurd(in) : i / per * per + below(in, (int32_t)per);
        regard_rows_reorder(rows, parents, kept);
    }
    free(logits), free(parents);
    regard_rows_free(rows);
}

static void try_force(Input *in, RegardModel *model, const RegardConfig *c) {
    const int64_t sources = between(in, 1, 20), targets = between(in, 0, 20), T = targets + 1, H = c->num_heads;
    const int32_t best = chance(in, 4) ? absurd(in) % 91 : between(in, 0, 5);
    const int64_t weights = c->encoder_layers * H * sources * sources + c->decoder_layers * H * (T * T + T * sources);
    int32_t *source = make_ids(in, sources, c->source_size, 0), *target = make_ids(in, targets, c->target_size, 0);
    float *logp = malloc((size_t)T * sizeof(float)), *values = malloc((size_t)(T * 91) * sizeof(float));
    float *attention = malloc((size_t)(weights + 1) * sizeof(float));
    int32_t *columns = malloc((size_t)(T * 91) * sizeof(int32_t));
    if (chance(in, 128)) regard_model_silence(model, between(in, -1, 3), between(in, -1, 3), between(in, -2, 5), chance(in, 200));
    regard_force(model, source, sources, target, targets, between(in, 0, 2), chance(in, 200) ? logp : 0, best, columns, values,
                 chance(in, 128) ? attention : 0, chance(in, 8) ? absurd(in) : between(in, 0, 1));
    free(source), free(target), free(logp), free(values), free(attention), free(columns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in = {data, size, 0, 88172645463325252u + size};
    for (size_t i = 0; i < size && i < 16; i++) in.state = in.state * 31 + data[i];
    regard_choose_kernels(regard_kernels(below(&in, (int32_t)regard_kernels_count()))->name);
    const RegardConfig c = make_config(&in);
    const int damaged = chance(&in, 128);
    RegardModel *model = regard_model_new(&c);
    if (!model) return 0;
    if (c.width <= 64 && c.hidden <= 64 && c.encoder_layers <= 3 && c.decoder_layers <= 3) set_all(&in, model, &c, damaged);
    regard_model_ready(model); /* or not: everything then refuses */
    if (c.source_size <= 90 && c.target_size <= 90 && c.source_size > 0 && c.target_size > 0 && c.num_heads <= 8) {
        try_session(&in, model, &c);
        try_rows(&in, model, &c);
        try_force(&in, model, &c);
        if (chance(&in, 128)) try_session(&in, model, &c);
    }
    regard_model_free(model);
    return 0;
}

#ifndef LIBFUZZER
int main(int count, char **arguments) {
    const double seconds = count > 1 ? atof(arguments[1]) : 10;
    const int64_t most = count > 3 ? atoll(arguments[3]) : INT64_MAX;
    uint64_t state = (count > 2 ? strtoull(arguments[2], 0, 10) : 1) * 2654435761u + 88172645463325252u;
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int64_t cases = 0;
    do {
        uint8_t data[64];
        for (size_t i = 0; i < sizeof data; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            data[i] = (uint8_t)(state >> 32);
        }
        LLVMFuzzerTestOneInput(data, sizeof data);
        cases++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (cases < most && (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec) < seconds);
    printf("%lld cases\n", (long long)cases);
    return 0;
}
#endif
