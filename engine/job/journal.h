/* SPDX-License-Identifier: Apache-2.0 */
/* OUTPUT.journal: JSON lines. The first says whose job it is (identity, start); each that follows has the sums of one run so
 * far, and the last of a run counts. The file is also the lock: whoever holds it works on OUTPUT. */
#ifndef PS_JOURNAL_H
#define PS_JOURNAL_H
#include "engine/job/identity.h"
#include "engine/job/jout.h"

/* What OUTPUT.part held when a line was written: its first bytes, and their sum (XXH3-64). */
struct ps_part_sum {
    uint64_t bytes, xxh3;
};
/* A line of a run. */
struct ps_journal_run {
    uint32_t run;
    double sums[PS_SUM__COUNT];
    struct ps_part_sum part;
};

struct ps_journal {
    int fd;
    char *path;
    bool fresh;  /* there was nothing in it (or it is discarded) */
    bool remove; /* at close: nothing of worth is in it */
    bool dump_kv;
    uint64_t job; /* hash as written */
    int64_t started;
    struct ps_ident ident;
    double sums[PS_SUM__COUNT]; /* of the runs before this one */
    uint32_t runs;              /* before this one */
    struct ps_part_sum part;    /* of the last line */
    struct ps_jout out;
};

/* Opens (or makes) and locks it, and reads what it says. -EBUSY when another process has it; -PS_EFORMAT when its first line
 * cannot be read. A torn last line is passed over. */
int ps_journal_open(const char *path, bool discard, struct ps_journal *ret,
                    struct ps_detail *dt) ps_must_check;
/* The same for those who only want to know: makes and changes nothing, and takes no lock (fd is -1 where there is no journal). */
int ps_journal_look(const char *path, bool discard, struct ps_journal *ret,
                    struct ps_detail *dt) ps_must_check;
void ps_journal_close(struct ps_journal *j); /* removes it if `remove` */
/* Writes the first line, synced. */
int ps_journal_begin(struct ps_journal *j, const struct ps_ident *id, int64_t started,
                     bool dump_kv) ps_must_check;
int ps_journal_sums(struct ps_journal *j, const double sums[PS_SUM__COUNT],
                    const struct ps_part_sum *part) ps_must_check;
/* One line of it, for reading (and fuzzing): 1 first line, 2 sums, 0 neither. */
int ps_journal_line(char *line, size_t len, struct ps_journal *j, struct ps_journal_run *ret);
#endif
