/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/arena.h"
#include "engine/base/ps_mem.h"
#include "offload/ps_numa.h"
#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

/* The base is aligned to a huge page, which makes every allocation's padding a matter of arithmetic: a
 * measured arena and a real one come to the same byte. */
#define HUGE_PAGE (UINT64_C(2) << 20)

struct ps_arena {
    uint8_t *base;
    uint64_t bytes, used, mapped; /* mapped: 0 = nothing is ours */
    bool measure;
    struct ps_arena_item *items;
    size_t n_items, cap_items;
};

struct touch {
    uint8_t *p;
    uint64_t len;
    pthread_t thread;
};

static void *touch_main(void *arg)
{
    const struct touch *t = arg;
    if (!t->len) return NULL;
#ifdef MADV_POPULATE_WRITE
    if (!madvise(t->p, t->len, MADV_POPULATE_WRITE)) return NULL;
#endif
    for (uint64_t i = 0; i < t->len; i += 4096) *(volatile uint8_t *) (t->p + i) = 0;
    return NULL;
}

/* First touch is what costs time at start (the kernel zeroes pages), so all cores share it. */
static void populate(uint8_t *p, uint64_t len)
{
    enum { MAX = 16 };
    struct touch t[MAX];
    bool started[MAX] = { false };
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n = cpus < 1 ? 1 : cpus > MAX ? MAX : (unsigned) cpus;
    uint64_t part = PS_ROUND_UP(len / n + 1, HUGE_PAGE);
    for (unsigned i = 0; i < n; i++) {
        uint64_t from = i * part < len ? i * part : len;
        t[i] = (struct touch) { .p = p + from, .len = len - from < part ? len - from : part };
        started[i] = i > 0 && !pthread_create(&t[i].thread, NULL, touch_main, &t[i]);
    }
    for (unsigned i = 0; i < n; i++)
        if (!started[i]) (void) touch_main(&t[i]);
    for (unsigned i = 0; i < n; i++)
        if (started[i]) (void) pthread_join(t[i].thread, NULL);
}

static int map(struct ps_arena *a, const struct ps_arena_cfg *cfg, struct ps_detail *dt)
{
    const uint64_t bytes = cfg->front_bytes ? cfg->front_bytes : cfg->bytes;
    uint64_t want = PS_ROUND_UP(bytes, HUGE_PAGE);
    if (want < bytes || want > SIZE_MAX - HUGE_PAGE || !bytes)
        return ps_fail(dt, -EINVAL, "an arena of %llu bytes cannot be mapped",
                       (unsigned long long) bytes);
    uint8_t *p = mmap(NULL, want + HUGE_PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return ps_fail(dt, -errno, "mapping %llu bytes of memory: %s%s", (unsigned long long) want,
                       ps_err_str(errno), ps_err_limits(errno));
    uint64_t skip = PS_ROUND_UP((uintptr_t) p, HUGE_PAGE) - (uintptr_t) p;
    if (skip) (void) munmap(p, skip);
    if (HUGE_PAGE - skip) (void) munmap(p + skip + want, HUGE_PAGE - skip);
    a->base = p + skip;
    a->mapped = want;
    (void) madvise(a->base, want, MADV_HUGEPAGE); /* a wish: refused where the kernel has none */
    (void) madvise(a->base, want, MADV_DONTFORK);
    if (cfg->numa_nodes) {
        int r = ps_numa_bind(a->base, want, cfg->numa_nodes, dt);
        if (r < 0) return r;
    } else if (cfg->near_pci) {
        (void) ps_numa_prefer(a->base, want, ps_numa_node_of("", cfg->near_pci));
    }
    if (cfg->populate) populate(a->base, bytes);
    return 0;
}

int ps_arena_open(const struct ps_arena_cfg *cfg, struct ps_arena **ret, struct ps_detail *dt)
{
    ps_auto_arena struct ps_arena *a = ps_calloc(1, sizeof *a);
    if (!a) return ps_fail(dt, -ENOMEM, "no memory for an arena's descriptor");
    if (cfg->base && !cfg->bytes) return ps_fail(dt, -EINVAL, "an arena over memory of no size");
    a->measure = cfg->measure;
    a->bytes = cfg->bytes ? cfg->bytes : UINT64_MAX;
    a->base = cfg->base;
    if (!cfg->measure && !cfg->base) {
        int r = map(a, cfg, dt);
        if (r < 0) return r;
    }
    *ret = PS_TAKE(a);
    return 0;
}

void ps_arena_close(struct ps_arena *a)
{
    if (!a) return;
    if (a->mapped) (void) munmap(a->base, a->mapped);
    free(a->items);
    free(a);
}

static struct ps_arena_item *find_item(struct ps_arena *a, const char *name)
{
    for (size_t i = 0; i < a->n_items; i++)
        if (!strcmp(a->items[i].name, name)) return &a->items[i];
    if (a->n_items == a->cap_items) {
        size_t cap = a->cap_items ? a->cap_items * 2 : 32;
        struct ps_arena_item *more = ps_calloc(cap, sizeof *more);
        if (!more) return NULL;
        if (a->n_items) memcpy(more, a->items, a->n_items * sizeof *more);
        free(a->items);
        a->items = more;
        a->cap_items = cap;
    }
    a->items[a->n_items] = (struct ps_arena_item) { .name = name };
    return &a->items[a->n_items++];
}

int ps_arena_alloc(struct ps_arena *a, const char *name, uint64_t n, uint64_t size, size_t align,
                   void **ret, struct ps_detail *dt)
{
    assert(align && !(align & (align - 1)) && align <= HUGE_PAGE);
    uint64_t len, at = 0, end;
    bool over =
        __builtin_mul_overflow(n, size, &len) || __builtin_add_overflow(a->used, align - 1, &at);
    at &= ~(uint64_t) (align - 1);
    if (over || __builtin_add_overflow(at, len, &end) || end > a->bytes)
        return ps_fail(dt, -PS_EBUDGET,
                       "%s needs %llu x %llu bytes, but %llu of the budget's %llu bytes are left",
                       name, (unsigned long long) n, (unsigned long long) size,
                       (unsigned long long) (a->bytes - a->used), (unsigned long long) a->bytes);
    struct ps_arena_item *it = find_item(a, name);
    if (!it) return ps_fail(dt, -ENOMEM, "no memory for the arena's item \"%s\"", name);
    it->bytes += end - a->used; /* with its padding, so that the items' sum is what is used */
    a->used = end;
    *ret = a->measure ? NULL : a->base + at;
    return 0;
}

uint64_t ps_arena_used(const struct ps_arena *a) { return a->used; }
void *ps_arena_base(const struct ps_arena *a) { return a->base; }
const struct ps_arena_item *ps_arena_item(const struct ps_arena *a, size_t i)
{
    return i < a->n_items ? &a->items[i] : NULL;
}
