/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over files and folders of inputs where libFuzzer is not at hand: each input as it is, and a number of seeded
 * changes of it (cut, bytes changed, pieces doubled or moved), so that an ordinary test run already looks around the corpus.
 *
 *   replay [--changes=N] FILE-or-FOLDER... */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST_INPUT = 16 << 20 };

static unsigned long changes = 64, runs;
static uint64_t seed;

static size_t below(size_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return n ? (size_t) (seed >> 33) % n : 0;
}

/* The input lies in its own block, so that a read beyond it is found. */
static void feed(const uint8_t *p, size_t n)
{
    uint8_t *own = malloc(n ? n : 1);
    if (!own) abort();
    if (n) memcpy(own, p, n);
    (void) LLVMFuzzerTestOneInput(own, n);
    runs++;
    free(own);
}

/* One change in a copy that has room for twice the input. */
static size_t change(uint8_t *p, size_t n)
{
    static const uint8_t telling[] = { 0,   1,   0x7f, 0x80, 0xff, ' ', '\n',
                                       '"', '{', '[',  ',',  '9',  '-' };
    if (!n) return 0;
    size_t at = below(n), len = 1 + below(n - at < 64 ? n - at : 64);
    switch (below(6)) {
    case 0: return at;
    case 1: p[at] ^= (uint8_t) (1u << below(8)); return n;
    case 2: p[at] = telling[below(sizeof(telling))]; return n;
    case 3: memmove(p + at, p + at + len, n - at - len); return n - len;
    case 4: memmove(p + at + len, p + at, n - at); return n + len;
    default: memmove(p + below(n - len + 1), p + at, len); return n;
    }
}

static int one_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return fprintf(stderr, "%s: %s\n", path, strerror(errno)), 1;
    uint8_t *p = malloc(LONGEST_INPUT), *q = NULL;
    size_t n = p ? fread(p, 1, LONGEST_INPUT, f) : 0;
    (void) fclose(f);
    q = malloc(2 * n + 128);
    if (!p || !q) abort();
    seed = n;
    feed(p, n);
    for (unsigned long i = 0; i < changes; i++) {
        size_t k = n;
        memcpy(q, p, n);
        for (size_t times = 1 + below(3); times-- && k <= 2 * n;) k = change(q, k <= n ? k : n);
        feed(q, k);
    }
    free(p);
    free(q);
    return 0;
}

static int one_folder(const char *path)
{
    struct dirent **list;
    int n = scandir(path, &list, NULL, alphasort), bad = n < 0;
    for (int i = 0; i < n; i++) {
        char name[4096];
        struct stat st;
        (void) snprintf(name, sizeof(name), "%s/%s", path, list[i]->d_name);
        if (stat(name, &st) == 0 && S_ISREG(st.st_mode)) bad |= one_file(name);
        free(list[i]);
    }
    if (n >= 0) free(list);
    return bad;
}

int main(int argc, char **argv)
{
    int bad = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (!strncmp(argv[i], "--changes=", 10))
            changes = strtoul(argv[i] + 10, NULL, 10);
        else if (stat(argv[i], &st) < 0)
            bad |= (fprintf(stderr, "%s: %s\n", argv[i], strerror(errno)), 1);
        else
            bad |= S_ISDIR(st.st_mode) ? one_folder(argv[i]) : one_file(argv[i]);
    }
    printf("%lu inputs\n", runs);
    return bad || !runs;
}
