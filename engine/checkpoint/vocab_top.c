/* SPDX-License-Identifier: Apache-2.0 */
/* The greatest token id of a folder's tokenizer, to be compared with the model's table. Files that do not read are the
 * tokenizer's to complain of; here they count as having no ids. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_jscan.h"
#include "engine/checkpoint/convert.h"

enum { VOCAB_BYTES_MAX = 128 << 20 };

static void raise_to(int64_t *top, uint64_t id)
{
    if (id <= INT64_MAX && (int64_t) id > *top) *top = (int64_t) id;
}

/* {"text": id, ...} */
static int ids(struct ps_jscan *c, int64_t *top)
{
    struct ps_jstr key;
    uint64_t id;
    int r = ps_jscan_open(c, '{');
    if (r < 0) return r;
    while ((r = ps_jscan_key(c, &key)) > 0) {
        if ((r = ps_jscan_u64(c, &id)) < 0) return r;
        raise_to(top, id);
    }
    return r;
}

/* [{"id": n, ...}, ...] */
static int added(struct ps_jscan *c, int64_t *top)
{
    struct ps_jstr key;
    uint64_t id;
    int r = ps_jscan_open(c, '['), q;
    if (r < 0) return r;
    while ((r = ps_jscan_next(c)) > 0) {
        if ((q = ps_jscan_open(c, '{')) < 0) return q;
        while ((q = ps_jscan_key(c, &key)) > 0) {
            if (!ps_jstr_is(key, "id"))
                q = ps_jscan_skip(c);
            else if ((q = ps_jscan_u64(c, &id)) == 0)
                raise_to(top, id);
            if (q < 0) return q;
        }
        if (q < 0) return q;
    }
    return r;
}

/* tokenizer.json: {"added_tokens": [...], "model": {"vocab": {...}, ...}, ...} */
static int whole(struct ps_jscan *c, int64_t *top)
{
    struct ps_jstr key;
    int r = ps_jscan_open(c, '{'), q;
    if (r < 0) return r;
    while ((r = ps_jscan_key(c, &key)) > 0) {
        if (ps_jstr_is(key, "added_tokens")) {
            if ((q = added(c, top)) < 0) return q;
        } else if (!ps_jstr_is(key, "model")) {
            if ((q = ps_jscan_skip(c)) < 0) return q;
        } else {
            if ((q = ps_jscan_open(c, '{')) < 0) return q;
            while ((q = ps_jscan_key(c, &key)) > 0) {
                q = !ps_jstr_is(key, "vocab") ? ps_jscan_skip(c) : ids(c, top);
                if (q < 0) return q;
            }
            if (q < 0) return q;
        }
    }
    return r;
}

int ps_vocab_top(const char *folder, int64_t *ret, struct ps_detail *dt)
{
    static const struct {
        const char *name;
        int (*read)(struct ps_jscan *c, int64_t *top);
    } files[] = { { "vocab.json", ids },
                  { "added_tokens.json", ids },
                  { "tokenizer.json", whole } };
    int64_t top = -1;
    for (size_t i = 0; i < PS_ARRAY_LEN(files); i++) {
        ps_auto_free char *text = NULL, *path = ps_concat(folder, "/", files[i].name);
        size_t len;
        int r = path ? ps_slurp(path, VOCAB_BYTES_MAX, &text, &len, NULL) : -ENOMEM;
        if (r == -ENOMEM)
            return ps_fail(dt, r, "out of memory for %s of %s", files[i].name, folder);
        if (r < 0) continue;
        struct ps_jscan c;
        ps_jscan_init(&c, text, len);
        (void) files[i].read(&c, &top);
    }
    *ret = top;
    return 0;
}
