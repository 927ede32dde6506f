/* SPDX-License-Identifier: Apache-2.0 */
/* JSON trees through jansson: for what is small and read whole (configurations, tokenizer files, reports). Lines of a job
 * and headers of checkpoints go through ps_jscan.h, which reads in place and allocates nothing.
 *
 * jansson's lexer goes on when its buffer cannot grow: a text is then short of a byte, and nobody is told. So its allocator, as
 * long as that is libc's, is replaced by ps_calloc with a memory of failures, per thread. Blocks from before and after are freed
 * alike. Any thread; a tree belongs to one at a time. */
#ifndef PS_JSON_H
#define PS_JSON_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include <jansson.h>

enum { PS_JSON_DEPTH_MAX = 32 };

/* How many of jansson's allocations failed on this thread so far. If it grew while a tree was read or built, the tree is not to be
 * trusted. Called before the first use of jansson, since it is what puts the allocator in place. */
uint64_t ps_json_failures(void);

/* A name of a file, or what else was given from outside: its bytes that are not UTF-8 become U+FFFD; null for NULL and "". NULL: out of
 * memory. */
json_t *ps_json_text(const char *s) ps_must_check;

/* An object of at most PS_JSON_DEPTH_MAX levels, each key once; the caller's to decref. `path` is for the detail. -PS_EFORMAT with
 * line and column, or -ENOMEM. */
int ps_json_object(const char *data, size_t len, const char *path, json_t **ret,
                   struct ps_detail *dt) ps_must_check;
#endif
