/* Memory: structures of zeros, buffers that begin at a cache line, and large pages for the matrices of a model. */

#define _GNU_SOURCE

#include <stdlib.h>
#if !defined(__wasm__)
#include <sys/mman.h>
#endif

#include "model.h"

#if WITH_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define CACHE_LINE 64
#define LARGE_PAGE ((int64_t)2 << 20)

void *allocate(int64_t count, int64_t size) {
    if (count < 0 || size < 1 || count > LARGEST / size) return 0;
    return calloc(count ? (size_t)count : 1, (size_t)size);
}

/* Registers of a whole cache line are loaded and stored twice as fast from the beginning of one. */
void *allocate_buffer(int64_t count, int64_t size) {
    void *found = 0;
    if (count < 0 || size < 1 || count > LARGEST / size) return 0;
    return posix_memalign(&found, CACHE_LINE, count ? (size_t)(count * size) : 1) ? 0 : found;
}

/* A step reads all matrices of a model once: with pages of 4 KiB a large part of its time is spent on looking up pages. */
void *allocate_pages(int64_t bytes) {
#if defined(__wasm__)
    return allocate_buffer(bytes, 1);
#else
    if (bytes < 1 || bytes > LARGEST) return 0;
    const int64_t rounded = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    char *all = mmap(0, (size_t)(rounded + LARGE_PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 0;
    char *found = (char *)(((uintptr_t)all + (uintptr_t)LARGE_PAGE - 1) / (uintptr_t)LARGE_PAGE * (uintptr_t)LARGE_PAGE);
    if (found > all) munmap(all, (size_t)(found - all));
    const int64_t behind = rounded + LARGE_PAGE - (found - all) - rounded;
    if (behind > 0) munmap(found + rounded, (size_t)behind);
#if defined(MADV_HUGEPAGE)
    madvise(found, (size_t)rounded, MADV_HUGEPAGE);
#endif
#if WITH_ASAN
    __asan_poison_memory_region(found, (size_t)rounded);
#endif
    return found;
#endif
}

void *use_pages(void *pages, int64_t bytes) {
#if WITH_ASAN
    __asan_unpoison_memory_region(pages, (size_t)bytes);
#else
    (void)bytes;
#endif
    return pages;
}

void free_pages(void *pages, int64_t bytes) {
#if defined(__wasm__)
    (void)bytes;
    free(pages);
#else
    const int64_t rounded = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    if (pages) munmap(use_pages(pages, rounded), (size_t)rounded);
#endif
}
