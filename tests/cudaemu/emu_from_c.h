/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PS_EMU_FROM_C_H
#define PS_EMU_FROM_C_H
int emu_from_c(void); /* 0: every call succeeded */
#endif
