/* The header of an element in K3's markup, as a model wrote it: a name, then
 * attributes key="value" (docs/chat.md 6). Nothing in it is an error. Reads texts, owns
 * none; any thread. */
#ifndef WASTE_HEADER_H
#define WASTE_HEADER_H

#include "base/buf.h"
#include "waste.h"

/* Without white space (ASCII) at both ends. */
waste_str waste_header_trim(waste_str s);
/* Up to the first space of a trimmed header. */
waste_str waste_header_name(waste_str header);
/* The last attribute of that name, unescaped, replaces what is in `out`. Returns 0, and an
 * empty `out`, when there is none. */
int waste_header_attribute(waste_str header, const char *name, waste_buf *out);

#endif
