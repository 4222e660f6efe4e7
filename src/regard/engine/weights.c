/* Weights: named tensors, as a run stores them, laid out for products and look-ups. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static void *counted(RegardModel *model, int64_t count, int64_t size) {
    void *found = allocate(count, size);
    if (found) model->bytes += count * size;
    return found;
}

static int set_vector(RegardModel *model, float **to, int type, const void *data, const float *scales, int64_t rows, int64_t columns,
                      int64_t expected) {
    if (*to) return set_error("is given twice"), -1;
    if (rows != 1 || columns != expected || type == REGARD_I8)
        return set_error("has %lld x %lld entries in place of %lld", (long long)rows, (long long)columns, (long long)expected), -1;
    if (!(*to = counted(model, expected, sizeof(float)))) return set_error("finds no memory"), -1;
    read_row(type, data, scales, 0, columns, *to);
    return 0;
}

static int set_table(RegardModel *model, Table *table, int type, const void *data, const float *scales, int64_t rows, int64_t columns,
                     int64_t expected) {
    if (table->data) return set_error("is given twice"), -1;
    if (rows != expected || columns != model->config.width)
        return set_error("has %lld x %lld entries in place of %lld x %d", (long long)rows, (long long)columns, (long long)expected,
                         model->config.width),
               -1;
    /* A model of 8-bit integers looks embeddings up in the integers that its output layer multiplies. */
    const int stored = model->config.int8 && rows > 1 ? REGARD_I8 : type;
    *table = (Table){.rows = rows, .width = columns, .type = stored, .data = counted(model, rows * columns, SIZES[stored])};
    if (stored == REGARD_I8) table->scales = counted(model, rows, sizeof(float));
    if (!table->data || (stored == REGARD_I8 && !table->scales)) return set_error("finds no memory"), -1;
    if (stored != REGARD_I8)
        memcpy(table->data, data, (size_t)(rows * columns * SIZES[type]));
    else if (to_integers(type, data, scales, rows, columns, table->data, table->scales))
        return set_error("finds no memory"), -1;
    return 0;
}

static int pack(RegardModel *model, Matrix *matrix, int type, const void *data, const float *scales, int64_t rows, int64_t columns) {
    const RegardKernels *k = model->kernels;
    if (matrix->packed) return set_error("is given twice"), -1;
    if (rows != matrix->F || columns != matrix->D)
        return set_error("has %lld x %lld entries in place of %lld x %lld", (long long)rows, (long long)columns, (long long)matrix->F,
                         (long long)matrix->D),
               -1;
    const int int8 = model->config.int8;
    if (!model->packed) model->packed = allocate_pages(model->packed_bytes);
    if (model->packed) matrix->packed = use_pages(model->packed + matrix->offset, matrix->size), model->bytes += matrix->size;
    void *plain = allocate(rows * columns, int8 ? 1 : sizeof(float));
    if (int8) matrix->scales = counted(model, rows, sizeof(float));
    int failed = !matrix->packed || !plain || (int8 && !matrix->scales);
    if (!failed && int8) {
        failed = to_integers(type, data, scales, rows, columns, plain, matrix->scales);
        if (!failed) k->pack_int8(plain, matrix->packed, columns, rows);
    } else if (!failed) {
        for (int64_t f = 0; f < rows; f++) read_row(type, data, scales, f, columns, (float *)plain + f * columns);
        k->pack_f32(plain, matrix->packed, columns, rows);
    }
    free(plain);
    return failed ? (set_error("finds no memory"), -1) : 0;
}

typedef struct {
    const char *name;
    Matrix *matrix;
    float **vector;
    int64_t size; /* of the vector */
} Part;

/* The parts of a layer under their names; absent ones have a null matrix and vector. */
static const Part *part_of_layer(RegardModel *model, Layer *layer, int cross, const char *name) {
    static _Thread_local Part found;
    const RegardConfig *c = &model->config;
    const int bias = c->attention_bias, qk = c->qk_norm, rms = c->rms_norm;
    const Part parts[] = {
        {"attention.project.weight", &layer->own.project, 0, 0},
        {"attention.project.bias", 0, bias ? &layer->own.project.bias : 0, layer->own.project.F},
        {"attention.output.weight", &layer->own.output, 0, 0},
        {"attention.output.bias", 0, bias ? &layer->own.output.bias : 0, c->width},
        {"attention.query_norm.weight", 0, qk ? &layer->own.query_norm : 0, c->key_width},
        {"attention.key_norm.weight", 0, qk ? &layer->own.key_norm : 0, c->key_width},
        {"around_attention.norm.weight", 0, &layer->own.norm.weight, c->width},
        {"around_attention.norm.bias", 0, rms ? 0 : &layer->own.norm.bias, c->width},
        {"feed_forward.inner.weight", &layer->inner, 0, 0},
        {"feed_forward.inner.bias", 0, &layer->inner.bias, layer->inner.F},
        {"feed_forward.outer.weight", &layer->outer, 0, 0},
        {"feed_forward.outer.bias", 0, &layer->outer.bias, c->width},
        {"around_feed_forward.norm.weight", 0, &layer->norm.weight, c->width},
        {"around_feed_forward.norm.bias", 0, rms ? 0 : &layer->norm.bias, c->width},
        {"cross_attention.query.weight", cross ? &layer->cross.query : 0, 0, 0},
        {"cross_attention.query.bias", 0, cross && bias ? &layer->cross.query.bias : 0, layer->cross.query.F},
        {"cross_attention.memory.weight", cross ? &layer->cross.memory : 0, 0, 0},
        {"cross_attention.memory.bias", 0, cross && bias ? &layer->cross.memory.bias : 0, layer->cross.memory.F},
        {"cross_attention.output.weight", cross ? &layer->cross.output : 0, 0, 0},
        {"cross_attention.output.bias", 0, cross && bias ? &layer->cross.output.bias : 0, c->width},
        {"cross_attention.query_norm.weight", 0, cross && qk ? &layer->cross.query_norm : 0, c->key_width},
        {"cross_attention.key_norm.weight", 0, cross && qk ? &layer->cross.key_norm : 0, c->key_width},
        {"around_cross_attention.norm.weight", 0, cross ? &layer->cross.norm.weight : 0, c->width},
        {"around_cross_attention.norm.bias", 0, cross && !rms ? &layer->cross.norm.bias : 0, c->width},
    };
    const size_t count = sizeof parts / sizeof *parts;
    if (!name) { /* the first part that is still missing */
        for (size_t i = 0; i < count; i++)
            if ((parts[i].matrix && !parts[i].matrix->packed) || (parts[i].vector && !*parts[i].vector))
                return found = parts[i], &found;
        return 0;
    }
    for (size_t i = 0; i < count; i++)
        if (!strcmp(parts[i].name, name)) return found = parts[i], found.matrix || found.vector ? &found : 0;
    return 0;
}

int wants_final_norm(const RegardConfig *c) { return c->final_norm < 0 ? c->pre_norm : c->final_norm; }

static int set_named(RegardModel *model, const char *name, int type, const void *data, const float *scales, int64_t rows, int64_t columns) {
    const RegardConfig *c = &model->config;
    for (int stack = 0; stack < 2; stack++) {
        const char *prefix = stack ? "decoder." : "encoder.";
        if (strncmp(name, prefix, 8) || name[8] < '0' || name[8] > '9') continue;
        char *rest;
        const long number = strtol(name + 8, &rest, 10);
        if (number >= (stack ? c->decoder_layers : c->encoder_layers) || *rest != '.') break;
        const Part *part = part_of_layer(model, (stack ? model->decoder : model->encoder) + number, stack, rest + 1);
        if (!part) break;
        return part->matrix ? pack(model, part->matrix, type, data, scales, rows, columns)
                            : set_vector(model, part->vector, type, data, scales, rows, columns, part->size);
    }
    const int norms = wants_final_norm(c), learned = c->positions == REGARD_LEARNED, rms = c->rms_norm;
    const struct {
        const char *name;
        float **to;
        int64_t size;
    } vectors[] = {
        {"encoder_norm.weight", norms ? &model->encoder_norm.weight : 0, c->width},
        {"encoder_norm.bias", norms && !rms ? &model->encoder_norm.bias : 0, c->width},
        {"decoder_norm.weight", norms ? &model->decoder_norm.weight : 0, c->width},
        {"decoder_norm.bias", norms && !rms ? &model->decoder_norm.bias : 0, c->width},
        {"output_bias", c->output_bias ? &model->output.bias : 0, c->target_size},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        if (vectors[i].to && !strcmp(vectors[i].name, name))
            return set_vector(model, vectors[i].to, type, data, scales, rows, columns, vectors[i].size);
    const struct {
        const char *name;
        Table *to;
        int64_t rows;
    } tables[] = {
        {"source_embedding", c->tie != REGARD_TIE_ALL ? &model->source : 0, c->source_size},
        {"target_embedding", &model->target, c->target_size},
        {"output", c->tie == REGARD_TIE_NONE ? &model->output_rows : 0, c->target_size},
        {"source_positions.learned", learned ? &model->source_learned : 0, c->max_positions},
        {"target_positions.learned", learned ? &model->target_learned : 0, c->max_positions},
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (!tables[i].to || strcmp(tables[i].name, name)) continue;
        const int failed = set_table(model, tables[i].to, type, data, scales, rows, columns, tables[i].rows);
        const int is_output = tables[i].to == (c->tie == REGARD_TIE_NONE ? &model->output_rows : &model->target);
        return failed || !is_output ? failed : pack(model, &model->output, type, data, scales, rows, columns);
    }
    return set_error("is not a weight of this model"), -1;
}

int regard_model_set(RegardModel *model, const char *name, int32_t type, const void *data, const float *scales, int64_t rows,
                     int64_t columns) {
    char reason[160];
    if (model->ready) return set_error("the model is complete"), -1;
    if (type < REGARD_F32 || type > REGARD_I8 || !data || (type == REGARD_I8 && !scales) || rows < 1 || columns < 1 ||
        rows > LARGEST / columns / 4)
        set_error("has a type or a size that no weight has");
    else if (!set_named(model, name, type, data, scales, rows, columns))
        return 0;
    snprintf(reason, sizeof reason, "%.150s", regard_error());
    return set_error("%.60s %s", name, reason), -1;
}

int regard_model_ready(RegardModel *model) {
    const RegardConfig *c = &model->config;
    const char *missing = 0;
    for (int stack = 0; stack < 2; stack++)
        for (int64_t i = 0; i < (stack ? c->decoder_layers : c->encoder_layers); i++) {
            const Part *part = part_of_layer(model, (stack ? model->decoder : model->encoder) + i, stack, 0);
            if (part) return set_error("%s.%lld.%s is missing", stack ? "decoder" : "encoder", (long long)i, part->name), -1;
        }
    if (!model->target.data) missing = "target_embedding";
    if (c->tie != REGARD_TIE_ALL && !model->source.data) missing = "source_embedding";
    if (!model->output.packed) missing = c->tie == REGARD_TIE_NONE ? "output" : "target_embedding";
    if (c->output_bias && !model->output.bias) missing = "output_bias";
    if (c->positions == REGARD_LEARNED && (!model->source_learned.data || !model->target_learned.data)) missing = "learned positions";
    if (wants_final_norm(c) && (!model->encoder_norm.weight || !model->decoder_norm.weight)) missing = "a norm of a stack";
    if (wants_final_norm(c) && !c->rms_norm && (!model->encoder_norm.bias || !model->decoder_norm.bias)) missing = "a norm of a stack";
    if (missing) return set_error("%s is missing", missing), -1;
    model->ready = 1;
    return 0;
}
