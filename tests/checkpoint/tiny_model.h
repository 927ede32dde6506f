/* SPDX-License-Identifier: Apache-2.0 */
/* Makes small checkpoints for tests, and small edits to them. Folders are in a fresh temporary folder, removed at the end. */
#ifndef PS_TINY_MODEL_H
#define PS_TINY_MODEL_H
#include "engine/model/model.h"

#define TINY_CONFIG                                                                                \
    "{\"model_type\":\"opt\",\"num_hidden_layers\":2,\"hidden_size\":48,\"ffn_dim\":96,"           \
    "\"num_attention_heads\":4,\"vocab_size\":131,\"max_position_embeddings\":40,\"torch_dtype\":" \
    "\"float16\"%s}"

/* A new folder under $TMPDIR; tiny_cleanup() removes all of them. */
const char *tiny_folder(void);
void tiny_cleanup(void);
void tiny_path(char *buf, size_t cap, const char *folder, const char *name);
void tiny_write(const char *folder, const char *name, const void *bytes, size_t n);
void tiny_write_text(const char *folder, const char *name, const char *text);
/* The whole file, NUL-terminated; the test frees it. */
char *tiny_read(const char *folder, const char *name, size_t *ret_n);
bool tiny_exists(const char *folder, const char *name);
/* Names in a folder other than . and .. */
unsigned tiny_count(const char *folder);

/* The value of element i of a tensor: small, exact in every type. */
float tiny_value(const char *name, uint64_t i);

struct tiny_opt {
    const char *config_more; /* further fields, beginning with a comma; NULL = none */
    enum ps_dtype dtype;
    const char *prefix;    /* instead of "model." before "decoder."; NULL = as it is */
    const char *leave_out; /* a tensor that is missing */
    const char
        *extra; /* another tensor's entry, without bytes: "\"x\":{...}" with offsets %llu,%llu */
    const char *bad_name; /* this tensor's element bad_index is bad_value */
    uint64_t bad_index;
    float bad_value;
    int shards; /* > 1: so many, with an index */
};
/* config.json and model.safetensors (or shards) in `folder`. */
void tiny_make(const char *folder, const struct tiny_opt *o, struct ps_shape *ret);
/* Opens a packed folder: its chunks tile the file and verify, its elements are tiny_value()s. */
void tiny_check(const char *packed, enum ps_dtype dtype);
/* A safetensors file of this header text (padded by nothing) and n zero bytes. */
void tiny_safetensors(const char *folder, const char *name, const char *header, size_t n);
#endif
