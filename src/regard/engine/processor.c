/* The sets of kernels that are compiled in, and those of them that this processor supports. */

#include "kernels.h"
#include "scratch.h"

#if defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__wasm__) /* no threads */
#define OF_THREAD
#else
#define OF_THREAD _Thread_local
#endif

char *regard_scratch(void) {
    static OF_THREAD _Alignas(64) char scratch[REGARD_SCRATCH];
    return scratch;
}

/* `build.py` names the sets that it compiles; other builds have the one that their flags allow. */
#ifndef REGARD_SETS
#define REGARD_SETS SET(scalar)
#endif

#define SET(name) const RegardKernels *regard_set_##name(void);
REGARD_SETS
#undef SET

#define SUPPORTS __attribute__((unused)) static int

#if defined(__x86_64__)
SUPPORTS supports_avx512vnni(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}
SUPPORTS supports_avxvnni(void) {
    unsigned a = 0, b, c, d; /* older compilers do not know its name */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
SUPPORTS supports_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#elif defined(__aarch64__)
SUPPORTS supports_neon_dotprod(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) >> 20 & 1) != 0; /* HWCAP_ASIMDDP */
#else
    return 1; /* every Apple processor of this kind has it */
#endif
}
SUPPORTS supports_neon(void) { return 1; }
#endif
SUPPORTS supports_wasm(void) { return 1; }
SUPPORTS supports_scalar(void) { return 1; }

static const RegardKernels *find(int64_t number, int64_t *count) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    *count = 0;
    const RegardKernels *found = 0;
#define SET(name)                                                                                                       \
    if (supports_##name() && (*count)++ == number) found = regard_set_##name();
    REGARD_SETS
#undef SET
    return found;
}

int64_t regard_kernels_count(void) {
    int64_t count;
    find(-1, &count);
    return count;
}

const RegardKernels *regard_kernels(int64_t number) {
    int64_t count;
    return find(number, &count);
}
