/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cli/cli.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool ps_opt_double(const char *s, double *ret)
{
    char *end;
    if (!(isdigit((unsigned char) *s) || *s == '-' || *s == '.')) return false;
    double v = strtod(s, &end);
    if (end == s || *end || !isfinite(v)) return false;
    *ret = v;
    return true;
}

bool ps_opt_u64(const char *s, uint64_t max, uint64_t *ret)
{
    char *end;
    if (!isdigit((unsigned char) *s)) return false;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno || *end || v > max) return false;
    *ret = v;
    return true;
}

bool ps_opt_u32(const char *s, uint32_t min, uint32_t *ret)
{
    uint64_t v;
    if (!ps_opt_u64(s, UINT32_MAX, &v) || v < min) return false;
    *ret = (uint32_t) v;
    return true;
}

bool ps_opt_size(const char *s, uint64_t *ret)
{
    static const char units[] = "KMGT";
    char *end;
    if (!isdigit((unsigned char) *s)) return false;
    double v = strtod(s, &end);
    if (end != s + strspn(s, "0123456789.")) return false; /* no exponents, no 0x */
    const char *u = *end ? strchr(units, toupper((unsigned char) *end)) : NULL;
    if (u) {
        v = ldexp(v, 10 * (int) (u - units + 1));
        end++;
        if (*end == 'i') end++;
    }
    if (*end == 'B' || *end == 'b') end++;
    if (*end || !(v < 0x1p62)) return false;
    *ret = (uint64_t) v;
    return true;
}

bool ps_opt_percent(const char *s, double *ret)
{
    char *end;
    if (!isdigit((unsigned char) *s) && *s != '.') return false;
    double v = strtod(s, &end);
    if (end == s || strcmp(end, "%") != 0 || !(v >= 0 && v <= 100)) return false;
    *ret = v;
    return true;
}

static bool adds_up(const struct ps_shares *s)
{
    double sum = 0;
    for (int i = 0; i < PS_TIER__COUNT; i++) {
        if (!(s->pct[i] >= 0 && s->pct[i] <= 100)) return false;
        sum += s->pct[i];
    }
    return fabs(sum - 100) < 0.01;
}

bool ps_opt_shares(const char *s, struct ps_shares *ret)
{
    static const char *const tiers[PS_TIER__COUNT] = { "gpu", "host", "disk" };
    struct ps_shares v = { { 0 } };
    if (!strcmp(s, "auto")) {
        for (int i = 0; i < PS_TIER__COUNT; i++) v.pct[i] = -1;
        *ret = v;
        return true;
    }
    unsigned seen = 0;
    while (*s) {
        int t = 0;
        while (t < PS_TIER__COUNT && strncmp(s, tiers[t], strlen(tiers[t])) != 0) t++;
        if (t == PS_TIER__COUNT || seen & 1u << t) return false;
        seen |= 1u << t;
        s += strlen(tiers[t]);
        char *end;
        if (*s != ':' || !(isdigit((unsigned char) s[1]) || s[1] == '.')) return false;
        v.pct[t] = strtod(s + 1, &end);
        s = end + (*end == '%');
        if (*s == ',' && s[1])
            s++;
        else if (*s)
            return false;
    }
    if (!adds_up(&v)) return false;
    *ret = v;
    return true;
}

bool ps_opt_six(const char *s, struct ps_shares *w, struct ps_shares *kv, struct ps_shares *hidden)
{
    struct ps_shares *const all[3] = { w, kv, hidden };
    struct ps_shares v[3];
    for (int i = 0; i < 6; i++) {
        char *end;
        double p = strtod(s, &end);
        if (end == s || !(p >= 0 && p <= 100)) return false;
        v[i / 2].pct[i % 2] = p;
        s = end + strspn(end, ", ");
    }
    if (*s) return false;
    for (int i = 0; i < 3; i++) {
        v[i].pct[PS_TIER_DISK] = 100 - v[i].pct[PS_TIER_GPU] - v[i].pct[PS_TIER_HOST];
        if (!adds_up(&v[i])) return false;
    }
    for (int i = 0; i < 3; i++) *all[i] = v[i];
    return true;
}

int ps_opt_choice(const char *s, const char *const *words, char expected[static 128])
{
    size_t n = 0;
    *expected = 0;
    for (int i = 0; words[i]; i++) {
        if (!strcmp(s, words[i])) return i;
        n += (size_t) snprintf(expected + n, 128 - n, "%s%s", i ? " or " : "", words[i]);
    }
    return -PS_EUSAGE;
}
