/* SPDX-License-Identifier: Apache-2.0 */
/* A buffered writer to a file descriptor with what JSON needs. Errors stick: calls after the first do nothing, and whoever
 * cares asks at the end of a record. The file's length and the records in it are the caller's business. */
#ifndef PS_JOUT_H
#define PS_JOUT_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

struct ps_jout {
    int fd; /* written at `at` with pwrite */
    int err;
    char *buf;
    size_t n, cap;
    uint64_t at;    /* file offset of buf[0] */
    uint64_t flips; /* flushes so far */
};

/* Appends from offset `at` on. The descriptor stays the caller's. */
int ps_jout_init(struct ps_jout *o, int fd, uint64_t at, size_t buf_bytes) ps_must_check;
void ps_jout_done(struct ps_jout *o); /* does not flush */
int ps_jout_flush(struct ps_jout *o); /* the sticky error, if any */
uint64_t ps_jout_tell(
    const struct ps_jout *o); /* bytes put so far, counted from the file's start */
/* Forgets what was put behind `to` (a record that failed half-way), cuts the file there, clears the error. */
int ps_jout_rewind(struct ps_jout *o, uint64_t to) ps_must_check;

void ps_jout_bytes(struct ps_jout *o, const void *p, size_t n);
void ps_jout_text(struct ps_jout *o, const char *text); /* as it is */
void ps_jout_u64(struct ps_jout *o, uint64_t v);
void ps_jout_i64(struct ps_jout *o, int64_t v);
/* The shortest text that reads back as the same f32 (or f64); null if not finite. */
void ps_jout_f32(struct ps_jout *o, float v);
void ps_jout_f64(struct ps_jout *o, double v);
/* The inside of a JSON string: escapes what must be; bytes that are not UTF-8 become U+FFFD. */
void ps_jout_escaped(struct ps_jout *o, const char *s, size_t len);
void ps_jout_string(struct ps_jout *o, const char *s, size_t len); /* with quotes */
/* "key": before a value, with a comma in front unless first; *first becomes false. */
void ps_jout_key(struct ps_jout *o, bool *first, const char *key);
#endif
