/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cli/ticker.h"
#include <stdio.h>

static void tell(const struct ps_ticker *t, bool tty)
{
    char text[96];
    (void) snprintf(text, sizeof text, "%s, %.0f s", atomic_load(&t->what),
                    (double) (ps_now_ns() - t->begun_ns) * 1e-9);
    if (tty)
        ps_progress_line(text);
    else
        ps_say("%s", text);
}

static void *tick(void *ud)
{
    struct ps_ticker *t = ud;
    const bool tty = isatty(STDERR_FILENO);
    struct timespec at;
    (void) clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += 2;
    (void) pthread_mutex_lock(&t->lock);
    while (!t->over) {
        if (pthread_cond_timedwait(&t->changed, &t->lock, &at) != ETIMEDOUT || t->over) continue;
        tell(t, tty);
        at.tv_sec += tty ? 1 : 10;
    }
    (void) pthread_mutex_unlock(&t->lock);
    return NULL;
}

void ps_ticker_begin(struct ps_ticker *t, const char *what)
{
    pthread_condattr_t attr;
    t->begun_ns = ps_now_ns();
    t->over = false;
    atomic_init(&t->what, what);
    (void) pthread_condattr_init(&attr);
    (void) pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void) pthread_mutex_init(&t->lock, NULL);
    (void) pthread_cond_init(&t->changed, &attr);
    (void) pthread_condattr_destroy(&attr);
    t->runs = !pthread_create(&t->thread, NULL, tick, t); /* else nothing is told */
}

void ps_ticker_end(struct ps_ticker *t)
{
    (void) pthread_mutex_lock(&t->lock);
    t->over = true;
    (void) pthread_cond_signal(&t->changed);
    (void) pthread_mutex_unlock(&t->lock);
    if (t->runs) (void) pthread_join(t->thread, NULL);
    (void) pthread_cond_destroy(&t->changed);
    (void) pthread_mutex_destroy(&t->lock);
    ps_progress_end();
}
