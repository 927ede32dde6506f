/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/store_sync.h"
#include <time.h>

void ps_done_init(struct ps_done *d)
{
    *d = (struct ps_done) { 0 };
    (void) pthread_mutex_init(&d->lock, NULL);
    (void) pthread_cond_init(&d->some, NULL);
    d->tail = &d->head;
}

void ps_done_done(struct ps_done *d)
{
    (void) pthread_cond_destroy(&d->some);
    (void) pthread_mutex_destroy(&d->lock);
}

void ps_done_put(struct ps_done *d, struct ps_io *io)
{
    (void) pthread_mutex_lock(&d->lock);
    io->next_ = NULL;
    *d->tail = io;
    d->tail = &io->next_;
    (void) pthread_cond_signal(&d->some);
    (void) pthread_mutex_unlock(&d->lock);
}

void ps_done_wake(struct ps_done *d)
{
    (void) pthread_mutex_lock(&d->lock);
    d->woken = true;
    (void) pthread_cond_signal(&d->some);
    (void) pthread_mutex_unlock(&d->lock);
}

static void deadline(int64_t timeout_ns, struct timespec *ret)
{
    (void) clock_gettime(CLOCK_MONOTONIC, ret);
    int64_t n = ret->tv_nsec + timeout_ns % 1000000000;
    ret->tv_sec += timeout_ns / 1000000000 + n / 1000000000;
    ret->tv_nsec = n % 1000000000;
}

int ps_done_reap(struct ps_done *d, struct ps_io **done, unsigned max, int64_t timeout_ns)
{
    struct timespec until;
    int n = 0, late = 0;
    if (timeout_ns > 0) deadline(timeout_ns, &until);
    (void) pthread_mutex_lock(&d->lock);
    while (!d->head && !d->woken && !late) {
        if (timeout_ns < 0)
            (void) pthread_cond_wait(&d->some, &d->lock);
        else if (timeout_ns == 0)
            break;
        else
            late = pthread_cond_clockwait(&d->some, &d->lock, CLOCK_MONOTONIC, &until);
    }
    for (; (unsigned) n < max && d->head; n++) {
        done[n] = d->head;
        d->head = d->head->next_;
    }
    if (!d->head) d->tail = &d->head;
    if (!n) d->woken = false; /* a wake ends a wait that has nothing else to show */
    (void) pthread_mutex_unlock(&d->lock);
    return n;
}
