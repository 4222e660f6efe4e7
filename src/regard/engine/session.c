/* Sessions: sentences wait in a queue, and each thread keeps a batch of them, which it steps together.

   A batch takes new sentences as others end, so it stays full. A thread without sentences helps others with their loops. */

#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "batch.h"

#ifndef REGARD_NO_THREADS
#include <errno.h>
#include <pthread.h>
#include <time.h>
#endif

#define MAX_THREADS 256

/* A queue: searches leave in the order in which they came. */
typedef struct {
    Search *first, *last;
} Queue;

struct RegardSession {
    const RegardModel *model;
    Team *team;
    Batch *batches;
    int32_t num_threads, rows;
    int64_t tokens, tickets;
    Queue queued, ended;
    atomic_llong waiting, searched; /* numbers of sentences */
    atomic_int ending;
#ifndef REGARD_NO_THREADS
    pthread_mutex_t lock;
    pthread_cond_t done;
    pthread_t *threads;
    int32_t started;
#endif
};

#ifdef REGARD_NO_THREADS
static void lock(RegardSession *session) { (void)session; }
static void unlock(RegardSession *session) { (void)session; }
static void announce(RegardSession *session) { (void)session; }
#else
static void lock(RegardSession *session) { pthread_mutex_lock(&session->lock); }
static void unlock(RegardSession *session) { pthread_mutex_unlock(&session->lock); }
static void announce(RegardSession *session) { pthread_cond_broadcast(&session->done); }
#endif

static void push(Queue *queue, Search *search) {
    search->next = 0;
    if (queue->last)
        queue->last->next = search;
    else
        queue->first = search;
    queue->last = search;
}

static Search *pop(Queue *queue) {
    Search *search = queue->first;
    if (!search) return 0;
    queue->first = search->next;
    if (!queue->first) queue->last = 0;
    search->next = 0;
    return search;
}

/* Free a search, or all of them with ticket -1. Returns how many were freed. */
static int64_t drop(const RegardModel *model, Queue *queue, int64_t ticket) {
    int64_t dropped = 0;
    Search *kept = 0; /* the last one that stays */
    for (Search *search = queue->first, *next; search && (ticket < 0 || !dropped); search = next) {
        next = search->next;
        if (ticket >= 0 && search->ticket != ticket) {
            kept = search;
            continue;
        }
        *(kept ? &kept->next : &queue->first) = next;
        if (!next) queue->last = kept;
        search_free(model, search), dropped++;
    }
    return dropped;
}

/* Batches */

static int64_t cost_of(const Search *search) { return (int64_t)search->num_source * search->options.beam; }

/* Move sentences from the queue to a batch: as many as there is room for, but not more than its share. Returns how many are new. */
static int64_t admit(Batch *batch) {
    RegardSession *session = batch->session;
    int64_t rows = 0, tokens = 0, before = batch->count;
    for (int64_t i = 0; i < batch->count; i++) rows += batch->active[i]->options.beam, tokens += cost_of(batch->active[i]);
    lock(session);
    const int64_t threads = session->num_threads ? session->num_threads : 1;
    const int64_t all = atomic_load(&session->waiting) + atomic_load(&session->searched), share = (all + threads - 1) / threads;
    for (Search *search; (search = session->queued.first);) {
        rows += search->options.beam, tokens += cost_of(search);
        const int full = batch->count >= share || rows > session->rows || tokens > session->tokens;
        if (batch->count && full) break;
        atomic_fetch_sub(&session->waiting, 1), atomic_fetch_add(&session->searched, 1);
        batch->active[batch->count++] = pop(&session->queued);
    }
    unlock(session);
    return batch->count - before;
}

/* Take the sentences that are done, or were cancelled, out of a batch. */
static void release(Batch *batch) {
    RegardSession *session = batch->session;
    int64_t kept = 0, ended = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        Search *search = batch->active[i];
        search->done |= atomic_load(&search->cancelled);
        if (search->done) sentence_free(session->model, search->sentence), search->sentence = 0;
    }
    lock(session); /* `regard_session_cancel` reads batches */
    for (int64_t i = 0; i < batch->count; i++) {
        Search *search = batch->active[i];
        if (!search->done)
            batch->active[kept++] = search;
        else if (atomic_fetch_sub(&session->searched, 1), atomic_load(&search->cancelled))
            search_free(session->model, search);
        else
            push(&session->ended, search), ended++;
    }
    batch->count = kept;
    unlock(session);
    if (ended) announce(session);
}

/* Take new sentences and advance all of a batch by one step. Whether there was anything to do. */
static int work_once(Batch *batch) {
    const int64_t added = admit(batch);
    if (!batch->count) return 0;
    int failed = added && batch_encode(batch, added);
    failed = failed || batch_step(batch);
    if (failed) { /* of memory: these sentences fail, and the next ones begin anew */
        for (int64_t i = 0; i < batch->count; i++) batch->active[i]->failed = batch->active[i]->done = 1;
        work_free(&batch->work);
        batch->work.failed = 0;
    }
    release(batch);
    return 1;
}

#ifndef REGARD_NO_THREADS
static int has_work(void *argument) {
    RegardSession *session = argument;
    return atomic_load(&session->waiting) > 0 || atomic_load(&session->ending);
}

static void *run(void *argument) {
    Batch *batch = argument;
    RegardSession *session = batch->session;
    while (!atomic_load(&session->ending))
        if (!work_once(batch)) team_help(session->team, has_work, session);
    return 0;
}
#endif

/* What callers see */

RegardSession *regard_session_new(const RegardModel *model, int32_t threads, int32_t rows, int32_t tokens) {
    if (!model->ready) return set_error("the model is not complete"), (RegardSession *)0;
    if (threads < 0 || threads > MAX_THREADS || rows < 1 || tokens < 1)
        return set_error("threads must be from 0 to %d, rows and tokens at least 1", MAX_THREADS), (RegardSession *)0;
#ifdef REGARD_NO_THREADS
    threads = 0;
#endif
    RegardSession *session = allocate(1, sizeof(RegardSession));
    if (!session) return set_error("there is no memory"), (RegardSession *)0;
    const int64_t batches = threads ? threads : 1;
    session->model = model, session->num_threads = threads, session->rows = rows, session->tokens = tokens;
    session->batches = allocate(batches, sizeof(Batch));
    int failed = !session->batches;
    if (threads) failed |= !(session->team = team_new());
    for (int64_t i = 0; !failed && i < batches; i++) {
        session->batches[i] = (Batch){.model = model, .session = session, .work = {.team = threads > 1 ? session->team : 0}};
        failed = !(session->batches[i].active = allocate((int64_t)rows + 1, sizeof(Search *)));
    }
#ifndef REGARD_NO_THREADS
    pthread_mutex_init(&session->lock, 0);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&session->done, &clock);
    pthread_condattr_destroy(&clock);
    failed = failed || !(session->threads = allocate(batches, sizeof(pthread_t)));
    for (int32_t i = 0; !failed && i < threads; i++) {
        failed = pthread_create(&session->threads[i], 0, run, &session->batches[i]) != 0;
        session->started += !failed;
    }
#endif
    if (!failed) return session;
    regard_session_free(session);
    return set_error("there is no memory for a session, or its threads cannot be started"), (RegardSession *)0;
}

int64_t regard_session_add(RegardSession *session, const int32_t *ids, int64_t count, const RegardOptions *options) {
    Search *search = search_new(session->model, ids, count, options);
    if (!search) return -1;
    lock(session);
    const int64_t ticket = search->ticket = session->tickets++; /* read now: a thread may free the search at once */
    push(&session->queued, search);
    atomic_fetch_add(&session->waiting, 1);
    unlock(session);
    if (session->team) team_wake(session->team);
    return ticket;
}

#ifdef REGARD_NO_THREADS
static Search *next_ended(RegardSession *session, int64_t milliseconds) {
    while (!session->ended.first && work_once(session->batches) && milliseconds > 0) {}
    return pop(&session->ended);
}
#else
static int is_past(const struct timespec *until) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec != until->tv_sec ? now.tv_sec > until->tv_sec : now.tv_nsec >= until->tv_nsec;
}

static Search *next_ended(RegardSession *session, int64_t milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    milliseconds = milliseconds < 0 ? 0 : milliseconds;
    until.tv_sec += milliseconds / 1000, until.tv_nsec += milliseconds % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    if (!session->num_threads)
        while (!session->ended.first && work_once(session->batches) && !is_past(&until)) {}
    lock(session);
    while (session->num_threads && !session->ended.first)
        if (pthread_cond_timedwait(&session->done, &session->lock, &until) == ETIMEDOUT) break;
    Search *search = pop(&session->ended);
    unlock(session);
    return search;
}
#endif

int regard_session_next(RegardSession *session, int64_t milliseconds, RegardResult *result) {
    *result = (RegardResult){0};
    Search *search = next_ended(session, milliseconds);
    if (!search) return 0;
    const int failed = search_result(search, result);
    search_free(session->model, search);
    return failed ? (set_error("there is no memory for a result"), -1) : 1;
}

void regard_session_cancel(RegardSession *session, int64_t ticket) {
    lock(session);
    atomic_fetch_sub(&session->waiting, drop(session->model, &session->queued, ticket));
    drop(session->model, &session->ended, ticket);
    const int64_t batches = session->num_threads ? session->num_threads : 1;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t i = 0; i < session->batches[b].count; i++)
            if (ticket < 0 || session->batches[b].active[i]->ticket == ticket) atomic_store(&session->batches[b].active[i]->cancelled, 1);
    unlock(session);
}

void regard_session_free(RegardSession *session) {
    if (!session) return;
    atomic_store(&session->ending, 1);
    if (session->team) team_wake(session->team);
#ifndef REGARD_NO_THREADS
    for (int32_t i = 0; i < session->started; i++) pthread_join(session->threads[i], 0);
    free(session->threads);
#endif
    drop(session->model, &session->queued, -1), drop(session->model, &session->ended, -1);
    const int64_t batches = session->num_threads ? session->num_threads : 1;
    for (int64_t b = 0; session->batches && b < batches; b++) {
        for (int64_t i = 0; i < session->batches[b].count; i++) search_free(session->model, session->batches[b].active[i]);
        free(session->batches[b].active);
        work_free(&session->batches[b].work);
    }
    free(session->batches);
    team_free(session->team);
#ifndef REGARD_NO_THREADS
    pthread_mutex_destroy(&session->lock), pthread_cond_destroy(&session->done);
#endif
    free(session);
}
