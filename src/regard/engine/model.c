/* A model: made from a configuration, and freed. Its weights come from `weights.c`. */

#include "model.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WIDTH 65536
#define MAX_LAYERS 1024
#define MAX_VOCABULARY (1 << 26)

static _Thread_local char message[256];
static const RegardKernels *chosen;

const char *regard_error(void) { return message; }

int64_t regard_sizes(void) { return ((int64_t)sizeof(RegardConfig) * 1000 + sizeof(RegardOptions)) * 1000 + sizeof(RegardResult); }

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

int bad_ids(const char *what, const int32_t *ids, int64_t count, int64_t size, int64_t most) {
    if (count < 0 || count > most || (count && !ids)) return set_error("%s has %lld ids", what, (long long)count), 1;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= size)
            return set_error("%s has the id %d, and there are %lld", what, ids[i], (long long)size), 1;
    return 0;
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
    const int64_t D = model->config.width, HK = model->HK, HW = model->HW;
    if (cross) {
        attention->query = (Matrix){.D = D, .F = HK};
        attention->memory = (Matrix){.D = D, .F = HK + HW};
    } else
        attention->project = (Matrix){.D = D, .F = 2 * HK + HW};
    attention->output = (Matrix){.D = HW, .F = D};
    return !!(attention->silent = allocate(model->config.num_heads + 1, 1));
}

static int shape_layers(RegardModel *model, Layer **layers, int64_t count, int cross) {
    const RegardConfig *c = &model->config;
    const int64_t taps = c->feed_forward == REGARD_FF_CONV ? 3 : 1, gated = c->feed_forward == REGARD_FF_SWIGLU ? 2 : 1;
    if (!(*layers = allocate(count, sizeof(Layer)))) return 0;
    for (Layer *layer = *layers; layer < *layers + count; layer++) {
        if (!shape_attention(model, &layer->own, 0) || (cross && !shape_attention(model, &layer->cross, 1))) return 0;
        layer->inner = (Matrix){.D = taps * c->width, .F = gated * c->hidden};
        layer->outer = (Matrix){.D = taps * c->hidden, .F = c->width};
    }
    return 1;
}

/* Matrices lie in one block in the order in which they are read: what is fetched behind the end of one is the next one. */
static void place(RegardModel *model, Matrix *matrix) {
    const RegardKernels *k = model->kernels;
    matrix->offset = model->packed_bytes;
    matrix->size = (int64_t)(model->config.int8 ? k->size_int8(matrix->D, matrix->F) : k->size_f32(matrix->D, matrix->F));
    model->packed_bytes += (matrix->size + 63) / 64 * 64 + GUARD;
}

static void place_layer(RegardModel *model, Layer *layer, int cross) {
    place(model, &layer->own.project), place(model, &layer->own.output);
    if (cross) place(model, &layer->cross.query), place(model, &layer->cross.output);
    place(model, &layer->inner), place(model, &layer->outer);
}

static void place_all(RegardModel *model) {
    const RegardConfig *c = &model->config;
    for (int64_t i = 0; i < c->encoder_layers; i++) place_layer(model, model->encoder + i, 0);
    for (int64_t i = 0; i < c->decoder_layers; i++) place(model, &model->decoder[i].cross.memory);
    for (int64_t i = 0; i < c->decoder_layers; i++) place_layer(model, model->decoder + i, 1);
    place(model, &model->output);
}

RegardModel *regard_model_new(const RegardConfig *config) {
    if (refuse(config)) return 0;
    RegardModel *model = allocate(1, sizeof(RegardModel));
    if (!model) return set_error("there is no memory for a model"), (RegardModel *)0;
    model->config = *config, model->kernels = kernels_in_use();
    model->HK = (int64_t)config->num_heads * config->key_width, model->HW = (int64_t)config->num_heads * config->value_width;
    model->output = (Matrix){.D = config->width, .F = config->target_size};
    if (!shape_layers(model, &model->encoder, config->encoder_layers, 0) ||
        !shape_layers(model, &model->decoder, config->decoder_layers, 1)) {
        set_error("there is no memory for a model of %d and %d layers", config->encoder_layers, config->decoder_layers);
        regard_model_free(model);
        return 0;
    }
    place_all(model);
    return model;
}

int64_t regard_model_bytes(const RegardModel *model) { return model->bytes; }

int32_t regard_model_max_length(const RegardModel *model) {
    return model->config.positions == REGARD_LEARNED ? model->config.max_positions : 0;
}

static void free_matrix(Matrix *matrix) { free(matrix->scales), free(matrix->bias); }

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
    free_pages(model->packed, model->packed_bytes);
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
