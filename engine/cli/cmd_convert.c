/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/cli/cli.h"
#include "engine/tokenizer/tokenizer.h"

enum { OPT_DTYPE = 256, OPT_OVERWRITE, OPT_THREADS, OPT_DUMMY, OPT_SEED };

struct args {
    const char *src, *dst;
    bool dummy, seeded;
    uint64_t seed;
    struct ps_convert_opt opt;
};

static const struct argp_option options[] = {
    { "dtype", OPT_DTYPE, "f16|bf16|f32", 0, "type of the packed weights (default: the source's)",
      0 },
    { "dummy", OPT_DUMMY, NULL, 0,
      "SRC is a model configuration (configs/models/*.json): write random weights, for benchmarks",
      0 },
    { "seed", OPT_SEED, "N", 0, "seed of the random weights (default 0)", 0 },
    { "overwrite", OPT_OVERWRITE, NULL, 0, "replace the model in a DST that exists", 0 },
    { "threads", OPT_THREADS, "N", 0, "threads (default: all cores)", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *st)
{
    struct args *a = st->input;
    enum ps_dtype t;
    switch (key) {
    case OPT_DTYPE:
        if (ps_dtype_parse(arg, &t) < 0)
            argp_error(st, "--dtype %s: f16, bf16 or f32 was expected", arg);
        a->opt.dtype = (int) t;
        return 0;
    case OPT_DUMMY: a->dummy = true; return 0;
    case OPT_SEED:
        if (!ps_opt_u64(arg, UINT64_MAX, &a->seed))
            argp_error(st, "--seed %s: a whole number of 0 or more was expected", arg);
        a->seeded = true;
        return 0;
    case OPT_OVERWRITE: a->opt.overwrite = true; return 0;
    case OPT_THREADS:
        if (!ps_opt_u32(arg, 1, &a->opt.threads))
            argp_error(st, "--threads %s: a whole number of 1 or more was expected", arg);
        return 0;
    case ARGP_KEY_ARG: ps_opt_two(st, arg, "SRC and DST", &a->src, &a->dst); return 0;
    case ARGP_KEY_END:
        if (!a->dst) argp_error(st, "SRC and DST are expected");
        if (a->seeded && !a->dummy)
            argp_error(st, "--seed: only random weights (--dummy) have one");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* It is packed as it is: results by token ids are to be had, once the files that are at fault are mended or gone. */
static void warn_tokenizer(const char *src)
{
    struct ps_tok *tok = NULL;
    struct ps_detail dt = { "" };
    const int r = ps_tok_open(src, &tok, &dt);
    ps_tok_close(tok);
    const char *why = dt.text[0] ? dt.text : ps_err_str(r);
    if (r == -ENOENT && ps_is_file(src, "config.json"))
        ps_say("warning: %s; prompts must be token ids, and results have no text", why);
    else if (r < 0 && r != -ENOENT && r != -ENOTDIR)
        ps_say("warning: %s; generate refuses the packed model as long as its tokenizer is so",
               why);
}

/* What would be read is not there, and what would be written is a source. */
static int check_swapped(const struct args *a, struct ps_detail *dt)
{
    const bool swapped = a->dummy ? !ps_is_regular(a->src) && ps_is_regular(a->dst)
                                  : !ps_is_file(a->src, "config.json") && !ps_is_regular(a->src) &&
                                        ps_is_file(a->dst, "config.json") && !ps_pack_is(a->dst);
    return !swapped
               ? 0
               : ps_fail(dt, -PS_EUSAGE,
                         "SRC %s is no %s, and DST %s is one: they seem to be swapped; what is "
                         "read comes first",
                         a->src, a->dummy ? "model configuration" : "model", a->dst);
}

int ps_cmd_convert(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "SRC DST",
        "Packs the model in folder SRC (Hugging Face layout: config.json, safetensors or PyTorch "
        ".bin weights, tokenizer files) into folder DST, "
        "from which `penstock generate` streams.",
        NULL,
        NULL,
        NULL
    };
    struct args a = { .opt.dtype = -1 };
    struct ps_detail dt = { "" };
    ps_opt_parse(&argp, argc, argv, &a);
    ps_signals_catch();
    ps_convert_ui(&a.opt, false);
    int r = check_swapped(&a, &dt);
    if (!r && !a.dummy) warn_tokenizer(a.src);
    if (!r)
        r = a.dummy ? ps_pack_dummy(a.src, a.dst, a.seed, &a.opt, &dt)
                    : ps_pack_convert(a.src, a.dst, &a.opt, &dt);
    ps_progress_end();
    return r < 0 ? ps_say_error(r, &dt) : PS_EXIT_OK;
}
