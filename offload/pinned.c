/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/pinned.h"
#include "engine/base/ps_err.h"
#include "engine/base/ps_mem.h"
#include "engine/base/ps_util.h"
#include <string.h>

enum { PAGE = 4096 };

struct chunk {
    uint8_t *p;
    uint64_t bytes;
};
struct ps_pinned {
    const struct ps_cuda_api *api;
    uint64_t bytes;
    size_t n;
    struct chunk chunk[]; /* by address */
};

/* The first chunk that ends behind `at`. */
static size_t find(const struct ps_pinned *p, const uint8_t *at)
{
    size_t lo = 0, hi = p->n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (p->chunk[mid].p + p->chunk[mid].bytes > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static int pin(struct ps_pinned *p, uint8_t *at, uint64_t bytes)
{
    int r = p->api->pin(at, bytes);
    if (r < 0) return r;
    const size_t i = find(p, at);
    memmove(&p->chunk[i + 1], &p->chunk[i], (p->n - i) * sizeof *p->chunk);
    p->chunk[i] = (struct chunk) { at, bytes };
    p->n++;
    p->bytes += bytes;
    return 0;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* What is refused is tried again by halves, down to the least: that comes close to a limit. */
static int pin_range(struct ps_pinned *p, uint8_t *at, uint64_t bytes, uint64_t *chunk)
{
    int r = 0;
    while (bytes && !r) {
        const uint64_t len = least(bytes, *chunk);
        r = pin(p, at, len);
        if (r < 0 && len > PS_PINNED_LEAST) {
            *chunk = PS_ROUND_UP(len / 2, (uint64_t) PAGE);
            r = 0;
            continue;
        }
        at += len;
        bytes -= len;
    }
    return r;
}

static void stopped(const struct ps_pinned *p, uint64_t wanted, const char *by,
                    struct ps_detail *why)
{
    (void) ps_fail(why, -PS_EPIN, "%.1f of %.1f MiB of host memory are pinned for the GPU: %s",
                   (double) p->bytes / (1 << 20), (double) wanted / (1 << 20), by);
}

static uint64_t pages(const struct ps_pinned_range *r)
{
    return PS_ROUND_UP(r->bytes, (uint64_t) PAGE);
}

int ps_pinned_open(const struct ps_cuda_api *api, const struct ps_pinned_range *r, size_t n,
                   uint64_t most_bytes, struct ps_pinned **ret, struct ps_detail *why)
{
    uint64_t wanted = 0, chunk = PS_PINNED_CHUNK;
    for (size_t i = 0; i < n; i++) {
        if ((uintptr_t) r[i].p % PAGE)
            return ps_fail(why, -EINVAL, "memory to be pinned must begin with a page");
        wanted += pages(&r[i]);
    }
    /* None is smaller than half of the least, but the last one of a range. */
    const size_t room = n + 2 * wanted / PS_PINNED_LEAST;
    struct ps_pinned *p = ps_calloc(1, sizeof *p + room * sizeof *p->chunk);
    if (!p) return ps_fail(why, -ENOMEM, "no memory for a table of what is pinned");
    p->api = api;
    why->text[0] = 0;
    for (size_t i = 0; i < n && !why->text[0]; i++) {
        const uint64_t may = least(pages(&r[i]), (most_bytes - p->bytes) / PAGE * PAGE);
        if (pin_range(p, r[i].p, may, &chunk) < 0)
            stopped(p, wanted, api->error(), why);
        else if (may < pages(&r[i]))
            stopped(p, wanted, "no more may be", why);
    }
    *ret = p;
    return 0;
}

void ps_pinned_close(struct ps_pinned *p)
{
    if (!p) return;
    for (size_t i = p->n; i-- > 0;) (void) p->api->unpin(p->chunk[i].p);
    free(p);
}

uint64_t ps_pinned_bytes(const struct ps_pinned *p) { return p->bytes; }

uint64_t ps_pinned_run(const struct ps_pinned *p, const void *at, uint64_t bytes)
{
    const uint8_t *a = at;
    const size_t i = find(p, a);
    if (i == p->n || a < p->chunk[i].p) return 0;
    return least(bytes, (uint64_t) (p->chunk[i].p + p->chunk[i].bytes - a));
}
