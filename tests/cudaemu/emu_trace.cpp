// SPDX-License-Identifier: Apache-2.0
// The compiler's announcements of loads and stores, answered. gcc: the calls that -fsanitize=thread makes (its library is not linked);
// clang: those of -fsanitize-coverage=trace-loads,trace-stores, which go together with ASan and TSan.
#include "emu.h"

namespace cudaemu
{
#if defined(CUDAEMU_TRACK_GCC)
const bool tracks = true;
const size_t aligned_to = 16;
#elif defined(CUDAEMU_TRACK_CLANG) // has made one load of eight bytes of a struct's two of four
const bool tracks = true;
const size_t aligned_to = 4;
#else
const bool tracks = false;
const size_t aligned_to = 1;
#endif
} // namespace cudaemu
using namespace cudaemu;

extern "C" {
#if defined(CUDAEMU_TRACK_GCC)
#define R(n)                                                     \
    void __tsan_read##n(void *p);                                \
    void __tsan_read##n(void *p) { touch(p, n, READ); }          \
    void __tsan_write##n(void *p);                               \
    void __tsan_write##n(void *p) { touch(p, n, WRITE); }        \
    void __tsan_volatile_read##n(void *p);                       \
    void __tsan_volatile_read##n(void *p) { touch(p, n, READ); } \
    void __tsan_volatile_write##n(void *p);                      \
    void __tsan_volatile_write##n(void *p) { touch(p, n, WRITE); }
R(1)
R(2)
R(4)
R(8)
R(16)
#undef R
void __tsan_read_range(void *p, long n);
void __tsan_read_range(void *p, long n) { touch(p, (size_t) n, READ); }
void __tsan_write_range(void *p, long n);
void __tsan_write_range(void *p, long n) { touch(p, (size_t) n, WRITE); }
void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *);
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void *);
void __tsan_func_exit(void *) {}
void __tsan_vptr_update(void *, void *);
void __tsan_vptr_update(void *, void *) {}
void __tsan_vptr_read(void *);
void __tsan_vptr_read(void *) {}
#elif defined(CUDAEMU_TRACK_CLANG)
#define R(n)                                                     \
    void __sanitizer_cov_load##n(void *p);                       \
    void __sanitizer_cov_load##n(void *p) { touch(p, n, READ); } \
    void __sanitizer_cov_store##n(void *p);                      \
    void __sanitizer_cov_store##n(void *p) { touch(p, n, WRITE); }
R(1)
R(2)
R(4)
R(8)
R(16)
#undef R
#endif

bool cudaemu_tracks(void) { return tracks; }
}
