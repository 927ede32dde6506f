/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cli/cli.h"
#include "offload/doctor.h"
#include <stdio.h>

enum { OPT_JSON = 256, OPT_DIR };

struct args {
    const char *folder;
    bool json;
};

static const struct argp_option options[] = {
    { "json", OPT_JSON, NULL, 0, "findings as a JSON list", 0 },
    { "offload-dir", OPT_DIR, "DIR", 0,
      "where offloaded data would go (default: the current folder)", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *st)
{
    struct args *a = st->input;
    switch (key) {
    case OPT_JSON: a->json = true; return 0;
    case OPT_DIR: a->folder = arg; return 0;
    case ARGP_KEY_ARG: argp_error(st, "%s: no argument is expected", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int print_json(const struct ps_finding *f, size_t n)
{
    json_t *list = json_array();
    int r = list ? 0 : -ENOMEM;
    for (size_t i = 0; !r && i < n; i++)
        if (json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s*}", "id", f[i].id, "health",
                                                  ps_health_name(f[i].health), "text", f[i].text,
                                                  "advice", f[i].advice[0] ? f[i].advice : NULL)) <
            0)
            r = -ENOMEM;
    if (!r) return ps_print_json(list);
    json_decref(list);
    return r;
}

int ps_cmd_doctor(int argc, char **argv)
{
    static const struct argp argp = { options,
                                      parse,
                                      NULL,
                                      "Looks at what this machine and its container allow. Exit "
                                      "status 1 if something is in the way.",
                                      NULL,
                                      NULL,
                                      NULL };
    struct args a = { .folder = "." };
    struct ps_detail dt = { "" };
    ps_auto_free struct ps_finding *f = NULL;
    size_t n = 0;
    bool bad = false;
    ps_opt_parse(&argp, argc, argv, &a);
    int r = ps_doctor(a.folder, &f, &n, &dt);
    if (!r && a.json) r = print_json(f, n);
    if (r < 0) return ps_say_error(r, &dt);
    for (size_t i = 0; i < n; i++) {
        bad |= f[i].health == PS_HEALTH_FAIL;
        if (a.json) continue;
        (void) printf("%-5s %-14s %s\n", ps_health_name(f[i].health), f[i].id, f[i].text);
        if (f[i].advice[0]) (void) printf("%-5s %-14s -> %s\n", "", "", f[i].advice);
    }
    return bad ? PS_EXIT_FAILED : PS_EXIT_OK;
}
