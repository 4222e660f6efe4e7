/* Work space of a thread, for kernels. */

#ifndef REGARD_SCRATCH_H
#define REGARD_SCRATCH_H

#define REGARD_SCRATCH (512 * 1024)

char *regard_scratch(void); /* REGARD_SCRATCH bytes of each thread; the next call may overwrite them */

#endif
