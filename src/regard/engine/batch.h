#ifndef REGARD_BATCH_H
#define REGARD_BATCH_H

#include "search.h"

typedef struct {
    const RegardModel *model;
    RegardSession *session;
    Work work;
    Search **active;
    int64_t count;
} Batch;

/* Encode the sentences at the end of a batch, which are new. 0, or another number without memory. */
int batch_encode(Batch *batch, int64_t added);
/* Advance all sentences by one step. */
int batch_step(Batch *batch);

#endif
