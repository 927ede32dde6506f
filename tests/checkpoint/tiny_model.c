/* SPDX-License-Identifier: Apache-2.0 */
#include "tiny_model.h"
#include "engine/checkpoint/pack.h"
#include "ps_cmocka.h"
#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>

enum { FOLDERS_MAX = 256 };
static char folders[FOLDERS_MAX][200];
static int n_folders;

const char *tiny_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    assert_true(n_folders < FOLDERS_MAX);
    char *f = folders[n_folders++];
    (void) snprintf(f, sizeof folders[0], "%s/ps-ckpt-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(f));
    return f;
}

static int rm(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

void tiny_cleanup(void)
{
    while (n_folders) (void) nftw(folders[--n_folders], rm, 16, FTW_DEPTH | FTW_PHYS);
}

void tiny_path(char *buf, size_t cap, const char *folder, const char *name)
{
    int n = snprintf(buf, cap, "%s/%s", folder, name);
    assert_true(n > 0 && (size_t) n < cap);
}

void tiny_write(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[PATH_MAX];
    tiny_path(path, sizeof path, folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    if (n) assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void tiny_write_text(const char *folder, const char *name, const char *text)
{
    tiny_write(folder, name, text, strlen(text));
}

char *tiny_read(const char *folder, const char *name, size_t *ret_n)
{
    char path[PATH_MAX];
    tiny_path(path, sizeof path, folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s is not there", path);
    (void) fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *buf = calloc((size_t) n + 1, 1);
    assert_non_null(buf);
    assert_int_equal(fread(buf, 1, (size_t) n, f), n);
    (void) fclose(f);
    if (ret_n) *ret_n = (size_t) n;
    return buf;
}

bool tiny_exists(const char *folder, const char *name)
{
    char path[PATH_MAX];
    tiny_path(path, sizeof path, folder, name);
    return access(path, F_OK) == 0;
}

unsigned tiny_count(const char *folder)
{
    unsigned n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    (void) closedir(d);
    return n;
}

float tiny_value(const char *name, uint64_t i)
{
    uint32_t h = 17;
    for (; *name; name++) h = h * 31 + (unsigned char) *name;
    h = (h + (uint32_t) i) * 2654435761u;
    return (float) ((int) (h >> 25) - 64) / 64; /* 7 bits: bf16 holds them too */
}

struct piece {
    char name[128];
    const struct ps_tensor *t;
    uint64_t from, to;
};

static void put_values(FILE *f, const struct ps_tensor *t, const struct tiny_opt *o)
{
    uint64_t n = (uint64_t) t->rows * t->cols;
    for (uint64_t i = 0; i < n; i++) {
        unsigned char b[4];
        float v = tiny_value(t->name, i);
        if (o->bad_name && !strcmp(o->bad_name, t->name) && i == o->bad_index) v = o->bad_value;
        ps_dtype_put(o->dtype, memset(b, 0, 4), 0, v);
        assert_int_equal(fwrite(b, ps_dtype_bytes(o->dtype), 1, f), 1);
    }
}

/* Tensors from, from + step, ... of the list, in the order of their names reversed (not ours). */
static void put_file(const char *folder, const char *name, const struct ps_tensor *list, size_t n,
                     size_t from, size_t step, const struct tiny_opt *o)
{
    static const char *const dtypes[] = { "F32", "F16", "BF16" };
    struct piece *p = calloc(n + 1, sizeof *p);
    char path[PATH_MAX], *head = calloc(n + 4, 300);
    size_t m = 0, w = 0;
    uint64_t at = 0;
    w += (size_t) sprintf(head, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t k = n; k-- > 0;) {
        const struct ps_tensor *t = &list[k];
        if (k % step != from || (o->leave_out && !strcmp(t->name, o->leave_out))) continue;
        const char *rest = strncmp(t->name, "model.", 6) ? t->name : t->name + 6;
        bool plain = !o->prefix || rest == t->name;
        (void) snprintf(p[m].name, sizeof p[m].name, "%s%s", plain ? "" : o->prefix,
                        plain ? t->name : rest);
        p[m].t = t;
        p[m].from = at;
        at += (uint64_t) t->rows * t->cols * ps_dtype_bytes(o->dtype);
        p[m].to = at;
        char dims[40];
        (void) snprintf(dims, sizeof dims, t->vector ? "%u" : "%u,%u",
                        t->vector ? t->cols : t->rows, t->cols);
        w += (size_t) sprintf(
            head + w, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
            p[m].name, dtypes[o->dtype], dims, (unsigned long long) p[m].from,
            (unsigned long long) p[m].to);
        m++;
    }
    if (o->extra && from == 0) {
        head[w++] = ',';
        w += (size_t) sprintf(head + w, "%s", o->extra);
    }
    head[w++] = '}';
    tiny_path(path, sizeof path, folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    uint64_t len = w;
    assert_int_equal(fwrite(&len, 8, 1, f), 1);
    assert_int_equal(fwrite(head, 1, w, f), w);
    for (size_t i = 0; i < m; i++) put_values(f, p[i].t, o);
    assert_int_equal(fclose(f), 0);
    free(p);
    free(head);
}

static void put_index(const char *folder, const struct ps_tensor *list, size_t n, int shards)
{
    char *text = calloc(n + 1, 220);
    size_t w = (size_t) sprintf(text, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    for (size_t i = 0; i < n; i++)
        w += (size_t) sprintf(text + w, "%s\"%s\":\"model-%05d-of-%05d.safetensors\"", i ? "," : "",
                              list[i].name, (int) (i % (size_t) shards) + 1, shards);
    (void) sprintf(text + w, "}}");
    tiny_write_text(folder, "model.safetensors.index.json", text);
    free(text);
}

void tiny_make(const char *folder, const struct tiny_opt *o, struct ps_shape *ret)
{
    char config[1024];
    struct ps_detail dt;
    struct ps_tensor *list;
    size_t n;
    (void) snprintf(config, sizeof config, TINY_CONFIG, o->config_more ? o->config_more : "");
    tiny_write_text(folder, "config.json", config);
    assert_ok_dt(ps_shape_read(folder, ret, &dt), &dt);
    assert_ok_dt(ps_model_tensors(ret, &list, &n, &dt), &dt);
    if (o->shards > 1) {
        for (int s = 0; s < o->shards; s++) {
            char name[64];
            (void) snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", s + 1, o->shards);
            put_file(folder, name, list, n, (size_t) s, (size_t) o->shards, o);
        }
        put_index(folder, list, n, o->shards);
    } else {
        put_file(folder, "model.safetensors", list, n, 0, 1, o);
    }
    free(list);
}

void tiny_check(const char *folder, enum ps_dtype dtype)
{
    struct ps_detail dt;
    ps_auto_pack struct ps_packed *p = NULL;
    assert_true(ps_pack_is(folder));
    assert_ok_dt(ps_pack_open(folder, &p, &dt), &dt);
    assert_int_equal(p->dtype, dtype);
    assert_int_equal(p->file_bytes % PS_PACK_ALIGN, 0);
    size_t n;
    char *file = tiny_read(folder, "weights-00001-of-00001.safetensors", &n);
    assert_int_equal(n, p->file_bytes);
    uint64_t at = p->chunks[0].off;
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        assert_int_equal(p->chunks[i].off, at);
        assert_ok_dt(ps_pack_verify(p, i, file + at, &dt), &dt);
        at += p->chunks[i].len;
    }
    assert_int_equal(at, n);
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct ps_packed_tensor *t = &p->tensors[i];
        assert_int_equal(t->off % PS_PACK_ALIGN, 0);
        for (uint64_t k = 0; k < (uint64_t) t->t.rows * t->t.cols; k++)
            if (!(ps_dtype_get(dtype, file + t->off, k) == tiny_value(t->t.name, k)))
                fail_msg("%s[%llu]", t->t.name, (unsigned long long) k);
        assert_int_equal(p->chunks[t->first_chunk].group, t->t.group);
    }
    file[p->chunks[1].off + 5] ^= 4;
    assert_err(ps_pack_verify(p, 1, file + p->chunks[1].off, &dt), PS_ECORRUPT);
    assert_says(&dt, p->tensors[p->chunks[1].first_tensor].t.name);
    assert_says(&dt, p->path);
    free(file);
}

void tiny_safetensors(const char *folder, const char *name, const char *header, size_t n)
{
    size_t h = strlen(header);
    char *buf = calloc(8 + h + n + 1, 1);
    uint64_t len = h;
    memcpy(buf, &len, 8);
    memcpy(buf + 8, header, h);
    tiny_write(folder, name, buf, 8 + h + n);
    free(buf);
}
