/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and opens the CUDA module. It stays open: its rows are part of the kernel table from then on. */
#include "engine/base/ps_err.h"
#include "engine/base/ps_file.h"
#include "kernels/cuda/ps_cuda.h"
#include "ps_config.h"
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char name[] = "penstock-cuda.so";

/* The module beside the program that runs. */
static int beside(char *ret, size_t size)
{
    const ssize_t n = readlink("/proc/self/exe", ret, size);
    if (n <= 0 || (size_t) n >= size) return -ENOENT;
    ret[n] = 0;
    char *slash = strrchr(ret, '/');
    if (!slash || (size_t) (slash + 1 - ret) + sizeof name > size) return -ENAMETOOLONG;
    memcpy(slash + 1, name, sizeof name);
    return 0;
}

static int find(char *ret, size_t size, struct ps_detail *dt)
{
    char near[4096];
    if (beside(near, sizeof near) < 0) *near = 0;
    const char *const places[] = { near, PS_MODULE_DIR "/penstock-cuda.so" };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (*places[i] && access(places[i], F_OK) == 0) {
            (void) snprintf(ret, size, "%s", places[i]);
            return 0;
        }
    return ps_fail(dt, -ENOENT, "there is no %s beside the program or in %s", name, PS_MODULE_DIR);
}

/* What dlopen() does not survive: it would wait for a pipe, and read beyond the end of a library that was cut short, whose section
 * headers come last. What cannot be opened is left to it. */
static int look(const char *path, struct ps_detail *dt)
{
    struct stat st;
    Elf64_Ehdr h;
    ps_auto_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) return 0;
    if (!S_ISREG(st.st_mode))
        return ps_fail(dt, -ENODEV, "the CUDA module %s is no regular file", path);
    if (pread(fd, &h, sizeof h, 0) != sizeof h || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) return 0;
    const uint64_t headers = (uint64_t) h.e_shnum * h.e_shentsize, size = (uint64_t) st.st_size;
    if (h.e_shoff > size || headers > size - h.e_shoff)
        return ps_fail(dt, -ENODEV, "the CUDA module %s is cut short; install it again", path);
    return 0;
}

bool ps_cuda_driver(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (lib) (void) dlclose(lib);
    return lib != NULL;
}

int ps_cuda_load(const char *path, const struct ps_cuda_api **ret, struct ps_detail *dt)
{
    static const struct ps_cuda_api *loaded;
    char found[4096];
    if (loaded) {
        *ret = loaded;
        return 0;
    }
    int r = path ? 0 : find(found, sizeof found, dt);
    if (!path) path = found;
    if (!r) r = look(path, dt);
    if (r < 0) return r;
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) return ps_fail(dt, -ENODEV, "the CUDA module cannot be opened: %s", dlerror());
    const struct ps_cuda_api *(*module)(void);
    *(void **) &module = dlsym(lib, PS_CUDA_SYMBOL);
    const struct ps_cuda_api *api = module ? module() : NULL;
    if (!api || api->abi != PS_CUDA_ABI) {
        r = ps_fail(dt, -PS_EUNSUPPORTED, "%s is of another version of Penstock", path);
        (void) dlclose(lib);
        return r;
    }
    ps_kern_add(api->rows);
    *ret = loaded = api;
    return 0;
}
