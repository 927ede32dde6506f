/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_json.h"
#include "engine/base/ps_mem.h"
#include "engine/base/ps_utf8.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local uint64_t failures;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *get_block(size_t n)
{
    void *p = ps_calloc(1, n);
    if (!p) failures++;
    return p;
}

static void setup(void)
{
    json_malloc_t get;
    json_free_t put;
    json_get_alloc_funcs(&get, &put);
    if (get == malloc && put == free) json_set_alloc_funcs(get_block, free);
}

uint64_t ps_json_failures(void)
{
    (void) pthread_once(&once, setup);
    return failures;
}

/* jansson recurses for nested values, up to 2048 deep; nothing like that belongs in these files. The line where it happens, or 0. */
static int too_deep(const char *s, size_t n)
{
    int depth = 0, line = 1;
    bool str = false;
    for (size_t i = 0; i < n; i++) {
        line += s[i] == '\n';
        if (str) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"')
                str = false;
        } else if (s[i] == '"') {
            str = true;
        } else if (s[i] == '{' || s[i] == '[') {
            if (++depth > PS_JSON_DEPTH_MAX) return line;
        } else if (s[i] == '}' || s[i] == ']') {
            depth--;
        }
    }
    return 0;
}

json_t *ps_json_text(const char *s)
{
    static const char instead[] = "\xef\xbf\xbd";
    const size_t len = s ? strlen(s) : 0;
    if (!len) return json_null();
    ps_auto_free char *text = ps_calloc(len, sizeof instead);
    char *to = text;
    if (!text) {
        failures++;
        return NULL;
    }
    for (const char *end = s + len; s < end;) {
        const size_t n = ps_utf8_valid(s, (size_t) (end - s));
        to = (char *) memcpy(to, s, n) + n;
        s += n;
        if (s == end) break;
        to = (char *) memcpy(to, instead, sizeof instead - 1) + sizeof instead - 1;
        s++;
    }
    return json_stringn(text, (size_t) (to - text));
}

int ps_json_object(const char *data, size_t len, const char *path, json_t **ret,
                   struct ps_detail *dt)
{
    json_error_t e = { 0 }; /* jansson does not always fill it */
    int line = too_deep(data, len);
    if (line)
        return ps_fail(dt, -PS_EFORMAT, "%s:%d: nested more than %d deep", path, line,
                       PS_JSON_DEPTH_MAX);
    uint64_t before = ps_json_failures();
    json_t *root = json_loadb(data, len, JSON_REJECT_DUPLICATES, &e);
    /* Without our allocator an out-of-memory shows as such, or as no text at all. */
    if (failures != before ||
        (!root && (!e.text[0] || json_error_code(&e) == json_error_out_of_memory))) {
        json_decref(root);
        return ps_fail(dt, -ENOMEM, "out of memory for %s", path);
    }
    if (!root)
        return ps_fail(dt, -PS_EFORMAT, "%s:%d:%d: not valid JSON: %s", path, e.line, e.column,
                       e.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return ps_fail(dt, -PS_EFORMAT, "%s: expected a JSON object", path);
    }
    *ret = root;
    return 0;
}
