/* What wasi-libc would import from its host. The engine reads and writes no files, so a page need not provide anything. */

#include <stdint.h>

enum { NOT_SUPPORTED = 58 };

#pragma clang diagnostic ignored "-Wunused-parameter"
#define REFUSE(name, ...)                                                                                               \
    int32_t __imported_wasi_snapshot_preview1_##name(__VA_ARGS__);                                                      \
    int32_t __imported_wasi_snapshot_preview1_##name(__VA_ARGS__) { return NOT_SUPPORTED; }

REFUSE(fd_close, int32_t file)
REFUSE(fd_seek, int32_t file, int64_t offset, int32_t whence, int32_t position)
REFUSE(fd_write, int32_t file, int32_t vectors, int32_t count, int32_t written)
