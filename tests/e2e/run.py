#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests: run the penstock program as users do. Needs Python's standard library, and numpy for comparing with the oracle.

    run.py PENSTOCK [-k TEXT]... [--list] [--smoke] [--threads-smoke] [--jobs N] [--slow-by F] [--keep] [-v]

--smoke and --threads-smoke choose the few that are run under sanitizers; --slow-by stretches every time limit. PS_E2E_KILLS is
the number of SIGKILLs of the crash test (10), PS_E2E_SEEDS that of random models (40), PS_E2E_SEED the first of their seeds (1),
PS_E2E_ALLOCS that of allocations of each command that fail (30). With
PS_E2E_CALLS=all each call of CUDA and cuBLAS fails once (of making and giving back events some), not three of each function; with
PS_E2E_GOLDEN=all every case of the golden files is run on the emulated GPU, in all placements, not the first of each policy.
The last line is `N passed, N failed, N skipped`.
"""
import argparse, os, shutil, sys, tempfile, threading

import harness


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("penstock")
    ap.add_argument("-k", action="append", default=[], help="only tests whose name contains this")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--smoke", action="store_true")
    ap.add_argument("--threads-smoke", action="store_true")
    ap.add_argument("--jobs", type=int, default=1)
    ap.add_argument("--slow-by", type=float, default=1)
    ap.add_argument("--keep", action="store_true", help="keep the folders of failed tests")
    ap.add_argument("-v", action="store_true", help="a line for every test")
    a = ap.parse_args()
    tests = harness.find(a.k)
    if a.smoke or a.threads_smoke:
        tests = [x for x in tests if ("threads" if a.threads_smoke else "smoke") in x[2]]
    if a.list:
        print("\n".join(x[0] for x in tests))
        return 0
    root = tempfile.mkdtemp(prefix="penstock-e2e-")
    shared = harness.Shared(os.path.abspath(a.penstock), root, a.slow_by)
    count, say = {"ok": 0, "FAIL": 0, "skip": 0}, threading.Lock()

    def work(queue):
        for name, fn, _ in queue:
            verdict, why, secs = harness.run_one(shared, name, fn, a.keep)
            with say:
                count[verdict] += 1
                if a.v or verdict != "ok":
                    print(f"{verdict} {name} ({secs:.1f} s){': ' + why if why else ''}", flush=True)

    class Queue:
        """One iterator for several threads."""

        def __init__(self, items):
            self.items, self.lock = iter(items), threading.Lock()

        def __iter__(self):
            return self

        def __next__(self):
            with self.lock:
                return next(self.items)

    try:
        queue = Queue([x for x in tests if "alone" not in x[2]])
        threads = [threading.Thread(target=work, args=(queue,)) for _ in range(a.jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        work([x for x in tests if "alone" in x[2]])
    finally:
        if a.keep and count["FAIL"]:
            print(f"kept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    if not sum(count.values()):
        print("no test matches")
        count["FAIL"] = 1
    print(f"{count['ok']} passed, {count['FAIL']} failed, {count['skip']} skipped")
    return 1 if count["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
