#define _POSIX_C_SOURCE 200809L
#include "parallel.h"

#include <stdlib.h>

#ifdef REGARD_NO_THREADS

Team *team_new(void) { return 0; }
void team_free(Team *team) { (void)team; }
void team_wake(Team *team) { (void)team; }
void team_help(Team *team, int (*wanted)(void *), void *argument) { (void)team, (void)wanted, (void)argument; }
int32_t team_start_helpers(Team *team, int32_t count) { return (void)team, (void)count, 0; }
void parallel(Team *team, int64_t count, Loop *body, void *argument) {
    (void)team;
    for (int64_t i = 0; i < count; i++) body(argument, i);
}

#else

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define SPINS 2000       /* a loop of a step follows the one before within microseconds */
#define YIELD_AFTER 4000 /* a thread that is waited for may have lost its core */

/* A loop is open while `generation` is odd. A helper counts itself as inside before it looks, and whoever opened the loop waits until
   nobody is inside after closing it, so no helper can see the fields of a loop that has ended. */
struct Team {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_flag busy; /* one loop at a time */
    atomic_llong generation, next, idle, inside, sleeping;
    int64_t count;
    Loop *body;
    void *argument;
    atomic_int ending;
    pthread_t *helpers;
    int32_t num_helpers;
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

Team *team_new(void) {
    Team *team = calloc(1, sizeof(Team));
    if (!team) return 0;
    pthread_mutex_init(&team->lock, 0);
    pthread_cond_init(&team->wake, 0);
    return team;
}

void team_free(Team *team) {
    if (!team) return;
    atomic_store(&team->ending, 1);
    team_wake(team);
    for (int32_t i = 0; i < team->num_helpers; i++) pthread_join(team->helpers[i], 0);
    free(team->helpers);
    pthread_mutex_destroy(&team->lock);
    pthread_cond_destroy(&team->wake);
    free(team);
}

void team_wake(Team *team) {
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
}

static void take_part(Team *team) {
    for (int64_t i; (i = atomic_fetch_add(&team->next, 1)) < team->count;) team->body(team->argument, i);
}

void parallel(Team *team, int64_t count, Loop *body, void *argument) {
    if (!team || count < 2 || !atomic_load_explicit(&team->idle, memory_order_relaxed) ||
        atomic_flag_test_and_set_explicit(&team->busy, memory_order_acquire)) {
        for (int64_t i = 0; i < count; i++) body(argument, i);
        return;
    }
    team->count = count, team->body = body, team->argument = argument;
    atomic_store(&team->next, 0);
    atomic_fetch_add(&team->generation, 1);
    if (atomic_load(&team->sleeping)) team_wake(team);
    take_part(team);
    atomic_fetch_add(&team->generation, 1);
    for (int64_t spins = 0; atomic_load(&team->inside); spins++) spins < YIELD_AFTER ? relax() : (void)sched_yield();
    atomic_flag_clear_explicit(&team->busy, memory_order_release);
}

void team_help(Team *team, int (*wanted)(void *), void *argument) {
    atomic_fetch_add(&team->idle, 1);
    long long seen = -1;
    for (int64_t spins = 0; !wanted(argument);) {
        const long long now = atomic_load(&team->generation);
        if (now % 2 && now != seen) {
            atomic_fetch_add(&team->inside, 1);
            if (atomic_load(&team->generation) == now) take_part(team);
            atomic_fetch_sub(&team->inside, 1);
            seen = now, spins = 0;
        } else if (spins++ < SPINS)
            relax();
        else {
            pthread_mutex_lock(&team->lock);
            atomic_fetch_add(&team->sleeping, 1);
            if (atomic_load(&team->generation) == now && !wanted(argument)) pthread_cond_wait(&team->wake, &team->lock);
            atomic_fetch_sub(&team->sleeping, 1);
            pthread_mutex_unlock(&team->lock);
            spins = 0;
        }
    }
    atomic_fetch_sub(&team->idle, 1);
}

static int team_ends(void *team) { return atomic_load(&((Team *)team)->ending); }

static void *help_until_end(void *team) {
    team_help(team, team_ends, team);
    return 0;
}

int32_t team_start_helpers(Team *team, int32_t count) {
    if (count < 1 || !(team->helpers = calloc((size_t)count, sizeof(pthread_t)))) return 0;
    while (team->num_helpers < count && !pthread_create(&team->helpers[team->num_helpers], 0, help_until_end, team))
        team->num_helpers++;
    return team->num_helpers;
}

#endif
