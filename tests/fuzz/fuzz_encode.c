/* SPDX-License-Identifier: Apache-2.0 */
/* The demo model's tokenizer: text to ids and back gives the text, whole or in two calls of one encoder; and any ids at all decode to
 * valid UTF-8. The first byte of the input says which. */
#include "engine/base/ps_utf8.h"
#include "engine/tokenizer/tok_impl.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct ps_tok *demo(void)
{
    static struct ps_tok *t; /* as long as the process */
    if (!t && ps_tok_open(SOURCE_ROOT "/models/demo-opt", &t, NULL) < 0) abort();
    return t;
}

static size_t decode(const int32_t *id, size_t n, char *out)
{
    struct ps_decoder d = { .tok = demo() };
    size_t len = 0;
    for (size_t i = 0; i < n; i++) len += ps_decode(&d, id[i], out + len);
    return len + ps_decode_end(&d, out + len);
}

static void text(const char *s, size_t len)
{
    static struct ps_encoder *e;
    const int32_t *id;
    size_t n;
    if (!e && ps_encoder_open(demo(), &e) < 0) abort();
    int r = ps_encode(e, s, len, false, &id, &n);
    if ((r < 0) != (ps_utf8_valid(s, len) != len)) abort();
    if (r < 0) return;
    if (n > len) abort();
    char *out = malloc(3 * len + PS_DECODE_SLACK);
    if (!out) abort();
    if (decode(id, n, out) != len || memcmp(out, s, len) != 0) abort();
    free(out);
}

static void ids(const uint8_t *p, size_t size)
{
    size_t n = size / 2, longest = ps_tok_longest(demo());
    int32_t *id = malloc((n + 1) * sizeof(*id));
    char *out = malloc((n + 1) * longest);
    if (!id || !out) abort();
    for (size_t i = 0; i < n; i++) id[i] = (p[2 * i] | p[2 * i + 1] << 8) % 4200 - 50;
    size_t len = decode(id, n, out);
    if (ps_utf8_valid(out, len) != len) abort();
    text(out, len);
    free(id);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && data[0] & 1)
        ids(data + 1, size - 1);
    else if (size)
        text((const char *) data + 1, size - 1);
    return 0;
}
