/* SPDX-License-Identifier: Apache-2.0 */
/* Which field a key names; and of one that is none, what would work: by its meaning elsewhere, by its letters, or else all there are. */
#include "engine/job/request_walk.h"
#include <stdio.h>
#include <string.h>

enum { FOLDED = 40 };

/* Lower case, without what words are joined by; "" for what is longer than any field. */
static void fold(const char *s, size_t len, char ret[static FOLDED])
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (strchr("_- ", s[i])) continue; /* NUL, too */
        if (n == FOLDED - 1) {
            n = 0;
            break;
        }
        ret[n++] = (char) (s[i] >= 'A' && s[i] <= 'Z' ? s[i] - 'A' + 'a' : s[i]);
    }
    ret[n] = 0;
}

/* Letters to change, put in or leave out. */
static size_t distance(const char *a, const char *b)
{
    size_t row[FOLDED], nb = strlen(b);
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0]++;
        for (size_t j = 0; j < nb; j++) {
            size_t best = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (diagonal + 1 < best) best = diagonal + 1;
            row[j + 1] = best;
        }
    }
    return row[nb];
}

/* What others call it, and what they have that is not here. */
static const char *by_meaning(const char *folded)
{
    static const struct {
        const char *folded, *hint;
    } known[] = {
        { "messages",
          "chat needs a template that is not applied here: put its text into \"prompt\"" },
        { "maxcompletiontokens", "\"max_tokens\" would work" },
        { "maxnewtokens", "\"max_tokens\" would work" },
        { "maxoutputtokens", "\"max_tokens\" would work" },
        { "maxgenlen", "\"max_tokens\" would work" },
        { "npredict", "\"max_tokens\" would work" },
        { "minnewtokens", "\"min_tokens\" would work" },
        { "stopsequences", "\"stop\" would work" },
        { "stopstrings", "\"stop\" would work" },
        { "eostokenid", "\"stop_token_ids\" would work" },
        { "toplogprobs", "\"logprobs\" would work, with the number" },
        { "promptlogprobs", "\"logprobs\" with \"echo\": true would work" },
        { "randomseed", "\"seed\" would work" },
        { "text", "\"prompt\" would work" },
        { "input", "\"prompt\" would work" },
        { "inputs", "\"prompt\" would work" },
        { "inputids", "\"prompt\" with a list of token ids would work" },
        { "prompttokenids", "\"prompt\" with a list of token ids would work" },
        { "dosample", "\"temperature\" above 0 samples, 0 is greedy" },
        { "numreturnsequences", "repeat the line for more" },
        { "streamoptions", "nothing is streamed here: leave it out" },
        { "id", "the batch form has \"custom_id\", with the request in \"body\"" },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(known); i++)
        if (!strcmp(folded, known[i].folded)) return known[i].hint;
    return NULL;
}

/* One letter in three may differ. */
static const char *by_letters(const char *folded, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t least = strlen(folded) / 3 + 1;
    for (size_t i = 0; *folded && i < n; i++) {
        char name[FOLDED];
        fold(names[i], strlen(names[i]), name);
        const size_t d = distance(folded, name);
        if (d >= least) continue;
        least = d;
        best = names[i];
    }
    return best;
}

static void hint(struct ps_jstr key, const char *const *names, size_t n, size_t n_told, char *ret,
                 size_t cap)
{
    char folded[FOLDED];
    fold(key.s, key.len, folded);
    const char *meant = by_meaning(folded), *near = by_letters(folded, names, n);
    if (meant) {
        (void) snprintf(ret, cap, "%s", meant);
    } else if (near) {
        (void) snprintf(ret, cap, "\"%s\" is one", near);
    } else {
        size_t at = (size_t) snprintf(ret, cap, "there are ");
        for (size_t i = 0; i < n_told && at < cap; i++)
            at += (size_t) snprintf(ret + at, cap - at, "%s%s", i ? ", " : "", names[i]);
    }
}

int ps_walk_key(struct ps_walk *w, struct ps_jstr key, const struct ps_names *of, uint32_t *seen)
{
    char text[PS_MESSAGE_MAX];
    key = ps_jstr_decode(key);
    for (size_t i = 0; i < of->n; i++) {
        if (!ps_jstr_is(key, of->names[i])) continue;
        if (*seen & 1u << i) {
            (void) ps_request_fail(w->req, PS_LE_INVALID_REQUEST, "%s is given twice",
                                   of->names[i]);
            return -1;
        }
        *seen |= 1u << i;
        return (int) i;
    }
    if (ps_jscan_type(&w->c) == PS_J_NULL) return (int) of->n;
    hint(key, of->names, of->n, of->n_told, text, sizeof text);
    (void) ps_request_fail(w->req, PS_LE_UNKNOWN_FIELD, "\"%.*s\" is no field of %s; %s",
                           (int) (key.len < 64 ? key.len : 64), key.s, of->what, text);
    return -1;
}
