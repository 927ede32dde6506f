/* SPDX-License-Identifier: Apache-2.0 */
/* Names of fields: which one a key is. */
#include "engine/job/request_walk.h"

/* Which of the names a key is: its index, or -1 with the error recorded (unknown, or seen before). */
int ps_walk_key(struct ps_request *q, struct ps_jstr key, const char *const *names, size_t n,
                uint32_t *seen, const char *what)
{
    key = ps_jstr_decode(key);
    for (size_t i = 0; i < n; i++) {
        if (!ps_jstr_is(key, names[i])) continue;
        if (*seen & 1u << i) {
            (void) ps_request_fail(q, PS_LE_INVALID_REQUEST, "%s is given twice", names[i]);
            return -1;
        }
        *seen |= 1u << i;
        return (int) i;
    }
    (void) ps_request_fail(
        q, PS_LE_UNKNOWN_FIELD, "\"%.*s\" is no field of %s%s", (int) (key.len < 64 ? key.len : 64),
        key.s, what,
        ps_jstr_is(key, "messages")
            ? " (chat needs a template that is not applied here: put its text into \"prompt\")"
            : "");
    return -1;
}
