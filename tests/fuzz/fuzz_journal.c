/* SPDX-License-Identifier: Apache-2.0 */
/* Our own files read back after whatever happened to them: a journal's lines, and a results file. */
#include "engine/job/journal.h"
#include "engine/job/results.h"
#include <string.h>
#include <sys/mman.h>

static void lines(const uint8_t *data, size_t size)
{
    struct ps_journal_run run;
    struct ps_journal j = { .fd = -1 };
    char *copy = malloc(size + 1);
    if (!copy) return;
    memcpy(copy, data, size);
    for (char *s = copy, *end = copy + size; s < end;) {
        char *nl = memchr(s, '\n', (size_t) (end - s));
        size_t n = nl ? (size_t) (nl - s) : (size_t) (end - s);
        if (ps_journal_line(s, n, &j, &run) < 0 || j.ident.n > PS_IDENT_MAX) abort();
        s += n + 1;
    }
    free(copy);
}

static void results(const uint8_t *data, size_t size)
{
    struct ps_results *rs = malloc(sizeof *rs);
    struct ps_result rec;
    uint64_t at = 0;
    int fd = memfd_create("results", MFD_CLOEXEC);
    if (fd < 0 || !rs || write(fd, data, size) != (ssize_t) size) abort();
    if (ps_results_open(fd, rs) == 0) {
        while (ps_results_next(rs, &rec) > 0) {
            if (rec.off != at || !rec.len || rec.custom_id_len >= PS_RESULT_HEAD) abort();
            at += rec.len;
        }
        if (at > size) abort();
    }
    ps_results_close(rs);
    free(rs);
    (void) close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lines(data, size);
    results(data, size);
    return 0;
}
