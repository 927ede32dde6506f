/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/uring_probe.h"
#include "offload/machine.h"
#include "ps_config.h"
#include <sys/mman.h>

static const char *reason(int err, const char *disabled)
{
    if (err == -EPERM && *disabled > '0') return "kernel.io_uring_disabled forbids it";
    if (err == -EPERM) return "the container's seccomp profile forbids it";
    if (err == -ENOSYS) return "the kernel has none, or the container's seccomp profile hides it";
    if (err == -ENOMEM) return "the memlock limit (ulimit -l) is too small for its ring";
    return "the kernel refuses it";
}

int ps_uring_refused(struct ps_detail *dt, int err)
{
    char disabled[16] = "";
    (void) !ps_machine_text("", "/proc/sys/kernel/io_uring_disabled", disabled, sizeof disabled);
    return ps_fail(dt, err, "io_uring cannot be used: %s (%s): %s", ps_err_str(err),
                   ps_err_name(err), reason(err, disabled));
}

#if HAVE_URING
#include <liburing.h>

static int one_nop(struct io_uring *ring)
{
    struct io_uring_sqe *e = io_uring_get_sqe(ring);
    struct io_uring_cqe *c;
    if (!e) return -EIO;
    io_uring_prep_nop(e);
    int r = io_uring_submit_and_wait(ring, 1);
    if (r >= 0) r = io_uring_peek_cqe(ring, &c);
    if (r < 0) return r;
    io_uring_cqe_seen(ring, c);
    return 0;
}

int ps_uring_probe(bool *ret_fixed, struct ps_detail *dt)
{
    const size_t len = (size_t) 64 << 20;
    struct io_uring ring;
    int r = io_uring_queue_init(8, &ring, 0);
    if (r < 0) return ps_uring_refused(dt, r);
    const int none = -1;
    r = one_nop(&ring);
    if (r >= 0) r = io_uring_register_files(&ring, &none, 1);
    if (r < 0) {
        io_uring_queue_exit(&ring);
        return ps_uring_refused(dt, r);
    }
    bool fixed = false;
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED) {
        struct iovec v = { p, len };
        fixed = io_uring_register_buffers(&ring, &v, 1) >= 0;
        if (fixed) (void) io_uring_unregister_buffers(&ring);
        (void) munmap(p, len);
    }
    io_uring_queue_exit(&ring);
    *ret_fixed = fixed;
    return 0;
}
#else
int ps_uring_probe(bool *ret_fixed, struct ps_detail *dt)
{
    return ps_fail(dt, -PS_EUNSUPPORTED, "this build has no io_uring (liburing was missing)");
}
#endif
