/* The loops that products of floats and of integers share; `product_f32.c` and `products.c` include this file.

   A unit is four bytes of a row of x: one float, four 8-bit or two 16-bit integers. A packed W consists of panels of PANEL columns,
   in each panel unit after unit. A tile of rows and panels keeps its sums in registers while the units are gone through. Sums are made
   in the order of the units whatever shares the tile, so a row's result does not depend on other rows. With few rows a tile has
   several panels: registers do not wait for their own last sums, and memory is read in several streams, which is faster.

   The file that includes this one defines W_UNIT (bytes of a unit of a column of W), the types `Sum` and `Weights` of a register, and
       Weights load_weights(const char *weight)
       Sum multiply(Sum sum, Weights w, Sum x)                           x: one unit in all lanes
       Sum multiply_lane(Sum sum, Weights w, Sum x, int lane)            Arm; x: four units of a row
       void finish(const Sum *sums, const Call *call, const Part *part, int i, int p, int wides)
                                                    the sums of row i of a tile with its panel p are complete. */

#define WIDES (PANEL / LANES)
#define AHEAD 1024 /* bytes: so far ahead a tile of several panels fetches W into the caches */
#define DEPTH 512  /* units at a time: a panel of W that several tiles read stays in the caches */
#define MOST_ROWS 240 /* of one call of `all_tiles`; a multiple of all ROWS */

/* Sums of rows * panels * WIDES registers have to leave some registers free. */
#if LANES == 16 || defined(__aarch64__)
#define ROWS 8
#define PANELS(rows) ((rows) <= 2 ? 4 : (rows) <= 4 ? 2 : 1)
#elif defined(__AVX2__)
#define ROWS 6
#define PANELS(rows) ((rows) <= 1 ? 4 : (rows) <= 3 ? 2 : 1)
#else
#define ROWS 4
#define PANELS(rows) ((rows) <= 1 ? 4 : (rows) <= 2 ? 2 : 1)
#endif

INLINE Sum broadcast(const char *unit) {
    int32_t value;
    memcpy(&value, unit, sizeof(value));
    return (Sum)all_whole(value);
}

/* The rows of one call of `all_tiles` if at most `most` stay in the caches: blocks of similar size. */
INLINE int64_t rows_of_block(int64_t R, int64_t most) {
    if (most < ROWS) most = ROWS;
    if (most > MOST_ROWS) most = MOST_ROWS;
    const int64_t blocks = (R + most - 1) / most;
    return blocks > 1 ? (R + blocks - 1) / blocks : most;
}

/* What a tile of one panel fetches into the caches: from `ahead` bytes behind the beginning of its panel on, `step` bytes per unit. */
typedef struct {
    int64_t ahead, step;
} Fetch;

/* The operands of a tile, which may be a part of the width. Pointers are at its first row and its first column. */
typedef struct {
    const char *x, *weight;
    int64_t x_row, w_panel, units, panels; /* bytes, bytes; panels that there are */
    Fetch fetch;
    int first, last; /* whether it is the first part of the width, and the last */
    Sum *partial;    /* the sums, between parts */
    int64_t r;
    float *out;
    int64_t out_row;
    const float *bias, *w_scales; /* there are as many as columns in a tile, or none */
} Part;

INLINE void finish(const Sum *sums, const Call *call, const Part *part, int i, int p, const int wides);

/* The sums of `rows` rows of x with `panels` panels of W, of which `wides` registers are wanted. In place of a panel that is not there
   the first one is computed. */
INLINE void tile(const Part *part, const Call *call, const int rows, const int panels, const int wides) {
    Sum sums[4][ROWS][WIDES];
    const char *w[4], *x = part->x;
    const int64_t x_row = part->x_row, units = part->units;
    UNROLL for (int p = 0; p < panels; p++) w[p] = part->weight + (p < part->panels ? p : 0) * part->w_panel;
    UNROLL for (int p = 0; p < panels; p++)
        UNROLL for (int i = 0; i < rows; i++)
            UNROLL for (int j = 0; j < wides; j++) sums[p][i][j] = (Sum){0};
    if (!part->first)
        UNROLL for (int p = 0; p < panels; p++)
            UNROLL for (int i = 0; i < rows; i++)
                UNROLL for (int j = 0; j < wides; j++) sums[p][i][j] = part->partial[(p * rows + i) * WIDES + j];
    int64_t u = 0;
#if defined(__aarch64__)
    for (; u + 4 <= units; u += 4) { /* a multiplication can take one operand from any lane of a register */
        Sum four[ROWS];
        UNROLL for (int i = 0; i < rows; i++) four[i] = (Sum)load_whole(x + i * x_row + 4 * u);
        UNROLL for (int k = 0; k < 4; k++)
            UNROLL for (int p = 0; p < panels; p++)
                UNROLL for (int j = 0; j < wides; j++) {
                    const char *from = w[p] + (u + k) * (PANEL * W_UNIT) + j * (LANES * W_UNIT);
                    const Weights some = load_weights(from);
                    if (panels > 1 && j == 0) __builtin_prefetch(from + AHEAD);
                    if (panels == 1 && j == 0) __builtin_prefetch(part->weight + part->fetch.ahead + (u + k) * part->fetch.step);
                    UNROLL for (int i = 0; i < rows; i++) sums[p][i][j] = multiply_lane(sums[p][i][j], some, four[i], k);
                }
    }
#endif
    for (; u < units; u++)
        UNROLL for (int p = 0; p < panels; p++) {
            Weights some[WIDES];
            UNROLL for (int j = 0; j < wides; j++) {
                const char *from = w[p] + u * (PANEL * W_UNIT) + j * (LANES * W_UNIT);
                some[j] = load_weights(from);
                if (panels > 1 && j * LANES * W_UNIT % 64 == 0) __builtin_prefetch(from + AHEAD);
            }
            if (panels == 1) __builtin_prefetch(part->weight + part->fetch.ahead + u * part->fetch.step);
            UNROLL for (int i = 0; i < rows; i++) {
                const Sum unit = broadcast(x + i * x_row + 4 * u);
                UNROLL for (int j = 0; j < wides; j++) sums[p][i][j] = multiply(sums[p][i][j], some[j], unit);
            }
        }
    if (part->last)
        UNROLL for (int p = 0; p < panels; p++)
            UNROLL for (int i = 0; i < rows; i++) finish(sums[p][i], call, part, i, p, wides);
    else
        UNROLL for (int p = 0; p < panels; p++)
            UNROLL for (int i = 0; i < rows; i++)
                UNROLL for (int j = 0; j < wides; j++) part->partial[(p * rows + i) * WIDES + j] = sums[p][i][j];
}

/* One function per number of rows: each has all registers for itself. A narrow one computes one register of a panel. */
typedef void Tile(const Part *part, const Call *call);
#define TILE(n)                                                                                                  \
    static void tile_##n(const Part *part, const Call *call) { tile(part, call, n, PANELS(n), WIDES); }          \
    static void narrow_##n(const Part *part, const Call *call) { tile(part, call, n, 1, 1); }
TILE(1) TILE(2) TILE(3) TILE(4)
#if ROWS > 4
TILE(5) TILE(6)
#endif
#if ROWS > 6
TILE(7) TILE(8)
#endif
#if ROWS > 6
#define EACH_TILE(kind) {kind##_1, kind##_2, kind##_3, kind##_4, kind##_5, kind##_6, kind##_7, kind##_8}
#elif ROWS > 4
#define EACH_TILE(kind) {kind##_1, kind##_2, kind##_3, kind##_4, kind##_5, kind##_6}
#else
#define EACH_TILE(kind) {kind##_1, kind##_2, kind##_3, kind##_4}
#endif
static Tile *const TILES[] = EACH_TILE(tile), *const NARROW[] = EACH_TILE(narrow);

/* Columns at the end of W, where a tile may have more of them than the result: it writes into a copy. */
typedef struct {
    float out[ROWS * PANEL], bias[4 * PANEL], w_scales[4 * PANEL];
} Edge;

static void to_edge(Edge *edge, Part *part, const Call *call, int64_t column, int64_t columns, int64_t width) {
    if (part->bias) {
        memset(edge->bias, 0, sizeof(edge->bias));
        memcpy(edge->bias, call->bias + column, (size_t)columns * sizeof(float));
        part->bias = edge->bias;
    }
    if (part->w_scales) {
        memset(edge->w_scales, 0, sizeof(edge->w_scales));
        memcpy(edge->w_scales, call->w_scales + column, (size_t)columns * sizeof(float));
        part->w_scales = edge->w_scales;
    }
    part->out_row = width;
}

/* The panels from `first` to `last` of R rows, of which the first is row r of the call. All tiles have the same number of rows:
   the last one begins early enough, and computes rows again that the one before has computed. */
static void all_tiles(const char *x, int64_t x_row, const char *weight, int64_t units, int64_t first, int64_t last, const Call *call,
                      int64_t r, int64_t R) {
    const int64_t num_tiles = (R + ROWS - 1) / ROWS, rows = (R + num_tiles - 1) / num_tiles, step = PANELS(rows);
    const int64_t w_panel = units * (PANEL * W_UNIT), in_tile = rows * step * WIDES;
    Sum sums[(MOST_ROWS + 4 * ROWS) * WIDES];
    Edge edge;
    const int64_t end = last * PANEL < call->F ? last * PANEL : call->F, width = step * PANEL;
    for (int64_t panel = first; panel < last; panel += step)
        for (int64_t u = 0; u < units; u += DEPTH) {
            const int64_t depth = units - u < DEPTH ? units - u : DEPTH, w_depth = depth * (PANEL * W_UNIT);
            const int64_t column = panel * PANEL, columns = end - column;
            /* A single tile fetches what it reads soon; of several each fetches a part of what they read next. */
            const Fetch fetch = {num_tiles > 1 ? w_depth : 4096, PANEL * W_UNIT / num_tiles};
            Part part = {.weight = weight + panel * w_panel + u * (PANEL * W_UNIT), .x_row = x_row, .w_panel = w_panel, .units = depth,
                         .panels = last - panel, .fetch = fetch, .first = u == 0, .last = u + depth == units, .partial = sums,
                         .out_row = call->out_row, .bias = call->bias ? call->bias + column : 0,
                         .w_scales = call->w_scales ? call->w_scales + column : 0};
            Tile *run = TILES[rows - 1];
            if (columns < width) {
                to_edge(&edge, &part, call, column, columns, width);
                if (columns <= LANES) run = NARROW[rows - 1];
            }
            for (int64_t t = 0; t < num_tiles; t++) {
                const int64_t begin = t * rows + rows <= R ? t * rows : R - rows;
                float *out = call->out + (r + begin) * call->out_row + column;
                part.x = x + begin * x_row + 4 * u, part.r = r + begin, part.out = columns < width ? edge.out : out;
                run(&part, call);
                part.partial += in_tile, part.fetch.ahead += num_tiles > 1 ? w_depth / num_tiles : 0;
                for (int64_t i = 0; columns < width && part.last && i < rows; i++)
                    memcpy(out + i * call->out_row, edge.out + i * width, (size_t)columns * sizeof(float));
            }
        }
}
