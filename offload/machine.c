/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/machine.h"
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/utsname.h>

enum { TEXT = 32768, PATH = 1024, LEVELS = 64 };

int ps_machine_text(const char *root, const char *path, char *ret, size_t cap)
{
    char full[2 * PATH];
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int) sizeof full) return -ENAMETOOLONG;
    ps_auto_close int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    size_t n = 0;
    for (ssize_t r; n + 1 < cap && (r = read(fd, ret + n, cap - 1 - n)) != 0;) {
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return -errno;
        n += (size_t) r;
    }
    if (n && ret[n - 1] == '\n') n--;
    ret[n] = 0;
    return 0;
}

static bool number(const char *root, const char *dir, const char *file, uint64_t *ret)
{
    char path[PATH], text[64], *end;
    if (snprintf(path, sizeof path, "%s/%s", dir, file) >= (int) sizeof path) return false;
    if (ps_machine_text(root, path, text, sizeof text) < 0 || *text < '0' || *text > '9')
        return false; /* "max" is no number */
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return !errno;
}

/* The number after `key` at the start of a line. */
static bool field(const char *text, const char *key, uint64_t *ret)
{
    const size_t n = strlen(key);
    for (const char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (!strncmp(p, key, n)) {
            *ret = strtoull(p + n, NULL, 10);
            return true;
        }
    return false;
}

/* ---- control groups: where one is mounted, and this process's place in it */

struct group {
    char mount[PATH], dir[2 * PATH]; /* dir starts with mount */
    int version;
};

static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ',') && (p[n] == ',' || !p[n])) return true;
    return false;
}

/* mountinfo: id parent dev root mountpoint options ... - type source super-options */
static bool find_mount(const char *root, const char *controller, int version, char mount[PATH],
                       char mroot[PATH])
{
    static _Thread_local char text[TEXT];
    if (ps_machine_text(root, "/proc/self/mountinfo", text, sizeof text) < 0) return false;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char type[32], super[512];
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(tail, " - %31s %*s %511s", type, super) != 2) continue;
        bool fits = version == 2 ? !strcmp(type, "cgroup2")
                                 : !strcmp(type, "cgroup") && has_word(super, controller);
        if (fits && sscanf(line, "%*s %*s %*s %1023s %1023s", mroot, mount) == 2) return true;
    }
    return false;
}

/* /proc/self/cgroup: id:controllers:path, with an empty list for version 2. */
static bool find_place(const char *root, const char *controller, int version, char place[PATH])
{
    char text[4096];
    if (ps_machine_text(root, "/proc/self/cgroup", text, sizeof text) < 0) return false;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        if (version == 2 ? list[1] != 0 : !has_word(list + 1, controller)) continue;
        return snprintf(place, PATH, "%s", path) < PATH;
    }
    return false;
}

static bool find_group(const char *root, const char *controller, int version, struct group *ret)
{
    char place[PATH], mroot[PATH], *rel = place;
    if (!find_mount(root, controller, version, ret->mount, mroot) ||
        !find_place(root, controller, version, place))
        return false;
    /* Inside a container the mount may show a part of the tree only, named by its root. */
    size_t n = strlen(mroot);
    if (strcmp(mroot, "/") != 0 && !strncmp(place, mroot, n) && (place[n] == '/' || !place[n]))
        rel += n;
    if (!strcmp(rel, "/") || strstr(rel, "/..")) rel = place + strlen(place);
    ret->version = version;
    return snprintf(ret->dir, sizeof ret->dir, "%s%s", ret->mount, rel) < (int) sizeof ret->dir;
}

/* One step towards the root of the hierarchy; false at its mount. */
static bool up(struct group *g)
{
    size_t least = strlen(g->mount);
    char *slash = strrchr(g->dir, '/');
    if (strlen(g->dir) <= least || !slash || (size_t) (slash - g->dir) < least) return false;
    *slash = 0;
    return true;
}

/* What a group holds that the kernel would give back rather than fail, about what MemAvailable counts: file pages, but for those in use that
 * a process may have mapped (its code). A job that goes on after a kill finds its own files there. */
static uint64_t reclaimable(const char *root, const struct group *g)
{
    char path[3 * PATH], text[8192];
    uint64_t idle = 0, used = 0, mapped = 0;
    if (snprintf(path, sizeof path, "%s/memory.stat", g->dir) >= (int) sizeof path) return 0;
    if (ps_machine_text(root, path, text, sizeof text) < 0) return 0;
    (void) field(text, g->version == 2 ? "inactive_file " : "total_inactive_file ", &idle);
    (void) field(text, g->version == 2 ? "active_file " : "total_active_file ", &used);
    (void) field(text, g->version == 2 ? "file_mapped " : "total_mapped_file ", &mapped);
    return idle + (used > mapped ? used - mapped : 0);
}

static void memory_limits(const char *root, struct group *g, struct ps_machine *m)
{
    const bool v2 = g->version == 2;
    for (int level = 0; level < LEVELS; level++) {
        uint64_t limit, used = 0;
        bool set = number(root, g->dir, v2 ? "memory.max" : "memory.limit_in_bytes", &limit);
        /* Version 1 writes "none" as a huge number. */
        if (set && (!m->mem_total || limit < m->mem_total)) {
            uint64_t back = reclaimable(root, g), left = limit;
            if (number(root, g->dir, v2 ? "memory.current" : "memory.usage_in_bytes", &used)) {
                used = used > back ? used - back : 0;
                left = limit > used ? limit - used : 0;
            }
            if (!m->mem_limit || limit < m->mem_limit) {
                m->mem_limit = limit;
                m->cgroup_version = g->version;
            }
            if (left < m->mem_available) m->mem_available = left;
        }
        if (!up(g)) break;
    }
}

static void cpu_limits(const char *root, struct group *g, struct ps_machine *m)
{
    for (int level = 0; level < LEVELS; level++) {
        char path[3 * PATH], text[64];
        uint64_t quota = 0, period = 0;
        bool set;
        (void) snprintf(path, sizeof path, "%s/cpu.max", g->dir);
        if (g->version == 2)
            set = ps_machine_text(root, path, text, sizeof text) >= 0 &&
                  sscanf(text, "%lu %lu", &quota, &period) == 2;
        else
            set = number(root, g->dir, "cpu.cfs_quota_us", &quota) &&
                  number(root, g->dir, "cpu.cfs_period_us", &period);
        if (set && quota && period) {
            double q = (double) quota / (double) period;
            if (m->cpu_quota == 0 || q < m->cpu_quota) m->cpu_quota = q;
        }
        if (!up(g)) break;
    }
}

/* ---- */

static void cpu_model(const char *root, char ret[static 128])
{
    char text[8192];
    if (ps_machine_text(root, "/proc/cpuinfo", text, sizeof text) < 0) return;
    const char *p = strstr(text, "model name");
    if (p) p = strchr(p, ':');
    if (p) (void) snprintf(ret, 128, "%.*s", (int) strcspn(p + 2, "\n"), p + 2);
}

static unsigned affinity(void)
{
    cpu_set_t set; /* 1024 CPUs; a larger machine answers EINVAL */
    if (sched_getaffinity(0, sizeof set, &set) < 0) return 0;
    return (unsigned) CPU_COUNT(&set);
}

void ps_machine_read(const char *root, struct ps_machine *ret)
{
    struct ps_machine m = { .mem_available = UINT64_MAX };
    struct utsname u;
    struct group g;
    char text[8192];
    if (!uname(&u)) (void) snprintf(m.kernel, sizeof m.kernel, "%s", u.release);
    cpu_model(root, m.cpu_model);
    if (ps_machine_text(root, "/proc/meminfo", text, sizeof text) >= 0) {
        if (field(text, "MemTotal:", &m.mem_total)) m.mem_total *= 1024;
        if (field(text, "MemAvailable:", &m.mem_available)) m.mem_available *= 1024;
    }
    for (int v = 1; v <= 2; v++) {
        if (find_group(root, "memory", v, &g)) memory_limits(root, &g, &m);
        if (find_group(root, "cpu", v, &g)) cpu_limits(root, &g, &m);
    }
    if (m.mem_available == UINT64_MAX) m.mem_available = 0;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    m.cpus_online = online > 0 ? (unsigned) online : 1;
    unsigned mine = affinity();
    m.cpus = mine ? mine : m.cpus_online;
    if (m.cpu_quota > 0 && m.cpu_quota + 0.999 < m.cpus) m.cpus = (unsigned) (m.cpu_quota + 0.999);
    if (!m.cpus) m.cpus = 1;
    *ret = m;
}

uint64_t ps_machine_mem(const struct ps_machine *m)
{
    return m->mem_limit && m->mem_limit < m->mem_total ? m->mem_limit : m->mem_total;
}

uint64_t ps_machine_mem_available(void)
{
    struct ps_machine m;
    ps_machine_read("", &m);
    return m.mem_available;
}

static int stat_fs(const char *folder, struct statfs *ret, struct ps_detail *dt)
{
    if (!statfs(folder, ret)) return 0;
    return ps_fail(dt, -errno, "asking for the file system of %s: %s", folder, ps_err_str(errno));
}

int ps_machine_disk_free(const char *folder, uint64_t *ret_bytes, struct ps_detail *dt)
{
    struct statfs s;
    int r = stat_fs(folder, &s, dt);
    if (r < 0) return r;
    *ret_bytes = (uint64_t) s.f_bavail * (uint64_t) s.f_bsize;
    return 0;
}

int ps_machine_fs_type(const char *folder, char ret[static 32], struct ps_detail *dt)
{
    static const struct {
        uint32_t magic;
        const char *name;
    } known[] = {
        { 0xef53, "ext4" },         { 0x58465342, "xfs" },     { 0x9123683e, "btrfs" },
        { 0x01021994, "tmpfs" },    { 0x794c7630, "overlay" }, { 0x6969, "nfs" },
        { 0x2fc12fc1, "zfs" },      { 0xf2f52010, "f2fs" },    { 0x01021997, "9p" },
        { 0x65735546, "fuse" },     { 0xff534d42, "cifs" },    { 0xfe534d42, "smb2" },
        { 0x858458f6, "ramfs" },    { 0x0bd00bd0, "lustre" },  { 0x47504653, "gpfs" },
        { 0xca451a4e, "bcachefs" },
    };
    struct statfs s;
    int r = stat_fs(folder, &s, dt);
    if (r < 0) return r;
    (void) snprintf(ret, 32, "0x%x", (uint32_t) s.f_type);
    for (size_t i = 0; i < PS_ARRAY_LEN(known); i++)
        if (known[i].magic == (uint32_t) s.f_type) (void) snprintf(ret, 32, "%s", known[i].name);
    return 0;
}
