# SPDX-License-Identifier: Apache-2.0
"""The program on an emulated GPU (tests/cudaemu)."""
import json

from harness import Gpu, cases, smoke


def findings(t, gpu):
    r = t.run("doctor", "--json", gpu=gpu)
    return {f["id"]: f for f in json.loads(r.out)}, r.gpu


@smoke
@cases(quick=False, race=True)
def test_doctor_sees_it(t, race):
    f, gpu = findings(t, Gpu(race=race, sm=75, mem="3G"))
    t.eq(f["cuda_module"]["health"], "ok")
    t.check("emulated sm_75" in f["gpu"]["text"] and "3.0 of 3.0 GiB" in f["gpu"]["text"], f["gpu"]["text"])
    t.check(gpu["calls"]["cudaMemGetInfo"] > 0 and gpu["peak"] == 0, f"{gpu}")


def test_doctor_without_one(t):
    f, _ = findings(t, Gpu(sm=0))
    t.check("no GPU can be used" in f["gpu"]["text"], f["gpu"]["text"])
    f, _ = findings(t, Gpu(sm=70))
    t.check("7.5" in f["gpu"]["advice"], f["gpu"]["advice"])


@cases(count="cudaGetDeviceCount", attribute="cudaDeviceGetAttribute", properties="cudaGetDeviceProperties", memory="cudaMemGetInfo")
def test_doctor_when_a_call_fails(t, call):
    f, gpu = findings(t, Gpu(fail=call + ":1:46"))
    t.check("no GPU can be used" in f["gpu"]["text"], f["gpu"]["text"])
