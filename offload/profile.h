/* SPDX-License-Identifier: Apache-2.0 */
/* What a machine can do, as far as a plan asks: capacities, and the rates of memory, disk, links and kernels at the engine's own sizes.
 * `penstock probe` measures one; configs/hardware/ describes machines from public figures; a quick look makes a coarse one. The `sim`
 * device prices tasks with it. Rates are per second (bytes, flops); 0 = not known: the next coarser figure is used. */
#ifndef PS_PROFILE_H
#define PS_PROFILE_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include "kernels/kern.h"
#include "offload/machine.h"
#include <stdbool.h>

/* y over x > 0, x ascending. Between points straight in log x, log y; beyond the ends the end's value. */
enum { PS_CURVE_MAX = 24 };
struct ps_curve {
    uint32_t n;
    double x[PS_CURVE_MAX], y[PS_CURVE_MAX];
};
/* *outside (may be NULL) is set when x is beyond the ends, and left alone when not. n >= 1. In curve.c. */
double ps_curve_at(const struct ps_curve *c, double x, bool *outside);

/* Linears with weights that come from memory (not from a cache): flop/s over M. */
struct ps_rate_linear {
    enum ps_dtype wtype;
    double k; /* inputs */
    struct ps_curve over_m;
};
/* Attention: decode is bytes/s of K and V over the entries of a sequence, many sequences together; prompt is flop/s (the op's declared)
 * over the tokens of a prompt. */
struct ps_rate_attention {
    enum ps_dtype kv_type;
    double d;
    struct ps_curve over_n;
};

/* Where kernels run: the host with all its threads, or the GPU. */
enum { PS_RATES_MAX = 16 };
struct ps_worker_rates {
    double mem;   /* read, bytes/s */
    double copy;  /* read and written, bytes/s, both counted */
    double flops; /* of linears no curve tells of */
    uint32_t n_linear, n_decode, n_prompt;
    struct ps_rate_linear linear[PS_RATES_MAX];
    struct ps_rate_attention decode[PS_RATES_MAX], prompt[PS_RATES_MAX];
    /* Decode attention takes so much longer for each KV head of a sequence whose slab has room for further entries, 4 KiB of each of K and V or
     * more (less in proportion): what is fetched ahead is in vain. The curves are of slabs that are full. */
    double gap_s;
    double residual; /* bytes/s of the residual stream, by linears that add to it; 0 = no more */
    double scores;   /* decode attention that keeps scores takes so much longer: 1.05; 0 = 1 */
    double
        op[PS_OP__COUNT]; /* bytes/s, of the cost that the op declares; of `call`: of a checksum */
    double task_s;        /* of a task, whatever it does: handing it over, launching it */
    double spread_s;      /* of a task that all threads take part in: handing them their parts */
    double
        wait_s; /* from the end of a task that was waited for to the start of one submitted then */
    struct ps_curve read_over,
        copy_over; /* read and copy over the number of threads; n = 0: not known; the host's alone */
};

/* A direction of a link, alone and while the other is under way. */
struct ps_way {
    double alone, beside; /* bytes/s; beside 0 = alone: they share nothing */
    /* Of the disk: how long after its last byte a transfer is known to be done, also while kernels have all cores (0 = the same); what share
     * of the other direction's transfers that are under way it waits for; bytes/s of reads while kernels have all cores (0 = alone). */
    double delay_s, busy_delay_s, behind, busy;
};

/* Disk transfers of `block` bytes: bytes/s over how many are under way. */
struct ps_rate_disk {
    double block;
    struct ps_curve over_depth;
};

struct ps_profile {
    char name[96], cpu[96], gpu_name[96]; /* cpu, gpu_name: "" = not known */
    bool measured;                        /* by a probe: else from public figures or a quick look */
    bool noisy; /* something measured was: half of its slices differ by more than 15 % */
    unsigned cores, threads;
    uint32_t sm; /* of the GPU */
    uint64_t host_mem, gpu_mem, disk_space,
        pin_max; /* bytes; 0 = not known (gpu_mem: there is none) */
    struct ps_worker_rates host, gpu;
    struct ps_way disk_read, disk_write, h2d,
        d2h; /* alone 0 = not known (disk: nothing can be said about what uses it) */
    uint32_t n_disk_read, n_disk_write;
    struct ps_rate_disk disk_read_at[PS_RATES_MAX], disk_write_at[PS_RATES_MAX];
    double io_cores; /* cores' worth of time that disk transfers at full rate take from COMPUTE */
    double disk_s;   /* of each row of a disk transfer, whatever its size */
    double copy_s;   /* of a copy over a link or within the GPU, whatever its size */
    double usd_per_hour; /* 0 = not known */
};

/* Reads and checks a profile (docs/interface.md, "Hardware profile"). -PS_EFORMAT (or the file's own error) with the field's path, what it
 * held and what was expected; *ret is then as it was. */
int ps_profile_read(const char *path, struct ps_profile *ret, struct ps_detail *dt) ps_must_check;
/* The same of a text; `path` is for the detail. */
int ps_profile_parse(const char *json, size_t len, const char *path, struct ps_profile *ret,
                     struct ps_detail *dt) ps_must_check;

/* Whether a probe of this machine made it: the same CPU model, CPUs, memory (within 2 %) and GPU ("" = none). */
bool ps_profile_is_this(const struct ps_profile *p, const struct ps_machine *m, const char *gpu);
/* Where `probe` puts this machine's and `--hardware this` looks for it: penstock/hardware.json in the user's cache folder. The caller frees
 * *ret. -ENOENT without such a folder, -ENOMEM. */
int ps_profile_default_path(char **ret, struct ps_detail *dt) ps_must_check;
#endif
