/* SPDX-License-Identifier: Apache-2.0 */
/* What a file is that a command was given in place of another, as a user would call it: by its size and its first bytes. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_utf8.h"
#include "engine/cli/cli.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { HEAD = 4096 };

/* A member that only files of one kind have near their beginning. In a JSON text within, its quotes would be escaped. */
static const struct {
    const char *member, *what;
} kinds[] = {
    { "\"penstock_journal\"", "the journal of a job that has not ended: its OUTPUT, without "
                              "\".journal\", is what inspect takes, and the penstock generate "
                              "command that began it goes on with it" },
    { "{\"id\": \"batch_req_", "a file of results" },
    { "\"tokens_fed\"", "KV entries that sequences kept, by generate --dump-kv" },
    { "\"traceEvents\"", "a timeline, by generate --trace: Perfetto and chrome://tracing open it" },
    { "\"prompt\"", "a file of requests, INPUT of penstock generate, whose --dry-run tells what it "
                    "asks for" },
    { "\"machine\"", "a report" },
    { "\"host\"", "a hardware profile, for penstock plan --hardware" },
    { "\"rows\"", "a suite, for penstock bench --suite" },
};

const char *ps_what_is(const char *path)
{
    char head[HEAD + 1];
    struct stat st;
    ps_auto_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) return NULL;
    const size_t n = st.st_size < HEAD ? (size_t) st.st_size : HEAD;
    if (!n) return "empty";
    if (ps_pread_all(fd, head, n, 0) < 0) return NULL;
    head[n] = 0;
    const char *begin = strncmp(head, "\xef\xbb\xbf", 3) != 0 ? head : head + 3;
    if (begin[strspn(begin, " \t\r\n")] == '{') {
        for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++)
            if (strstr(begin, kinds[i].member)) return kinds[i].what;
        return NULL;
    }
    /* A character may be cut at the end. */
    return !memchr(head, 0, n) && ps_utf8_valid(head, n) + 3 >= n ? "plain text" : NULL;
}

int ps_check_swapped(const char *folder_is, const char *folder, const char *file_is,
                     const char *file, struct ps_detail *dt)
{
    struct stat st;
    if (!ps_is_regular(folder) || stat(file, &st) < 0 || !S_ISDIR(st.st_mode)) return 0;
    return ps_fail(dt, -PS_EUSAGE,
                   "%s %s is a file, and %s %s a folder: they seem to be swapped; %s comes first",
                   folder_is, folder, file_is, file, folder_is);
}
