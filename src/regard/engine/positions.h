/* Positions: sinusoids that are added to embeddings, and rotations of queries and keys. */

#ifndef REGARD_POSITIONS_H
#define REGARD_POSITIONS_H

#include "model.h"

#pragma GCC visibility push(default)
/* The encodings of `count` positions from `first` on, as `nn.positions` defines them: [count, width]. Of REGARD_ROTARY, the cosine and
   the sine of each angle. For tests. */
void regard_positions(int32_t kind, int64_t width, int64_t first, int64_t count, float *out);
#pragma GCC visibility pop

/* The encoding of a position, or its cosines and sines; null without memory. */
const float *position_vector(const RegardModel *model, int64_t position);
/* Rotate the queries or keys of N tokens, `row` numbers apart. */
void rotate(const RegardModel *model, Work *work, float *x, int64_t row, const int32_t *positions, int64_t N);

#endif
