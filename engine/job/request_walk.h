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

/* The fields of an object; an error lists the first n_told, if none is near. */
struct ps_names {
    const char *const *names;
    size_t n, n_told; /* n <= 32 */
    const char *what; /* that has these fields, for messages */
};

/* request_key.c. Which of the names a key is whose value follows: its index; n if it is none of them, and null, which is as if it were not
 * there; -1 with the error recorded (unknown, or in `seen`, which is kept here). */
int ps_walk_key(struct ps_walk *w, struct ps_jstr key, const struct ps_names *of, uint32_t *seen);

/* request_body.c. From the body's opening bracket on; false with the error recorded. */
bool ps_walk_body(struct ps_walk *w);
bool ps_walk_string(struct ps_walk *w, struct ps_jstr *ret);
#endif
