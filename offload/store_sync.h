/* SPDX-License-Identifier: Apache-2.0 */
/* The finished side of a store that works with threads or at once: a list, and somebody who waits for it.
 * Private to this folder. */
#ifndef PS_STORE_SYNC_H
#define PS_STORE_SYNC_H
#include "offload/store.h"
#include <pthread.h>

struct ps_done {
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct ps_io *head, **tail;
    bool woken;
};
void ps_done_init(struct ps_done *d);
void ps_done_done(struct ps_done *d);
void ps_done_put(struct ps_done *d, struct ps_io *io);
int ps_done_reap(struct ps_done *d, struct ps_io **done, unsigned max, int64_t timeout_ns);
void ps_done_wake(struct ps_done *d);
#endif
