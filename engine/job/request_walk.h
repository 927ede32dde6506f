/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of request*.c: a line of JSON as it is walked through. */
#ifndef PS_REQUEST_WALK_H
#define PS_REQUEST_WALK_H
#include "engine/job/request.h"

struct ps_walk {
    const struct ps_rules *rules;
    struct ps_request *req;
    struct ps_jscan c;
    const char *field; /* being read, for messages */
};

/* request_key.c. Which of n <= 32 names a key is: its index, or -1 with the error recorded (unknown, or in `seen`, which is kept here). */
int ps_walk_key(struct ps_request *q, struct ps_jstr key, const char *const *names, size_t n,
                uint32_t *seen, const char *what);

/* request_body.c. From the body's opening bracket on; false with the error recorded. */
bool ps_walk_body(struct ps_walk *w);
bool ps_walk_string(struct ps_walk *w, struct ps_jstr *ret);
#endif
