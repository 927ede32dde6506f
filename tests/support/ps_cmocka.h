/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka with the includes that it wants first, and asserts for our error convention. */
#ifndef PS_CMOCKA_H
#define PS_CMOCKA_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define assert_ok(x)                                                \
    do {                                                            \
        long long v_ = (x);                                         \
        if (v_ < 0) fail_msg("%s = %s", #x, ps_err_name((int) v_)); \
    } while (0)
/* For calls that fill a struct ps_detail. */
#define assert_ok_dt(x, dt)                                                         \
    do {                                                                            \
        long long v_ = (x);                                                         \
        if (v_ < 0) fail_msg("%s = %s: %s", #x, ps_err_name((int) v_), (dt)->text); \
    } while (0)
#define assert_err(x, e)                                                           \
    do {                                                                           \
        long long v_ = (x);                                                        \
        if (v_ != -(long long) (e)) fail_msg("%s = %lld, wanted -%s", #x, v_, #e); \
    } while (0)
/* The text names what a user needs to know. */
#define assert_says(dt, word)                                                                    \
    do {                                                                                         \
        if (!strstr((dt)->text, word)) fail_msg("\"%s\" does not say \"%s\"", (dt)->text, word); \
    } while (0)
#endif
