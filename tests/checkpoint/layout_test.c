/* SPDX-License-Identifier: Apache-2.0 */
/* Where tensors and chunks are put, over all published shapes, some odd ones, and every type: checked against the format's rules,
 * not against the code that made them. And the models that come with the project, packed from both kinds of file. */
#include "engine/checkpoint/inspect.h"
#include "engine/checkpoint/pack_file.h"
#include "ps_cmocka.h"
#include "tiny_model.h"
#include <limits.h>

static struct ps_detail dt;

static uint64_t pad(uint64_t n) { return (n + 4095) / 4096 * 4096; }

static void check_layout(const struct ps_shape *s, enum ps_dtype dtype, bool odd)
{
    ps_auto_pack struct ps_packed *p = calloc(1, sizeof *p);
    assert_ok_dt(ps_pack_layout(s, dtype, p, &dt), &dt);
    uint64_t at = 0, end = 0;
    uint32_t tensor = 0, row = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        assert_int_equal(p->tensors[i].off, at);
        at += pad(p->tensors[i].bytes);
    }
    assert_int_equal(at, p->file_bytes);
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        const struct ps_chunk *c = &p->chunks[i];
        const struct ps_packed_tensor *t = &p->tensors[tensor];
        assert_int_equal(c->off, end);
        assert_true(c->len > 0 && c->len % 4096 == 0 && c->len <= p->chunk_bytes);
        if (!odd) assert_true(c->len <= PS_CHUNK_BYTES);
        assert_int_equal(c->first_tensor, tensor);
        assert_int_equal(c->group, t->t.group);
        if (!row) assert_int_equal(t->first_chunk, i);
        end += c->len;
        if (c->n_tensors > 1) {
            assert_int_equal(row, 0);
            for (uint32_t k = 0; k < c->n_tensors; k++)
                assert_int_equal(p->tensors[tensor + k].t.group, c->group);
            tensor += c->n_tensors;
        } else {
            assert_int_equal(c->row0, row);
            assert_int_equal(c->off, t->off + row * (t->bytes / t->t.rows));
            row += c->rows;
            assert_true(row <= t->t.rows);
            if (row == t->t.rows) {
                assert_int_equal(t->first_chunk + t->n_chunks - 1, i);
                tensor++;
                row = 0;
            } else if (!odd) {
                uint64_t rb = t->bytes / t->t.rows;
                assert_int_equal(row % (rb * PS_LINEAR_UNIT <= PS_CHUNK_BYTES ? PS_LINEAR_UNIT
                                                                              : PS_LINEAR_UNIT / 2),
                                 0);
            }
        }
        assert_int_equal(end, tensor == p->n_tensors ? at : row ? end : p->tensors[tensor].off);
    }
    assert_int_equal(tensor, p->n_tensors);
    assert_int_equal(end, at);
    struct ps_pack_head h;
    assert_ok_dt(ps_pack_head_make(p, UINT64_MAX, &h, &dt), &dt);
    assert_int_equal(h.len % 4096, 0);
    ps_pack_put_sum(&h, p->n_chunks - 1, 0x0123456789abcdefu);
    /* Complete: the last tensor or its padding stands before the end. */
    size_t n = h.len;
    while (h.text[n - 1] == ' ') n--;
    assert_memory_equal(h.text + n - 3, "]}}", 3);
    ps_pack_head_done(&h);
}

static void published_shapes(void **state)
{
    static const char *const names[] = {
        "opt-125m",  "opt-350m",    "opt-1.3b",    "opt-2.7b",     "opt-6.7b",  "opt-13b",
        "opt-30b",   "opt-66b",     "opt-175b",    "llama-7b",     "llama-13b", "llama-30b",
        "llama-65b", "llama-2-70b", "llama-3-70b", "gpt-neox-20b",
    };
    const char *root = getenv("PS_SOURCE_ROOT");
    if (!root) skip();
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
        for (int t = 0; t < PS_DTYPE__COUNT; t++) {
            char path[PATH_MAX];
            struct ps_shape s;
            (void) snprintf(path, sizeof path, "%s/configs/models/%s.json", root, names[i]);
            assert_ok_dt(ps_shape_read(path, &s, &dt), &dt);
            check_layout(&s, (enum ps_dtype) t, false);
        }
}

static void odd_shapes(void **state)
{
    static const uint32_t hidden[] = { 1, 3, 48, 80, 1000, 3001, 4100, 65535 };
    for (size_t i = 0; i < PS_ARRAY_LEN(hidden); i++)
        for (int t = 0; t < PS_DTYPE__COUNT; t++) {
            char json[512];
            struct ps_shape s;
            (void) snprintf(json, sizeof json,
                            "{\"model_type\":\"opt\",\"num_hidden_layers\":2,\"hidden_size\":%u,"
                            "\"ffn_dim\":777,\"num_attention_heads\":1,\"vocab_size\":9999,"
                            "\"max_position_embeddings\":5,\"word_embed_proj_dim\":4321}",
                            hidden[i]);
            assert_ok_dt(ps_shape_parse(json, strlen(json), "c", &s, &dt), &dt);
            check_layout(&s, (enum ps_dtype) t, true);
        }
}

static void convert_to(const char *src, char *dst, size_t cap)
{
    tiny_path(dst, cap, tiny_folder(), "p");
    assert_ok_dt(ps_pack_convert(src, dst, NULL, &dt), &dt);
    json_t *j;
    assert_ok_dt(ps_inspect_model(dst, true, &j, &dt), &dt);
    assert_string_equal(json_string_value(json_object_get(j, "checksums")), "ok");
    json_decref(j);
}

static void model_of_the_project(void **state)
{
    char src[PATH_MAX], dst[PATH_MAX];
    const char *root = getenv("PS_SOURCE_ROOT");
    if (!root) skip();
    tiny_path(src, sizeof src, root, "models/demo-opt");
    if (!tiny_exists(src, "config.json")) skip();
    convert_to(src, dst, sizeof dst);
    assert_true(tiny_exists(dst, "vocab.json") && tiny_exists(dst, "merges.txt"));
}

/* The same weights as safetensors and as two .bin shards give the same chunks. */
static void shared_models(void **state)
{
    static const char *const names[] = { "tiny-opt", "tiny-opt-bin", "tiny-opt-post" };
    ps_auto_pack struct ps_packed *a = NULL, *b = NULL;
    char dst[3][PATH_MAX];
    const char *root = getenv("PS_SOURCE_ROOT");
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
        char src[PATH_MAX], rel[200];
        (void) snprintf(rel, sizeof rel, "../shared/data/models/%s", names[i]);
        if (!root || !tiny_exists(root, rel)) skip();
        tiny_path(src, sizeof src, root, rel);
        convert_to(src, dst[i], sizeof dst[i]);
    }
    assert_ok_dt(ps_pack_open(dst[0], &a, &dt), &dt);
    assert_ok_dt(ps_pack_open(dst[1], &b, &dt), &dt);
    assert_int_equal(a->n_chunks, b->n_chunks);
    for (uint32_t i = 0; i < a->n_chunks; i++) assert_true(a->chunks[i].xxh3 == b->chunks[i].xxh3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_shapes),
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(model_of_the_project),
        cmocka_unit_test(shared_models),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_cleanup();
    return r;
}
