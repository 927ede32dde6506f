/* SPDX-License-Identifier: Apache-2.0 */
/* inspect MODEL or OUTPUT: which of the two it is shows in the file itself. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_json.h"
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/inspect.h"
#include "engine/cli/cli.h"
#include "engine/job/results.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { OPT_JSON = 256, OPT_VERIFY };

struct args {
    const char *path;
    bool json, verify;
};

static const struct argp_option options[] = {
    { "json", OPT_JSON, NULL, 0, "one JSON object", 0 },
    { "verify", OPT_VERIFY, NULL, 0, "read all weights and check their checksums", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *st)
{
    struct args *a = st->input;
    switch (key) {
    case OPT_JSON: a->json = true; return 0;
    case OPT_VERIFY: a->verify = true; return 0;
    case ARGP_KEY_ARG:
        if (a->path) argp_error(st, "%s: only one folder or file is expected", arg);
        a->path = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->path) argp_error(st, "a model folder or a results file is expected");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

struct summary {
    uint64_t records, failed, stopped, prompt_tokens, generated_tokens, longest_prompt,
        longest_generated, bytes, job;
    bool foreign; /* holds a line that is no record */
};

/* -PS_EFORMAT if the first line is no record of ours; no records where there is no whole line. */
static int summarise(const char *path, struct summary *s)
{
    ps_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ps_auto_free struct ps_results *rs = ps_calloc(1, sizeof *rs);
    struct ps_result rec;
    if (fd < 0) return -errno;
    int r = rs ? ps_results_open(fd, rs) : -ENOMEM;
    if (r < 0) return r;
    while ((r = ps_results_next(rs, &rec)) > 0) {
        if (!rec.ok && !s->records) r = -PS_EFORMAT;
        if (r < 0) break;
        s->foreign |= !rec.ok;
        if (!s->records) s->job = rec.job;
        s->records += rec.ok;
        s->bytes += rec.len;
        s->failed += rec.failed;
        s->stopped += rec.stopped;
        s->prompt_tokens += rec.prompt_tokens;
        s->generated_tokens += rec.generated_tokens;
        if (rec.prompt_tokens > s->longest_prompt) s->longest_prompt = rec.prompt_tokens;
        if (rec.generated_tokens > s->longest_generated)
            s->longest_generated = rec.generated_tokens;
    }
    ps_results_close(rs);
    return r;
}

/* Results of a job that is under way, or was interrupted: OUTPUT.part beside OUTPUT.journal. */
static bool is_part(const char *path)
{
    static const char part[] = ".part";
    const size_t n = strlen(path), k = sizeof part - 1;
    if (n <= k || strcmp(path + n - k, part) != 0) return false;
    ps_auto_free char *journal = ps_concat(path, "", ".journal");
    if (!journal) return false;
    memcpy(journal + n - k, ".journal", sizeof ".journal");
    return ps_is_regular(journal);
}

static int print_summary(const struct args *a, const struct summary *s)
{
    uint64_t ok = s->records - s->failed;
    if (a->json) {
        json_t *j = json_pack(
            "{s:o, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "path",
            ps_json_text(a->path), "kind", "results", "job",
            s->records ? json_sprintf("%016" PRIx64, s->job) : json_null(), "records",
            (json_int_t) s->records, "failed", (json_int_t) s->failed, "stopped",
            (json_int_t) s->stopped, "prompt_tokens", (json_int_t) s->prompt_tokens,
            "generated_tokens", (json_int_t) s->generated_tokens, "longest_prompt",
            (json_int_t) s->longest_prompt, "longest_generated", (json_int_t) s->longest_generated,
            "bytes", (json_int_t) s->bytes, "other_lines", s->foreign);
        return ps_print_json(j);
    }
    if (!s->records) {
        (void) printf("%s: no results so far, of a job that has not ended\n", a->path);
        return 0;
    }
    (void) printf("%s: results of job %016" PRIx64 "\n", a->path, s->job);
    (void) printf("  records           %" PRIu64 ", of which %" PRIu64 " failed\n", s->records,
                  s->failed);
    (void) printf("  ended by          stop %" PRIu64 ", length %" PRIu64 "\n", s->stopped,
                  ok - s->stopped);
    (void) printf("  prompt tokens     %" PRIu64 " (longest %" PRIu64 ")\n", s->prompt_tokens,
                  s->longest_prompt);
    (void) printf("  generated tokens  %" PRIu64 " (longest %" PRIu64 ")\n", s->generated_tokens,
                  s->longest_generated);
    if (s->foreign) (void) printf("  some lines are no records of penstock\n");
    return 0;
}

static int inspect_model(const struct args *a, struct ps_detail *dt)
{
    json_t *report = NULL;
    int r = ps_inspect_model(a->path, a->verify, &report, dt);
    if (r < 0) return r;
    const char *sums = json_string_value(json_object_get(report, "checksums"));
    int damaged = sums && !strcmp(sums, "damaged");
    if (a->json) {
        r = ps_print_json(report);
        return r < 0 ? r : damaged;
    }
    ps_auto_free char *text = ps_inspect_text(report);
    if (text) (void) fputs(text, stdout);
    json_decref(report);
    return text ? damaged : -ENOMEM;
}

/* Of a name that is not there: results of a job that has not ended lie beside it. */
static int inspect_nothing(const char *path, struct ps_detail *dt)
{
    ps_auto_free char *part = ps_concat(path, "", ".part"),
                      *journal = ps_concat(path, "", ".journal");
    struct summary s = { 0 };
    if (!part || !journal) return -ENOMEM;
    if (access(journal, F_OK) < 0 && access(part, F_OK) < 0)
        return ps_fail(dt, -ENOENT, "%s: %s", path, ps_err_str(ENOENT));
    (void) !summarise(part, &s); /* without any record, the sums stay zero */
    return ps_fail(dt, -ENOENT,
                   "%s is not there yet: its job has not ended, and has %" PRIu64
                   " result%s so far, in %s (inspect takes that name, too); the penstock generate "
                   "command that began it goes on with it",
                   path, s.records, ps_plural(s.records), part);
}

int ps_cmd_inspect(int argc, char **argv)
{
    static const struct argp argp = { options,
                                      parse,
                                      "MODEL|OUTPUT",
                                      "Tells what a model folder (packed, or as it came) or a file "
                                      "of results holds. Exit status 1 if --verify finds damage.",
                                      NULL,
                                      NULL,
                                      NULL };
    struct args a = { 0 };
    struct ps_detail dt = { "" };
    struct summary s = { 0 };
    struct stat st;
    ps_opt_parse(&argp, argc, argv, &a);
    int there = stat(a.path, &st) < 0 ? -errno : 0;
    if (!there && S_ISREG(st.st_mode) && !summarise(a.path, &s) && (s.records || is_part(a.path))) {
        int e = print_summary(&a, &s);
        return e < 0 ? ps_say_error(e, &dt) : PS_EXIT_OK;
    }
    int r = there == -ENOENT ? inspect_nothing(a.path, &dt) : inspect_model(&a, &dt);
    const char *what = r == -PS_EFORMAT || r == -PS_EUNSUPPORTED ? ps_what_is(a.path) : NULL;
    if (what)
        r = ps_fail(
            &dt, r,
            "%s is %s; inspect takes a model folder, its config.json, a weights file, or a file "
            "of results",
            a.path, what);
    return r < 0 ? ps_say_error(r, &dt) : r ? PS_EXIT_FAILED : PS_EXIT_OK;
}
