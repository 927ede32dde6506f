/* SPDX-License-Identifier: Apache-2.0 */
/* Faults on order. A spec is a list of rules, separated by commas; N counts from 1:
 *
 *     read:N:ERR, write:N:ERR   the Nth read (write) fails with ERR (EIO, ENOSPC, ...), once
 *     flip:N                    one bit of what the Nth read brought is wrong
 *     delay:US                  every transfer is held back for up to US microseconds
 *     reorder                   what is complete is handed out in any order
 *     short:N                   one in N answers of the kernel, drawn at random, is cut short (N >= 2)
 *     intr:N                    one in N answers is EINTR or EAGAIN instead (N >= 2)
 *     seed:S                    for all that is random (default 1)
 *
 * short and intr act below a store's own retries, in the stores on files; the others in the fault store
 * above it. Each reads the same spec and takes its part. */
#ifndef PS_STORE_FAULT_H
#define PS_STORE_FAULT_H
#include "offload/store.h"
#include <stdatomic.h>

extern const struct ps_store_ops ps_store_uring, ps_store_pread, ps_store_null, ps_store_fault;

enum { PS_FAULT_RULES = 16 };
struct ps_faults {
    struct {
        uint64_t nth;
        int err; /* negative */
    } fail[2][PS_FAULT_RULES];
    unsigned n_fail[2];
    uint64_t flip[PS_FAULT_RULES];
    unsigned n_flip;
    uint64_t delay_us, short_every, intr_every, seed;
    bool reorder;
    _Atomic uint64_t answers;
};

/* NULL and "" mean no faults. -EINVAL with a detail that names the rule. */
int ps_faults_parse(const char *spec, struct ps_faults *ret, struct ps_detail *dt) ps_must_check;
/* A pseudo-random number: a function of its arguments. */
uint64_t ps_faults_hash(uint64_t seed, uint64_t n);
/* The kernel's answer to a transfer, as the rules `short` and `intr` would have it. */
int64_t ps_faults_result(struct ps_faults *f, int64_t result);
#endif
