/* A model's weights: made from a configuration, filled with named tensors, and laid out for products. */

#include "model.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WIDTH 65536
#define MAX_LAYERS 1024
#define MAX_VOCABULARY (1 << 26)
#define LARGEST ((int64_t)1 << 40) /* bytes of one allocation */

static _Thread_local char message[256];
static const RegardKernels *chosen;

const char *regard_error(void) { return message; }

void set_error(const char *format, ...) {
    va_list more;
    va_start(more, format);
    vsnprintf(message, sizeof message, format, more);
    va_end(more);
}

static const RegardKernels *kernels_in_use(void) { return chosen ? chosen : regard_kernels(0); }

const char *regard_processor(void) { return kernels_in_use()->name; }

int64_t regard_choose_kernels(const char *name) {
    for (int64_t i = 0; i < regard_kernels_count(); i++)
        if (!strcmp(regard_kernels(i)->name, name)) return chosen = regard_kernels(i), i;
    return set_error("this processor has no kernels %.40s", name), -1;
}

void *allocate(int64_t count, int64_t size) {
    if (count < 0 || size < 1 || count > LARGEST / size) return 0;
    return calloc(count ? (size_t)count : 1, (size_t)size);
}

static void *counted(RegardModel *model, int64_t count, int64_t size) {
    void *found = allocate(count, size);
    if (found) model->bytes += count * size;
    return found;
}

/* Configuration */

static int out_of_range(const char *name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return 0;
    set_error("%s is %lld; it must be from %lld to %lld", name, (long long)value, (long long)least, (long long)most);
    return 1;
}

static int refuse(const RegardConfig *c) {
    const struct {
        const char *name;
        int64_t value, least, most;
    } bounds[] = {
        {"width", c->width, 2, MAX_WIDTH},
        {"hidden", c->hidden, 1, 8 * MAX_WIDTH},
        {"num_heads", c->num_heads, 1, MAX_WIDTH},
        {"key_width", c->key_width, 1, MAX_WIDTH},
        {"value_width", c->value_width, 1, MAX_WIDTH},
        {"encoder_layers", c->encoder_layers, 0, MAX_LAYERS},
        {"decoder_layers", c->decoder_layers, 0, MAX_LAYERS},
        {"positions", c->positions, REGARD_NONE, REGARD_ROTARY},
        {"first_position", c->first_position, 0, MAX_LENGTH},
        {"max_positions", c->max_positions, 1, MAX_LENGTH},
        {"feed_forward", c->feed_forward, REGARD_FF_RELU, REGARD_FF_CONV},
        {"window", c->window, -1, MAX_LENGTH},
        {"tie", c->tie, REGARD_TIE_ALL, REGARD_TIE_NONE},
        {"source_size", c->source_size, 1, MAX_VOCABULARY},
        {"target_size", c->target_size, 1, MAX_VOCABULARY},
        {"bos", c->bos, 0, (int64_t)c->target_size - 1},
        {"eos", c->eos, 0, (int64_t)c->target_size - 1},
        {"start_id", c->start_id, 0, (int64_t)c->target_size - 1},
        {"the width of all heads", (int64_t)c->num_heads * (c->key_width > c->value_width ? c->key_width : c->value_width), 1,
         8 * MAX_WIDTH},
        {"copy", c->copy, 0, 0},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (out_of_range(bounds[i].name, bounds[i].value, bounds[i].least, bounds[i].most)) return 1;
    if (c->width % 2 || (c->positions == REGARD_ROTARY && c->key_width % 2)) return set_error("positions need an even width"), 1;
    if (!(c->norm_eps > 0 && c->norm_eps <= 1)) return set_error("norm_eps must be above 0 and at most 1"), 1;
    if (c->tie == REGARD_TIE_ALL && c->source_size != c->target_size)
        return set_error("embeddings that are tied need vocabularies of one size"), 1;
    return 0;
}

static int shape_attention(RegardModel *model, Attention *attention, int cross) {
    const RegardConfig *c = &model->config;
    const int64_t D = c->width, HK = model->HK, HW = model->HW;
    if (cross) {
        attention->query = (Matrix){.D = D, .F = HK, .wants_bias = c->attention_bias};
        attention->memory = (Matrix){.D = D, .F = HK + HW, .wants_bias = c->attention_bias};
    } else
        attention->project = (Matrix){.D = D, .F = 2 * HK + HW, .wants_bias = c->attention_bias};
    attention->output = (Matrix){.D = HW, .F = D, .wants_bias = c->attention_bias};
    return !!(attention->silent = allocate(c->num_heads + 1, 1));
}

static int shape_layers(RegardModel *model, Layer **layers, int64_t count, int cross) {
    const RegardConfig *c = &model->config;
    const int64_t taps = c->feed_forward == REGARD_FF_CONV ? 3 : 1, gated = c->feed_forward == REGARD_FF_SWIGLU ? 2 : 1;
    if (!(*layers = allocate(count, sizeof(Layer)))) return 0;
    for (Layer *layer = *layers; layer < *layers + count; layer++) {
        if (!shape_attention(model, &layer->own, 0) || (cross && !shape_attention(model, &layer->cross, 1))) return 0;
        layer->inner = (Matrix){.D = taps * c->width, .F = gated * c->hidden, .wants_bias = 1};
        layer->outer = (Matrix){.D = taps * c->hidden, .F = c->width, .wants_bias = 1};
    }
    return 1;
}

RegardModel *regard_model_new(const RegardConfig *config) {
    if (refuse(config)) return 0;
    RegardModel *model = allocate(1, sizeof(RegardModel));
    if (!model) return set_error("there is no memory for a model"), (RegardModel *)0;
    model->config = *config, model->kernels = kernels_in_use();
    model->HK = (int64_t)config->num_heads * config->key_width, model->HW = (int64_t)config->num_heads * config->value_width;
    model->output = (Matrix){.D = config->width, .F = config->target_size, .wants_bias = config->output_bias};
    if (!shape_layers(model, &model->encoder, config->encoder_layers, 0) ||
        !shape_layers(model, &model->decoder, config->decoder_layers, 1)) {
        set_error("there is no memory for a model of %d and %d layers", config->encoder_layers, config->decoder_layers);
        regard_model_free(model);
        return 0;
    }
    return model;
}

/* Tensors */

static float from_half(uint16_t half) {
    const uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 0) {
        const float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    const uint32_t bits = sign | (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static const int64_t SIZES[] = {[REGARD_F32] = 4, [REGARD_F16] = 2, [REGARD_I8] = 1};

static void read_row(int type, const void *data, const float *scales, int64_t row, int64_t columns, float *out) {
    const char *from = (const char *)data + row * columns * SIZES[type];
    for (int64_t i = 0; i < columns; i++) {
        uint16_t half;
        if (type == REGARD_F32)
            memcpy(out + i, from + 4 * i, 4);
        else if (type == REGARD_F16)
            memcpy(&half, from + 2 * i, 2), out[i] = from_half(half);
        else
            out[i] = (float)((const int8_t *)from)[i] * scales[row];
    }
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
    *table = (Table){.rows = rows, .width = columns, .type = type, .data = counted(model, rows * columns, SIZES[type])};
    if (type == REGARD_I8) table->scales = counted(model, rows, sizeof(float));
    if (!table->data || (type == REGARD_I8 && !table->scales)) return set_error("finds no memory"), -1;
    memcpy(table->data, data, (size_t)(rows * columns * SIZES[type]));
    if (type == REGARD_I8) memcpy(table->scales, scales, (size_t)rows * sizeof(float));
    return 0;
}

/* The rows of a matrix as 8-bit integers: as they are stored, or the largest magnitude of each row becomes 127. */
static int to_integers(int type, const void *data, const float *scales, int64_t rows, int64_t columns, int8_t *integers,
                       float *new_scales) {
    float *row = allocate(columns, sizeof(float));
    if (!row) return -1;
    for (int64_t f = 0; f < rows; f++) {
        if (type == REGARD_I8) {
            memcpy(integers + f * columns, (const int8_t *)data + f * columns, (size_t)columns);
            for (int64_t i = f * columns; i < (f + 1) * columns; i++) integers[i] = integers[i] < -127 ? -127 : integers[i];
            new_scales[f] = scales[f];
            continue;
        }
        read_row(type, data, scales, f, columns, row);
        float most = 1e-30f;
        for (int64_t i = 0; i < columns; i++) most = fabsf(row[i]) > most ? fabsf(row[i]) : most;
        new_scales[f] = most / 127.0f;
        for (int64_t i = 0; i < columns; i++) {
            /* The largest may come out a little above 127; what is not a number becomes 0. */
            const float value = row[i] * (127.0f / most), least = value < -127.0f ? -127.0f : value;
            integers[f * columns + i] = (int8_t)(least <= 127.0f ? lrintf(least) : least > 127.0f ? 127 : 0);
        }
    }
    free(row);
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
    matrix->packed = counted(model, (int64_t)(int8 ? k->size_int8(columns, rows) : k->size_f32(columns, rows)), 1);
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

static int wants_final_norm(const RegardConfig *c) { return c->final_norm < 0 ? c->pre_norm : c->final_norm; }

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
    snprintf(reason, sizeof reason, "%.150s", message);
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

int64_t regard_model_bytes(const RegardModel *model) { return model->bytes; }

int32_t regard_model_max_length(const RegardModel *model) {
    return model->config.positions == REGARD_LEARNED ? model->config.max_positions : 0;
}

static void free_matrix(Matrix *matrix) { free(matrix->packed), free(matrix->scales), free(matrix->bias); }

static void free_attention(Attention *attention) {
    free_matrix(&attention->project), free_matrix(&attention->query), free_matrix(&attention->memory), free_matrix(&attention->output);
    free(attention->query_norm), free(attention->key_norm), free(attention->norm.weight), free(attention->norm.bias);
    free(attention->silent);
}

static void free_layers(Layer *layers, int64_t count) {
    for (Layer *layer = layers; layers && layer < layers + count; layer++) {
        free_attention(&layer->own), free_attention(&layer->cross);
        free_matrix(&layer->inner), free_matrix(&layer->outer);
        free(layer->norm.weight), free(layer->norm.bias);
    }
    free(layers);
}

void regard_model_free(RegardModel *model) {
    if (!model) return;
    free_layers(model->encoder, model->config.encoder_layers), free_layers(model->decoder, model->config.decoder_layers);
    Table *tables[] = {&model->source, &model->target, &model->output_rows, &model->source_learned, &model->target_learned};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) free(tables[i]->data), free(tables[i]->scales);
    free(model->encoder_norm.weight), free(model->encoder_norm.bias);
    free(model->decoder_norm.weight), free(model->decoder_norm.bias);
    free_matrix(&model->output);
    for (size_t i = 0; i < sizeof model->positions / sizeof *model->positions; i++) free(atomic_load(&model->positions[i]));
    free(model);
}

int regard_model_silence(RegardModel *model, int32_t stack, int32_t layer, int32_t head, int32_t silent) {
    const RegardConfig *c = &model->config;
    if (stack < 0 || stack > 2 || layer < 0 || layer >= (stack ? c->decoder_layers : c->encoder_layers) || head < -1 ||
        head >= c->num_heads)
        return set_error("there is no head %d in layer %d of stack %d", head, layer, stack), -1;
    Layer *of = (stack ? model->decoder : model->encoder) + layer;
    uint8_t *where = (stack == 2 ? &of->cross : &of->own)->silent;
    if (head >= 0)
        where[head] = !!silent;
    else if (stack == 2)
        where[c->num_heads] = !!silent;
    else
        of->silent = !!silent;
    return 0;
}

/* Embeddings and positions */

/* The encoding of a position, as `nn.positions` defines it; null for kinds that add none. */
const float *position_vector(const RegardModel *model, int64_t position) {
    const RegardConfig *c = &model->config;
    const int64_t D = c->width, half = D / 2, block = position / POSITION_BLOCK;
    if (c->positions < REGARD_SINUSOID || c->positions > REGARD_LOG) return 0;
    RegardModel *shared = (RegardModel *)model; /* the one part that changes: blocks appear, and never go */
    float *found = atomic_load(&shared->positions[block]);
    if (!found) {
        float *made = malloc((size_t)(POSITION_BLOCK * D) * sizeof(float));
        if (!made) return 0;
        for (int64_t i = 0; i < half; i++) {
            const double power = c->positions == REGARD_LOG ? (double)i / (double)(half > 1 ? half - 1 : 1) : 2.0 * (double)i / (double)D;
            const double frequency = pow(10000.0, -power);
            for (int64_t p = 0; p < POSITION_BLOCK; p++) {
                const double angle = (double)(block * POSITION_BLOCK + p + c->first_position) * frequency;
                made[p * D + (c->positions == REGARD_SINUSOID ? 2 * i : i)] = (float)sin(angle);
                made[p * D + (c->positions == REGARD_SINUSOID ? 2 * i + 1 : half + i)] = (float)cos(angle);
            }
        }
        if (atomic_compare_exchange_strong(&shared->positions[block], &found, made))
            found = made;
        else
            free(made);
    }
    return found + position % POSITION_BLOCK * D;
}

void embed(const RegardModel *model, const Table *table, const Table *learned, const int32_t *ids, const int32_t *positions, float *x,
           int64_t count) {
    const RegardConfig *c = &model->config;
    const int64_t D = c->width;
    const float scale = c->scale_embeddings ? (float)sqrt((double)D) : 1.0f;
    float place[512];
    for (int64_t r = 0; r < count; r++, x += D) {
        const int32_t id = learned == &model->target_learned && ids[r] == c->bos ? c->start_id : ids[r];
        read_row(table->type, table->data, table->scales, id, D, x);
        if (c->scale_embeddings)
            for (int64_t i = 0; i < D; i++) x[i] *= scale;
        const float *more = position_vector(model, positions[r]);
        if (more)
            for (int64_t i = 0; i < D; i++) x[i] += more[i];
        else if (learned->data)
            for (int64_t i = 0; i < D; i += 512) { /* rows of a table, a part at a time */
                const int64_t some = D - i < 512 ? D - i : 512, at = (int64_t)positions[r] * D + i;
                read_row(learned->type, (const char *)learned->data + at * SIZES[learned->type],
                         learned->scales ? learned->scales + positions[r] : 0, 0, some, place);
                for (int64_t j = 0; j < some; j++) x[i + j] += place[j];
            }
    }
}

int sentence_shorten(const RegardModel *model, Sentence *sentence, const int32_t *allowed, int64_t count) {
    const RegardKernels *k = model->kernels;
    const Table *rows = model->config.tie == REGARD_TIE_NONE ? &model->output_rows : &model->target;
    const int64_t D = model->config.width;
    const int int8 = model->config.int8;
    void *plain = allocate(count * D, int8 ? 1 : sizeof(float));
    float *row = allocate(D, sizeof(float));
    sentence->shortlist = allocate((int64_t)(int8 ? k->size_int8(D, count) : k->size_f32(D, count)), 1);
    sentence->shortlist_scales = allocate(count, sizeof(float));
    sentence->shortlist_bias = allocate(count, sizeof(float));
    int failed = !plain || !row || !sentence->shortlist || !sentence->shortlist_scales || !sentence->shortlist_bias;
    for (int64_t i = 0; !failed && i < count; i++) {
        if (model->output.bias) sentence->shortlist_bias[i] = model->output.bias[allowed[i]];
        if (!int8)
            read_row(rows->type, rows->data, rows->scales, allowed[i], D, (float *)plain + i * D);
        else {
            const char *data = (const char *)rows->data + allowed[i] * D * SIZES[rows->type];
            failed = to_integers(rows->type, data, rows->scales ? rows->scales + allowed[i] : 0, 1, D, (int8_t *)plain + i * D,
                                 sentence->shortlist_scales + i);
        }
    }
    if (!failed && int8) k->pack_int8(plain, sentence->shortlist, D, count);
    if (!failed && !int8) k->pack_f32(plain, sentence->shortlist, D, count);
    free(plain), free(row);
    return failed ? -1 : 0;
}
