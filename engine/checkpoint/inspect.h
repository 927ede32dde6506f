/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is, told to a person or a program: a packed folder, a Hugging Face folder, a config alone or a weights file alone. */
#ifndef PS_INSPECT_H
#define PS_INSPECT_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include <jansson.h>

/* The report, an object:
 *   path, kind ("packed", "huggingface", "config", "weights"), format ("safetensors", "PyTorch"), files [{path, bytes}]
 *   model {name, family, layers, hidden, ffn, heads, kv_heads, head_dim, vocab, embed, positions, norm ("before", "after"),
 *          final_norm, tied, bias, activation, bos, eos, pad}
 *   parameters, dtype, bytes {weights, stem, layer, file}, tensors, chunks, longest_chunk
 *   kv_bytes_per_token {f16, f32}: of all layers
 *   tokenizer: what there is ("vocab.json + merges.txt", "tokenizer.json")
 *   checksums ("not checked", "ok", "damaged"; null where there are none), damaged [texts], hash, warnings [texts]
 * What is not known or does not apply is null. `verify` reads all the weights of a packed model; damage is told in the report and is
 * no error of the call. Errors are what makes a model unusable. The caller decrefs *ret. */
int ps_inspect_model(const char *path, bool verify, json_t **ret,
                     struct ps_detail *dt) ps_must_check;
/* The report as lines of text; the caller frees it. NULL when out of memory. */
char *ps_inspect_text(const json_t *report);
#endif
