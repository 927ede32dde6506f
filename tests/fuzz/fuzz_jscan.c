/* SPDX-License-Identifier: Apache-2.0 */
/* The scanner for large or foreign JSON: taking a text apart value by value accepts what checking it in advance does, and the
 * strings it gives are UTF-8. */
#include "engine/base/ps_jscan.h"
#include "engine/base/ps_utf8.h"
#include <string.h>

static void require(int ok)
{
    if (!ok) abort();
}

static int value(struct ps_jscan *c, int depth);

static int members(struct ps_jscan *c, int depth)
{
    struct ps_jstr key;
    int r = ps_jscan_open(c, '{');
    while (r >= 0 && (r = ps_jscan_key(c, &key)) > 0) {
        key = ps_jstr_decode(key);
        require(ps_utf8_valid(key.s, key.len) == key.len);
        r = value(c, depth + 1);
    }
    return r;
}

static int elements(struct ps_jscan *c, int depth)
{
    int r = ps_jscan_open(c, '[');
    while (r >= 0 && (r = ps_jscan_next(c)) > 0) r = value(c, depth + 1);
    return r;
}

/* A number that neither reader takes (too large, too long) is passed over. */
static int number(struct ps_jscan *c)
{
    struct ps_jint v;
    double d;
    size_t at = ps_jscan_at(c);
    int r = ps_jscan_int(c, &v);
    if (r >= 0) return r;
    require(ps_jscan_at(c) == at);
    if ((r = ps_jscan_double(c, &d)) >= 0) return r;
    require(ps_jscan_at(c) == at);
    return ps_jscan_skip(c);
}

static int value(struct ps_jscan *c, int depth)
{
    struct ps_jstr s = { 0 };
    bool b;
    int r;
    if (depth >= PS_JSCAN_DEPTH &&
        (ps_jscan_type(c) == PS_J_OBJECT || ps_jscan_type(c) == PS_J_ARRAY))
        return -PS_EFORMAT;
    switch (ps_jscan_type(c)) {
    case PS_J_OBJECT: return members(c, depth);
    case PS_J_ARRAY: return elements(c, depth);
    case PS_J_NUMBER: return number(c);
    case PS_J_TRUE:
    case PS_J_FALSE: return ps_jscan_bool(c, &b);
    case PS_J_STRING:
        r = ps_jscan_str(c, &s);
        if (r >= 0) require(!s.s[s.len] && ps_utf8_valid(s.s, s.len) == s.len);
        return r;
    default: return ps_jscan_skip(c);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_detail dt;
    struct ps_jscan c;
    char *text = malloc(size ? size : 1);
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    int whole = ps_jscan_check(text, size, &dt);
    require(whole < 0 || !memcmp(text, data, size));
    ps_jscan_init(&c, text, size);
    int r = value(&c, 0);
    if (r >= 0) r = ps_jscan_done(&c);
    require((whole < 0) == (r < 0) && ps_jscan_at(&c) <= size);
    free(text);
    return 0;
}
