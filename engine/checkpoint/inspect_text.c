/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_util.h"
#include "engine/checkpoint/inspect.h"
#include <stdio.h>
#include <string.h>

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "-";
}
static long long num(const json_t *o, const char *key)
{
    return (long long) json_integer_value(json_object_get(o, key));
}

static const char *s_of(const json_t *o, const char *key)
{
    return ps_plural((uint64_t) num(o, key));
}

static void line_bytes(FILE *f, const char *what, long long b)
{
    if (b >= 1ll << 30)
        (void) fprintf(f, "  %-18s %.2f GiB\n", what, (double) b / (1 << 30));
    else
        (void) fprintf(f, "  %-18s %.2f MiB\n", what, (double) b / (1 << 20));
}

static void text_model(FILE *f, const json_t *m)
{
    if (!json_is_object(m)) return;
    (void) fprintf(f, "%s (%s)\n", str(m, "name"), str(m, "family"));
    (void) fprintf(f, "  %-18s %lld layer%s, hidden %lld, ffn %lld, %lld head%s of %lld\n", "shape",
                   num(m, "layers"), s_of(m, "layers"), num(m, "hidden"), num(m, "ffn"),
                   num(m, "heads"), s_of(m, "heads"), num(m, "head_dim"));
    (void) fprintf(f, "  %-18s %lld", "vocabulary", num(m, "vocab"));
    if (num(m, "embed") != num(m, "hidden")) (void) fprintf(f, " (%lld wide)", num(m, "embed"));
    (void) fprintf(f, ", %lld position%s\n", num(m, "positions"), s_of(m, "positions"));
    (void) fprintf(f, "  %-18s %s, %s%s%s%s\n", "form", str(m, "activation"),
                   strcmp(str(m, "norm"), "after") != 0 ? "norm before" : "norm after",
                   json_is_true(json_object_get(m, "final_norm")) ? ", final norm" : "",
                   json_is_true(json_object_get(m, "tied")) ? ", tied output"
                                                            : ", own output table",
                   json_is_true(json_object_get(m, "bias")) ? "" : ", no biases");
}

static void text_list(FILE *f, const json_t *report, const char *key, const char *label)
{
    size_t i;
    const json_t *v;
    json_array_foreach(json_object_get(report, key), i, v)(void)
        fprintf(f, "  %-18s %s\n", label, json_string_value(v));
}

char *ps_inspect_text(const json_t *report)
{
    char *buf = NULL;
    size_t len, i;
    FILE *f = open_memstream(&buf, &len);
    if (!f) return NULL;
    const json_t *b = json_object_get(report, "bytes"), *kv, *file;
    text_model(f, json_object_get(report, "model"));
    (void) fprintf(f, "  %-18s %s%s%s\n", "kind", str(report, "kind"),
                   json_is_string(json_object_get(report, "format")) ? ", " : "",
                   json_is_string(json_object_get(report, "format")) ? str(report, "format") : "");
    (void) fprintf(f, "  %-18s %.1f M in %lld tensor%s, %s\n", "parameters",
                   (double) num(report, "parameters") / 1e6, num(report, "tensors"),
                   s_of(report, "tensors"), str(report, "dtype"));
    if (json_is_object(b)) {
        line_bytes(f, "weights", num(b, "weights"));
        if (json_object_get(b, "layer")) line_bytes(f, "  each layer", num(b, "layer"));
        if (json_object_get(b, "stem")) line_bytes(f, "  outside layers", num(b, "stem"));
    }
    kv = json_object_get(report, "kv_bytes_per_token");
    if (json_is_object(kv))
        (void) fprintf(f, "  %-18s %.1f KiB a token (f16)\n", "KV", (double) num(kv, "f16") / 1024);
    if (json_is_integer(json_object_get(report, "chunks"))) {
        (void) fprintf(f, "  %-18s %lld, checksums: %s\n", "chunks", num(report, "chunks"),
                       str(report, "checksums"));
        (void) fprintf(f, "  %-18s %s\n", "hash", str(report, "hash"));
    }
    if (json_is_object(json_object_get(report, "model")) &&
        strcmp(str(report, "kind"), "config") != 0)
        (void) fprintf(f, "  %-18s %s\n", "tokenizer",
                       json_is_string(json_object_get(report, "tokenizer"))
                           ? str(report, "tokenizer")
                           : "none");
    json_array_foreach(json_object_get(report, "files"), i, file)(void)
        fprintf(f, "  %-18s %s (%lld byte%s)\n", "file", str(file, "path"), num(file, "bytes"),
                s_of(file, "bytes"));
    text_list(f, report, "damaged", "DAMAGED");
    text_list(f, report, "warnings", "warning");
    if (fclose(f) != 0) {
        free(buf);
        return NULL;
    }
    return buf;
}
