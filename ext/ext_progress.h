/* {"progress":true}: what a call is doing, on stderr, and a closing line
 *
 *     [16 tokens, 31.1 s, 0.51 tok/s | experts 3357 hit / 20195 miss = 14%]
 *
 * On a terminal one line is drawn over and over, at most 5 times a second;
 * elsewhere a line is written every 10 seconds at most. Nothing else of the
 * extension writes to stderr. One object serves one generation, or one
 * other piece of work, on its thread. */
#ifndef EXT_PROGRESS_H
#define EXT_PROGRESS_H

#include "waste.h"

typedef struct waste_progress {
    int on, terminal;
    uint64_t began_ns, drawn_ns;
    int drawn;            /* columns of the line on the screen */
    const waste_gen *gen; /* borrowed; NULL before it is opened */
    waste_model *model;
    waste_cancel next; /* the callback that this one stands before */
    int64_t tokens;
    waste_step_stats sum;
    uint64_t hits, misses, bytes; /* of the whole model when it began */
} waste_progress;

/* on 0: every function here does nothing. */
void waste_progress_begin(waste_progress *p, int on, waste_model *m);
/* `c` with the line redrawn whenever it is asked. Valid while p does not move. */
waste_cancel waste_progress_cancel(waste_progress *p, const waste_cancel *c);
void waste_progress_of(waste_progress *p, const waste_gen *g);
void waste_progress_token(waste_progress *p, const waste_gen_token *t);
/* For work that is no generation: lines of the caller's. The last one is always
 * written and ends it; others as often as said above. */
void waste_progress_plain(waste_progress *p, int on);
void waste_progress_line(waste_progress *p, const char *line, int last);
/* The closing line; only once. */
void waste_progress_end(waste_progress *p);

#endif
