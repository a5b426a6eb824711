/* Chat formats: from a turn to prompt segments (docs/chat.md). Segments are
 * tokenized one by one and never merged: byte-pair encoding is not associative,
 * and what somebody wrote must not become markup by standing beside it.
 *
 * A waste_chat is immutable after opening; any thread may use it. A segment
 * list belongs to one thread. */
#ifndef WASTE_CHAT_H
#define WASTE_CHAT_H

#include "base/buf.h"
#include "text/tokenizer.h"

typedef struct waste_chat waste_chat; /* a container's format, checked */

typedef enum waste_mark {
    WASTE_MARK_OPEN,
    WASTE_MARK_CLOSE,
    WASTE_MARK_SEP,
    WASTE_MARK_END
} waste_mark;

#define WASTE_MARKS 4

/* XTML when its four markers are single tokens, else dir/chat.json, else none
 * (*out is then a chat of kind WASTE_CHAT_NONE; so it is without a tokenizer).
 * A chat.json that cannot be used does not fail the opening: the kind is then
 * WASTE_CHAT_PLAIN and waste_chat_check says what is wrong with it.
 *
 * "A single token" means a special one: an ordinary token that happens to spell
 * a marker could be written by anybody. */
waste_status waste_chat_open(waste_chat **out, const char *dir, const waste_tokenizer *t,
                             waste_error *err);
void waste_chat_close(waste_chat *c);
waste_chat_format waste_chat_kind(const waste_chat *c);
/* The four rules of docs/chat.md 1.1. The error names the file, the role or key, and
 * the marker that is not a single token. An empty `open` is refused, so the
 * turn below never needs to put the assistant prefix in its place. */
waste_status waste_chat_check(const waste_chat *c, waste_error *err);

/* XTML: the id of a marker. -1 otherwise. */
int32_t waste_chat_mark(const waste_chat *c, waste_mark m);
const char *waste_chat_mark_text(waste_mark m); /* "<|open|>", ... */
/* chat.json: the id that ends a reply. -1 when there is none. */
int32_t waste_chat_stop(const waste_chat *c);

/* ---- segments (docs/chat.md 0) ----------------------------------------- */

typedef struct waste_segment {
    const char *text;
    size_t bytes;
    int markup; /* spellings of control tokens count */
} waste_segment;

/* A prompt under construction; it owns a copy of all its text. Zero-initialised
 * is empty. After a failed growth `failed` stays set, further additions do
 * nothing, and waste_chat_encode reports it. */
typedef struct waste_segments {
    struct waste_segment_at {
        size_t at, bytes; /* in text */
        int markup;
    } * item;
    size_t n, cap;
    waste_buf text;
    int failed;
} waste_segments;

void waste_chat_segments_clear(waste_segments *s);
/* Number i < s->n; the text is borrowed until the next addition. */
waste_segment waste_chat_segment(const waste_segments *s, size_t i);
/* An empty text adds nothing. */
void waste_chat_add(waste_segments *s, const char *text, size_t bytes, int markup);

/* XTML's building blocks (docs/chat.md 2). An attribute is four segments of its own,
 * three when the value is empty; values are escaped here. */
typedef struct waste_attr {
    const char *key;
    waste_str value;
} waste_attr;

void waste_chat_element_open(waste_segments *s, const char *tag, const waste_attr *attr, size_t n);
void waste_chat_element_close(waste_segments *s, const char *tag);
void waste_chat_message_end(waste_segments *s);

/* Appends each segment's ids, in order, without BOS. On an error `out` is as it
 * was. WASTE_UNSUPPORTED when t is NULL. */
waste_status waste_chat_encode(const waste_segments *s, const waste_tokenizer *t, waste_ids *out,
                               waste_error *err);

/* ---- prompts ----------------------------------------------------------- */

/* What the user turn holds: the text as one T segment, then for every part a T
 * segment "\n\n" and a T segment with the part's text. The bytes of all of them
 * are kept as they are. */
void waste_chat_content(waste_segments *s, const waste_prompt *p);

/* A conversation in the container's format (text/chat_request.h reads it). Errors:
 * a format that waste_chat_check refuses; what the format has no place for
 * (WASTE_UNSUPPORTED, naming the field); no format (WASTE_UNSUPPORTED). */
struct waste_chat_parsed;
waste_status waste_chat_render(const waste_chat *c, struct waste_chat_parsed *p, waste_segments *s,
                               waste_error *err);
/* Whether the reply to it begins in the reasoning channel. */
int waste_chat_thinks(const waste_chat *c, const struct waste_chat_parsed *p);
/* chat.json: what closes an assistant's turn (text/chat_plain.h). Empty otherwise. */
waste_str waste_chat_suffix(const waste_chat *c, int stopped);

/* One turn: a system message when p->system.text is not NULL, the user's, and the
 * floor: in XTML the assistant's message with its think element (p->thinking) or
 * its response element open. */
waste_status waste_chat_turn(const waste_chat *c, const waste_prompt *p, waste_segments *s,
                             waste_error *err);

#endif
