/* SPDX-License-Identifier: Apache-2.0 */
/* Stands where a machine with a GPU has its driver: the emulation behind the CUDA module needs none. */
extern const char ps_emu_driver[];
const char ps_emu_driver[] = "emulated";
