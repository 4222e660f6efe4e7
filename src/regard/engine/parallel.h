/* Threads that are idle help others with a loop whose iterations are independent. */

#ifndef REGARD_PARALLEL_H
#define REGARD_PARALLEL_H

#include <stdint.h>

typedef struct Team Team;
typedef void Loop(void *argument, int64_t i);

Team *team_new(void);
void team_free(Team *team);
/* Call body(argument, i) for each i below count. Idle threads of the team take part. */
void parallel(Team *team, int64_t count, Loop *body, void *argument);
/* Help others until `wanted` returns true. */
void team_help(Team *team, int (*wanted)(void *), void *argument);
/* Wake the threads inside `team_help`, so that they ask `wanted` again. */
void team_wake(Team *team);
/* Start threads that only help; they end when the team is freed. Returns how many were started. */
int32_t team_start_helpers(Team *team, int32_t count);

#endif
