/* Progress lines: see ext_progress.h. During the prompt, which is one call of
 * the engine, they are drawn from the cancel callback; afterwards also with each
 * token. What the prompt has read so far only the model's counters know: they
 * are its own unless others generate at the same time. */
#include "ext_progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/plat.h"

#define REDRAW_NS 200000000u   /* on a terminal */
#define REPEAT_NS 10000000000u /* elsewhere */
#define LINE      200

static int percent(uint64_t hits, uint64_t misses)
{
    const double all = (double)hits + (double)misses;

    return all > 0 ? (int)(100 * (double)hits / all + 0.5) : 0;
}

static double per(double x, double y)
{
    return y > 0 ? x / y : 0;
}

void waste_progress_begin(waste_progress *p, int on, waste_model *m)
{
    waste_model_stats s;

    memset(p, 0, sizeof *p);
    if (!on) return;
    p->on = 1;
    p->terminal = isatty(STDERR_FILENO);
    p->model = m;
    p->began_ns = p->drawn_ns = waste_clock_ns();
    waste_model_stats_get(m, &s);
    p->hits = s.hits;
    p->misses = s.misses;
    p->bytes = s.bytes_read;
}

void waste_progress_of(waste_progress *p, const waste_gen *g)
{
    p->gen = g;
}

/* ---- lines ---- */

static void prompt_line(const waste_progress *p, char line[LINE], double seconds)
{
    const int64_t done = waste_gen_prompt_done(p->gen);
    waste_usage all;
    waste_model_stats s;

    waste_gen_usage(p->gen, &all);
    waste_model_stats_get(p->model, &s);
    snprintf(
        line, LINE, "[prompt %lld of %lld tokens, %.1f s, %.2f tok/s | hit %d%%, %.1f MB read]",
        (long long)done, (long long)all.prompt_tokens, seconds, per((double)done, seconds),
        percent(s.hits - p->hits, s.misses - p->misses), (double)(s.bytes_read - p->bytes) / 1e6);
}

static void token_line(const waste_progress *p, char line[LINE], double seconds)
{
    snprintf(line, LINE, "[%lld tokens, %.1f s, %.2f tok/s | hit %d%%, %.1f MB/token]",
             (long long)p->tokens, seconds, per((double)p->tokens, seconds),
             percent(p->sum.hits, p->sum.misses),
             per((double)p->sum.bytes_read / 1e6, (double)p->tokens));
}

/* In one write: other threads may have lines of their own. */
static void put(waste_progress *p, const char *line, int last)
{
    char out[2 * LINE + 4];
    const int n = (int)strlen(line), blank = p->drawn > n ? p->drawn - n : 0;
    int len;

    if (p->terminal)
        len = snprintf(out, sizeof out, "\r%s%*s%s", line, blank, "", last ? "\n" : "");
    else
        len = snprintf(out, sizeof out, "%s\n", line);
    fwrite(out, 1, (size_t)len, stderr);
    fflush(stderr);
    p->drawn = n;
}

static void redraw(waste_progress *p)
{
    const uint64_t now = waste_clock_ns();
    const double seconds = (double)(now - p->began_ns) / 1e9;
    char line[LINE];

    if (!p->on || !p->gen || now - p->drawn_ns < (p->terminal ? REDRAW_NS : REPEAT_NS)) return;
    p->drawn_ns = now;
    if (p->tokens)
        token_line(p, line, seconds);
    else
        prompt_line(p, line, seconds);
    put(p, line, 0);
}

void waste_progress_plain(waste_progress *p, int on)
{
    memset(p, 0, sizeof *p);
    if (!on) return;
    p->on = 1;
    p->terminal = isatty(STDERR_FILENO);
    p->began_ns = p->drawn_ns = waste_clock_ns();
}

void waste_progress_line(waste_progress *p, const char *line, int last)
{
    const uint64_t now = waste_clock_ns();
    char text[LINE];

    if (!p->on || (!last && now - p->drawn_ns < (p->terminal ? REDRAW_NS : REPEAT_NS))) return;
    p->drawn_ns = now;
    snprintf(text, sizeof text, "%s", line);
    put(p, text, last);
    if (last) p->on = 0;
}

/* ---- the generation's course ---- */

static int asked(void *ctx)
{
    waste_progress *p = ctx;

    redraw(p);
    return p->next.asked && p->next.asked(p->next.ctx);
}

waste_cancel waste_progress_cancel(waste_progress *p, const waste_cancel *c)
{
    waste_cancel mine = {asked, p};

    p->next = *c;
    return p->on ? mine : *c;
}

void waste_progress_token(waste_progress *p, const waste_gen_token *t)
{
    if (!p->on) return;
    p->tokens += t->token >= 0;
    p->sum.hits += t->stats.hits;
    p->sum.misses += t->stats.misses;
    p->sum.bytes_read += t->stats.bytes_read;
    p->sum.io_ns += t->stats.io_ns;
    redraw(p);
}

void waste_progress_end(waste_progress *p)
{
    const double seconds = (double)(waste_clock_ns() - p->began_ns) / 1e9;
    char line[LINE];

    if (!p->on) return;
    p->on = 0;
    snprintf(line, sizeof line,
             "[%lld tokens, %.1f s, %.2f tok/s | experts %llu hit / %llu miss = %d%%]",
             (long long)p->tokens, seconds, per((double)p->tokens, seconds),
             (unsigned long long)p->sum.hits, (unsigned long long)p->sum.misses,
             percent(p->sum.hits, p->sum.misses));
    put(p, line, 1);
}
