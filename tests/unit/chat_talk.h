/* Conversations for unit tests: from JSON texts to the segments of K3's prompt. */
#ifndef CHAT_TALK_H
#define CHAT_TALK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/chat_request.h"
#include "text/chat_xtml.h"

static inline waste_str talk_str(const char *s)
{
    waste_str v = {s, s ? strlen(s) : 0};

    return v;
}

static inline waste_status talk_render(const char *messages, const char *options, size_t skip,
                                       waste_segments *s, waste_error *e)
{
    const waste_chat_request r = {talk_str(messages), talk_str(options), skip};
    waste_chat_parsed p;
    waste_status st;

    memset(&p, 0, sizeof p);
    st = waste_chat_request_read(&p, &r, e);
    if (!st) st = waste_chat_xtml_render(&p, s, e);
    waste_chat_request_clear(&p);
    return st;
}

/* Segments as one text: M<..>, T"..", one after the other; to be cleared. */
static inline waste_buf talk_text(const char *messages, const char *options, size_t skip)
{
    waste_segments s = {0};
    waste_buf b = {0};
    waste_error e = {0};
    size_t i;

    if (talk_render(messages, options, skip, &s, &e)) fail_msg("%s: %s", messages, e.text);
    for (i = 0; i < s.n; i++) {
        const waste_segment g = waste_chat_segment(&s, i);
        waste_buf_byte(&b, g.markup ? 'M' : 'T');
        waste_buf_add(&b, g.text, g.bytes);
        waste_buf_byte(&b, '\n');
    }
    waste_chat_segments_clear(&s);
    return b;
}

/* The sentence must hold all of the words, which '|' parts. */
static inline void talk_refused(const char *messages, const char *options, const char *words)
{
    waste_segments s = {0};
    waste_error e = {0};
    char word[200];
    waste_status st = talk_render(messages, options, 0, &s, &e);

    if (st != WASTE_ARG) fail_msg("%s %s: status %d %s", messages, options, st, e.text);
    while (*words) {
        size_t n = strcspn(words, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        if (!strstr(e.text, word)) fail_msg("'%s' is not in: %s", word, e.text);
        words += n + (words[n] == '|');
    }
    waste_chat_segments_clear(&s);
}

#endif
