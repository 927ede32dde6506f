/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cli/cli.h"
#include "engine/tokenizer/tokenize_file.h"

enum { OPT_NO_SPECIAL = 256, OPT_DECODE };

struct args {
    const char *model, *file;
    bool no_special, decode;
};

static const struct argp_option options[] = {
    { "no-special", OPT_NO_SPECIAL, NULL, 0,
      "without the special tokens that the model puts around a text", 0 },
    { "decode", OPT_DECODE, NULL, 0,
      "FILE is a JSON list of ids: print their text, special tokens left out", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *st)
{
    struct args *a = st->input;
    switch (key) {
    case OPT_NO_SPECIAL: a->no_special = true; return 0;
    case OPT_DECODE: a->decode = true; return 0;
    case ARGP_KEY_ARG: ps_opt_two(st, arg, "MODEL and FILE", &a->model, &a->file); return 0;
    case ARGP_KEY_END:
        if (!a->file) argp_error(st, "MODEL and FILE are expected");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int ps_cmd_tokenize(int argc, char **argv)
{
    static const struct argp argp = { options,
                                      parse,
                                      "MODEL FILE",
                                      "Turns a whole text file into one JSON list of token ids on "
                                      "stdout; --decode goes the other way.",
                                      NULL,
                                      NULL,
                                      NULL };
    struct args a = { 0 };
    struct ps_detail dt = { "" };
    struct ps_tok *tok = NULL;
    ps_opt_parse(&argp, argc, argv, &a);
    int r = ps_check_swapped("MODEL", a.model, "FILE", a.file, &dt);
    if (!r) r = ps_tok_open(a.model, &tok, &dt);
    if (!r && a.decode) r = ps_detokenize_file(tok, a.file, false, stdout, &dt);
    if (!r && !a.decode) r = ps_tokenize_file(tok, a.file, !a.no_special, stdout, &dt);
    ps_tok_close(tok);
    return r < 0 ? ps_say_error(r, &dt) : PS_EXIT_OK;
}
