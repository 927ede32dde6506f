/* SPDX-License-Identifier: Apache-2.0 */
/* For what may take long and cannot tell how far it is: after two seconds, what is done and for how long, on stderr; every second on a terminal,
 * else every ten. */
#ifndef PS_CLI_TICKER_H
#define PS_CLI_TICKER_H
#include "engine/cli/cli.h"
#include <pthread.h>
#include <stdatomic.h>

struct ps_ticker {
    _Atomic(const char *) what; /* static storage; may be changed at any time */
    uint64_t begun_ns;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over, runs;
};
void ps_ticker_begin(struct ps_ticker *t, const char *what);
void ps_ticker_end(struct ps_ticker *t);
#endif
