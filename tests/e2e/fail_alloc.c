/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program, it makes one of its allocations fail, whoever makes it: the libraries, too.
 * FAIL_ALLOC=N:FILE: the N-th from the start; FILE is made when it is reached. FAIL_ALLOC=N+:FILE: all from there on. */
#include "engine/base/ps_util.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* glibc's own, under other names. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static atomic_ulong count;
static unsigned long at;
static bool on; /* all that follow, too */
static const char *reached;

__attribute__((constructor)) static void read_wish(void)
{
    const char *wish = getenv("FAIL_ALLOC");
    char *end;
    if (!wish) return;
    at = strtoul(wish, &end, 10);
    on = *end == '+';
    reached = end + on + 1;
    atomic_store(&count, 0);
}

static bool fails(void)
{
    if (!at) return false;
    const unsigned long n = atomic_fetch_add(&count, 1) + 1;
    if (n == at) (void) close(open(reached, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (n != at && !(on && n > at)) return false;
    errno = ENOMEM;
    return true;
}

EXPORT void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
EXPORT void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
EXPORT void *realloc(void *p, size_t n) { return fails() ? NULL : __libc_realloc(p, n); }
EXPORT void *aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __libc_memalign(align, n);
}
EXPORT int posix_memalign(void **ret, size_t align, size_t n)
{
    void *p = aligned_alloc(align, n);
    if (!p) return ENOMEM;
    *ret = p;
    return 0;
}
