/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON object that is being written: members one after the other, an object in an object until it is closed. Numbers that are not known
 * (NAN) and texts that are NULL become null. */
#ifndef PS_JOBJ_H
#define PS_JOBJ_H
#include "engine/job/jout.h"
#include <string.h>

struct ps_jobj {
    struct ps_jout *o;
    bool first;
};

static inline struct ps_jobj ps_jobj_open(struct ps_jout *o)
{
    ps_jout_text(o, "{");
    return (struct ps_jobj) { o, true };
}
static inline void ps_jobj_close(struct ps_jobj *b) { ps_jout_text(b->o, "}"); }
static inline struct ps_jobj ps_jobj_sub(struct ps_jobj *b, const char *key)
{
    ps_jout_key(b->o, &b->first, key);
    return ps_jobj_open(b->o);
}
static inline void ps_jobj_num(struct ps_jobj *b, const char *key, double v)
{
    ps_jout_key(b->o, &b->first, key);
    ps_jout_f64(b->o, v);
}
static inline void ps_jobj_u64(struct ps_jobj *b, const char *key, uint64_t v)
{
    ps_jout_key(b->o, &b->first, key);
    ps_jout_u64(b->o, v);
}
static inline void ps_jobj_str(struct ps_jobj *b, const char *key, const char *v)
{
    ps_jout_key(b->o, &b->first, key);
    if (v)
        ps_jout_string(b->o, v, strlen(v));
    else
        ps_jout_text(b->o, "null");
}
#endif
