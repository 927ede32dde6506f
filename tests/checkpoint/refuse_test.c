/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that must be refused before anything is written, with a text that names the file and the tensor. */
#include "engine/checkpoint/pack.h"
#include "engine/checkpoint/source.h"
#include "ps_cmocka.h"
#include "tiny_model.h"
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sys/stat.h>

static struct ps_detail dt;

/* Converts; the result must be `err`, and nothing may be left. */
static void refused(const char *src, int err, const char *says, const char *also)
{
    char dst[PATH_MAX];
    const char *parent = tiny_folder();
    tiny_path(dst, sizeof dst, parent, "p");
    dt.text[0] = 0;
    int r = ps_pack_convert(src, dst, NULL, &dt);
    if (r != -err) fail_msg("%s instead of %s: %s", ps_err_name(r), ps_err_name(err), dt.text);
    assert_says(&dt, says);
    if (also) assert_says(&dt, also);
    assert_int_equal(tiny_count(parent), 0);
}

static void headers(void **state)
{
#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]" \
    "}"
    static const struct {
        const char *header;
        size_t bytes;
        const char *says;
        int err;
    } cases[] = {
        { "", 0, "object", PS_EFORMAT },
        { "[]", 0, "object", PS_EFORMAT },
        { "{} x", 0, "follows", PS_EFORMAT },
        { "{", 0, "too early", PS_EFORMAT },
        { "{\"a\":3}", 0, "object", PS_EFORMAT },
        { "{" T("a", "F16", "[2]", "0", "4") "}", 3, "cut short", PS_EFORMAT },
        { "{" T("a", "F16", "[2]", "0", "4") "}", 5, "follow the last tensor", PS_EFORMAT },
        { "{" T("a", "F16", "[2]", "0", "6") "}", 6, "tensor a", PS_EFORMAT },
        { "{" T("a", "F16", "[2]", "4", "0") "}", 6, "tensor a", PS_EFORMAT },
        { "{" T("a", "F17", "[2]", "0", "4") "}", 4, "F17", PS_EFORMAT },
        { "{" T("a", "F16", "[2]", "0", "4") "," T("b", "F16", "[2]", "2", "6") "}", 6, "overlap",
          PS_EFORMAT },
        { "{" T("a", "F16", "[2]", "0", "4") "," T("b", "F16", "[2]", "5", "9") "}", 9, "gap",
          PS_EFORMAT },
        { "{" T("a", "F16", "[2]", "0", "4") "," T("a", "F16", "[2]", "4", "8") "}", 8, "twice",
          PS_EFORMAT },
        { "{" T("a", "F16", "[-2]", "0", "4") "}", 4, "integer", PS_EFORMAT },
        { "{" T("a", "F16", "[2.0]", "0", "4") "}", 4, "integer", PS_EFORMAT },
        { "{" T("a", "F16", "[1,1,1,1,1,1,1,1,2]", "0", "4") "}", 4, "more numbers", PS_EFORMAT },
        { "{" T("a", "F16", "[4294967296,4294967296]", "0", "4") "}", 4, "too large", PS_ESHAPE },
        { "{" T("a", "F16", "[18446744073709551616]", "0", "4") "}", 4, "too large", PS_EFORMAT },
        { "{\"a\":{\"dtype\":\"F16\",\"shape\":[2]}}", 0, "lacks", PS_EFORMAT },
        { "{\"a\":{\"dtype\":\"F16\",\"dtype\":\"F16\"}}", 0, "twice", PS_EFORMAT },
        { "{\"a\":{\"code\":1}}", 0, "nothing else", PS_EFORMAT },
        { "{\"__metadata__\":{\"a\":1}}", 0, "string", PS_EFORMAT },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice", PS_EFORMAT },
        { "{\"\\ud800\":{}}", 0, "surrogate", PS_EFORMAT },
        { "{\"\\u0000\":{}}", 0, "NUL", PS_EFORMAT },
        { "{\"\xff\":{}}", 0, "UTF-8", PS_EFORMAT },
        { "{\"a\x01\":{}}", 0, "control", PS_EFORMAT },
        { "{}", 0, "model.decoder.final_layer_norm.weight is missing", PS_EFORMAT },
    };
    struct tiny_opt o = { .dtype = PS_F16 };
    struct ps_shape s;
    const char *src = tiny_folder();
    tiny_make(src, &o, &s);
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        tiny_safetensors(src, "model.safetensors", cases[i].header, cases[i].bytes);
        print_message("%s\n", cases[i].header);
        refused(src, cases[i].err, cases[i].says, src);
    }
}

static void lengths(void **state)
{
    struct tiny_opt o = { .dtype = PS_F16 };
    struct ps_shape s;
    const char *src = tiny_folder();
    tiny_make(src, &o, &s);
    tiny_write(src, "model.safetensors", "abc", 3);
    refused(src, PS_EFORMAT, "not a safetensors file", "model.safetensors");
    tiny_write(src, "model.safetensors", "\x00\xe1\xf5\x05\x00\x00\x00\x00{}", 10);
    refused(src, PS_EFORMAT, "cut short", "model.safetensors");
    tiny_write(src, "model.safetensors", "\x01\xe1\xf5\x05\x00\x00\x00\x00{}", 10);
    refused(src, PS_EFORMAT, "at most 100000000", "model.safetensors");
    tiny_write(src, "model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    refused(src, PS_EFORMAT, "at most 100000000", "model.safetensors");
    /* The real file, a byte short */
    tiny_make(src, &o, &s);
    size_t n;
    char *b = tiny_read(src, "model.safetensors", &n);
    tiny_write(src, "model.safetensors", b, n - 1);
    refused(src, PS_EFORMAT, "cut short", "tensor");
    free(b);
}

static void tensors(void **state)
{
    static const struct {
        struct tiny_opt o;
        const char *says;
        int err;
    } cases[] = {
        { { .leave_out = "model.decoder.layers.1.fc2.bias" },
          "tensor model.decoder.layers.1.fc2.bias is missing",
          PS_EFORMAT },
        { { .config_more = ",\"tie_word_embeddings\":false", .leave_out = "lm_head.weight" },
          "lm_head.weight",
          PS_EFORMAT },
        { { .bad_name = "model.decoder.layers.0.fc1.weight", .bad_index = 100, .bad_value = NAN },
          "element 100 is nan",
          PS_ENUMERIC },
        { { .bad_name = "model.decoder.layers.0.fc1.bias", .bad_index = 7, .bad_value = INFINITY },
          "tensor model.decoder.layers.0.fc1.bias: element 7 is inf",
          PS_ENUMERIC },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        struct ps_shape s;
        const char *src = tiny_folder();
        struct tiny_opt o = cases[i].o;
        o.dtype = PS_F16;
        tiny_make(src, &o, &s);
        refused(src, cases[i].err, cases[i].says, src);
    }
}

static void shapes(void **state)
{
    struct tiny_opt o = { .dtype = PS_F16 };
    struct ps_shape s;
    const char *src = tiny_folder();
    tiny_make(src, &o, &s);
    char config[1024];
    (void) snprintf(config, sizeof config, TINY_CONFIG, ",\"word_embed_proj_dim\":24");
    tiny_write_text(src, "config.json", config);
    refused(src, PS_EFORMAT, "project_out.weight is missing", src);
    tiny_write_text(src, "config.json",
                    "{\"model_type\":\"opt\",\"num_hidden_layers\":2,\"hidden_size\":48,"
                    "\"ffn_dim\":96,\"num_attention_heads\":4,\"vocab_size\":132,"
                    "\"max_position_embeddings\":40}");
    refused(src, PS_ESHAPE, "model.decoder.embed_tokens.weight has shape [131, 48]", "[132, 48]");
    tiny_write_text(src, "config.json", "{\"model_type\":\"gpt2\"}");
    refused(src, PS_EUNSUPPORTED, "gpt2", "config.json");
}

static void what_f16_cannot_hold(void **state)
{
    static const struct {
        float v;
        int to, err;
    } cases[] = {
        { 65519.0f, PS_F16, 0 }, { 65520.0f, PS_F16, PS_ENUMERIC }, { -1e30f, PS_F16, PS_ENUMERIC },
        { 1e30f, PS_BF16, 0 },   { 3.4e38f, PS_BF16, PS_ENUMERIC }, { 3.4e38f, PS_F32, 0 },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        struct tiny_opt o = { .dtype = PS_F32,
                              .bad_name = "model.decoder.layers.1.self_attn.v_proj.weight",
                              .bad_index = 48 * 48 - 1,
                              .bad_value = cases[i].v };
        struct ps_shape s;
        struct ps_convert_opt c = { .dtype = cases[i].to };
        char dst[PATH_MAX];
        const char *src = tiny_folder(), *parent = tiny_folder();
        tiny_path(dst, sizeof dst, parent, "p");
        tiny_make(src, &o, &s);
        int r = ps_pack_convert(src, dst, &c, &dt);
        if (r != -cases[i].err) fail_msg("%g to %d: %s", (double) cases[i].v, cases[i].to, dt.text);
        assert_int_equal(tiny_count(parent), r == 0);
        if (!r) continue;
        assert_says(&dt, "model.decoder.layers.1.self_attn.v_proj.weight");
        assert_says(&dt, "element 2303");
        assert_says(&dt, "cannot hold");
    }
}

static void shards(void **state)
{
    struct tiny_opt o = { .dtype = PS_F16, .shards = 2 };
    struct ps_shape s;
    const char *src = tiny_folder();
    char path[PATH_MAX];
    tiny_make(src, &o, &s);
    tiny_path(path, sizeof path, src, "model-00002-of-00002.safetensors");
    assert_int_equal(unlink(path), 0);
    refused(src, ENOENT, "model-00002-of-00002.safetensors", "index.json");
    static const char *const bad[][2] = {
        { "{\"weight_map\":{\"a\":\"../model.safetensors\"}}", "no file name" },
        { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "no file name" },
        { "{\"weight_map\":{\"a\":7}}", "string" },
        { "{\"weight_map\":{}}", "weight_map" },
        { "{}", "weight_map" },
        { "{\"weight_map\":", "index.json" },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        tiny_write_text(src, "model.safetensors.index.json", bad[i][0]);
        refused(src, PS_EFORMAT, bad[i][1], "index.json");
    }
    const char *empty = tiny_folder();
    refused(empty, ENOENT, "config.json", empty);
    tiny_write_text(empty, "config.json", "{");
    refused(empty, PS_EFORMAT, "config.json", NULL);
    char config[1024];
    (void) snprintf(config, sizeof config, TINY_CONFIG, "");
    tiny_write_text(empty, "config.json", config);
    refused(empty, ENOENT, "no weights", "pytorch_model.bin");
    refused(empty, ENOENT, "convert made", "weights-00001-of-00001.safetensors");
    refused("/nowhere/at/all", ENOENT, "/nowhere/at/all", NULL);
    tiny_path(path, sizeof path, empty, "model.safetensors");
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(empty, ENOENT, "model.safetensors is there", "regular file"); /* and does not hang */
}

/* No change of a byte in the header of a packed file makes it open with other offsets than before or go out of its bounds. */
static void packed_header_bytes(void **state)
{
    struct tiny_opt o = { .dtype = PS_F16 };
    struct ps_shape s;
    char dst[PATH_MAX], file[PATH_MAX];
    const char *src = tiny_folder();
    tiny_path(dst, sizeof dst, tiny_folder(), "p");
    tiny_make(src, &o, &s);
    assert_ok_dt(ps_pack_convert(src, dst, NULL, &dt), &dt);
    tiny_path(file, sizeof file, dst, "weights-00001-of-00001.safetensors");
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    ps_auto_pack struct ps_packed *p = NULL;
    assert_ok_dt(ps_pack_open(dst, &p, &dt), &dt);
    size_t n, opened = 0;
    char *b = tiny_read(dst, "weights-00001-of-00001.safetensors", &n);
    int fd = open(file, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t i = 0; i < p->chunks[0].off; i += 1 + (i > 600 ? i % 3 : 0)) {
        char c = (char) (b[i] ^ (1 << i % 7));
        assert_int_equal(pwrite(fd, &c, 1, (off_t) i), 1);
        ps_auto_pack struct ps_packed *q = NULL;
        int r = ps_pack_open(dst, &q, &dt);
        assert_int_equal(pwrite(fd, b + i, 1, (off_t) i), 1);
        if (r < 0) continue;
        opened++; /* a checksum, or a name in the metadata */
        assert_int_equal(q->n_chunks, p->n_chunks);
        assert_int_equal(q->n_tensors, p->n_tensors);
        for (uint32_t k = 0; k < p->n_chunks; k++)
            assert_int_equal(q->chunks[k].off, p->chunks[k].off);
        for (uint32_t k = 0; k < p->n_tensors; k++)
            assert_int_equal(q->tensors[k].off, p->tensors[k].off);
    }
    assert_true(opened > 0);
    assert_int_equal(ftruncate(fd, st.st_size - 4096), 0);
    assert_err(ps_pack_open(dst, &(struct ps_packed *) { NULL }, &dt), PS_EFORMAT);
    assert_says(&dt, "cut short");
    (void) close(fd);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers),
        cmocka_unit_test(lengths),
        cmocka_unit_test(tensors),
        cmocka_unit_test(shapes),
        cmocka_unit_test(what_f16_cannot_hold),
        cmocka_unit_test(shards),
        cmocka_unit_test(packed_header_bytes),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_cleanup();
    return r;
}
