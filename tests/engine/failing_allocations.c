/* Allocations of the engine that fail when a test asks for it. The engine is compiled with -Dmalloc=failing_malloc and so on. */

#define _POSIX_C_SOURCE 200809L
#undef malloc
#undef calloc
#undef realloc
#undef posix_memalign
#include <errno.h>
#include <stdlib.h>

#pragma GCC visibility push(default)
/* The allocation after `count` others fails, once. Returns whether the one that was asked for before has failed. */
int fail_after(long long count);
#pragma GCC visibility pop

void *failing_malloc(size_t size);
void *failing_calloc(size_t count, size_t size);
void *failing_realloc(void *memory, size_t size);
int failing_posix_memalign(void **memory, size_t alignment, size_t size);

static long long left = -1;

int fail_after(long long count) {
    const int failed = left < 0;
    left = count;
    return failed;
}

static int fails(void) { return left >= 0 && left-- == 0; }

void *failing_malloc(size_t size) { return fails() ? 0 : malloc(size); }
void *failing_calloc(size_t count, size_t size) { return fails() ? 0 : calloc(count, size); }
void *failing_realloc(void *memory, size_t size) { return fails() ? 0 : realloc(memory, size); }
int failing_posix_memalign(void **memory, size_t alignment, size_t size) {
    return fails() ? ENOMEM : posix_memalign(memory, alignment, size);
}
