/* Stop strings: matched on a text that arrives in pieces, cut from it.
 *
 * The text ends at the first byte that completes any stop string, and loses the
 * longest stop string that ends there; so the one that is complete first wins,
 * and nothing need be generated to find out. Where the pieces are cut changes
 * neither. Text that could still become a stop string is held back and comes out
 * as soon as it no longer can. Time is linear in the text (Knuth, Morris and
 * Pratt 1977, one automaton a string). Belongs to one thread at a time. */
#ifndef WASTE_STOP_H
#define WASTE_STOP_H

#include "base/buf.h"
#include "base/error.h"

#define WASTE_STOP_MAX       64   /* strings */
#define WASTE_STOP_BYTES_MAX 4096 /* of one string */

typedef struct waste_stop waste_stop;

/* Copies the strings. WASTE_ARG names the one that is empty, too long or not
 * valid UTF-8, or says that there are too many. n may be 0: all text passes. */
waste_status waste_stop_open(waste_stop **out, const waste_str *strings, size_t n,
                             waste_error *err);
void waste_stop_close(waste_stop *s);

/* Takes the next piece, of valid UTF-8, and appends what is released to out
 * (valid UTF-8 as well). *hit becomes 1 when a stop string is complete; what
 * follows in this piece and in later ones is then dropped. WASTE_NOMEM. */
waste_status waste_stop_push(waste_stop *s, const char *text, size_t bytes, waste_buf *out,
                             int *hit, waste_error *err);
/* No more text: appends what is held, unless a stop string was found. */
waste_status waste_stop_end(waste_stop *s, waste_buf *out, waste_error *err);

#endif
