/* Runs a container through the public interface, for tests.
 *
 *   logits [options] run CONTAINER OUT MODES IDS...
 *       Evaluates each comma-separated id list as a sequence of its own and
 *       writes the logits of all positions, one list after the other, to OUT as
 *       float32 ("-": nowhere). MODES is a comma-separated list; the first is
 *       the one written, the others must give the same bits:
 *         batch   all rows of a sequence in one step
 *         single  one row a step
 *         mixed   all sequences at once, a few rows of each in every step
 *         last    as batch, but only the last logits asked for and compared
 *   logits [options] greedy CONTAINER N IDS
 *       Generates N tokens after the ids, without a template, and prints theirs.
 *   logits [options] open|touch|text CONTAINER
 *       open   container and model are opened and closed
 *       touch  also evaluates tokens of the whole vocabulary, so that every
 *              expert of a small model is read
 *       text   tokenizes and turns back a sample, and checks the chat format
 *   logits [options] check
 *       Reads lines "VERB TAB CONTAINER" with the three verbs above and answers
 *       each with a line: "ok", or the status number and the sentence.
 *
 *   --fast          precision fast (default exact)
 *   --half          kv f16
 *   --kernels NAME  of waste_model_options, with --fast
 *   --verify        checksums of records
 *   --budget BYTES  --context N
 *   --floor         the smallest budget that opens, found by trying
 *   --slots N       that budget and room for N records in the cache
 *   --buffered  --io-threads N  --lookahead N  --threads N  --cpus LIST
 *                   as in waste_model_options
 *
 * Exit: 0, 1 with the error on stderr, 2 for a wrong command line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "waste.h"

#define TOUCH_ROWS 128

typedef struct list {
    int32_t *id;
    size_t n;
} list;

typedef struct run {
    waste_model *model;
    const list *seq;
    size_t n_seq;
    size_t n_rows; /* of all sequences */
    size_t vocab;
} run;

static int fail(const waste_error *err)
{
    fprintf(stderr, "error %d: %s\n", (int)err->status, err->text);
    return 1;
}

static int usage(const char *what)
{
    fprintf(stderr, "logits: %s; see the head of tests/tools/logits.c\n", what);
    return 2;
}

static void *need(void *p)
{
    if (p) return p;
    fprintf(stderr, "logits: out of memory\n");
    exit(2);
}

/* ---- modes ------------------------------------------------------------- */

/* `wanted` 0: only the last row's logits. */
static int by_sequence(const run *r, float *out, size_t step, int wanted, waste_error *err)
{
    size_t s, i, at = 0;
    waste_status st = WASTE_OK;

    for (s = 0; s < r->n_seq && !st; s++) {
        const list *l = &r->seq[s];
        waste_row *row = need(calloc(l->n, sizeof *row));
        waste_seq *q = NULL;

        st = waste_seq_new(&q, r->model, err);
        for (i = 0; i < l->n && !st; i++) {
            row[i].seq = q;
            row[i].token = l->id[i];
            row[i].logits = wanted || i + 1 == l->n ? out + (at + i) * r->vocab : NULL;
        }
        for (i = 0; i < l->n && !st; i += step)
            st = waste_step(r->model, row + i, l->n - i < step ? l->n - i : step, NULL, NULL, err);
        if (!st && waste_seq_length(q) != (int64_t)l->n) {
            fprintf(stderr, "sequence %zu has length %lld, not %zu\n", s,
                    (long long)waste_seq_length(q), l->n);
            st = WASTE_ARG;
        }
        at += l->n;
        waste_seq_free(q);
        free(row);
    }
    return st;
}

/* Rows of all sequences take turns within a step; how many each gives changes
 * from step to step. */
static int mixed(const run *r, float *out, waste_error *err)
{
    size_t s, turn, left = r->n_rows, step;
    waste_seq **q = need(calloc(r->n_seq, sizeof *q));
    size_t *done = need(calloc(r->n_seq, sizeof *done));
    size_t *start = need(calloc(r->n_seq, sizeof *start));
    waste_row *row = need(calloc(r->n_rows, sizeof *row));
    waste_status st = WASTE_OK;

    for (s = 0; s < r->n_seq && !st; s++) {
        st = waste_seq_new(&q[s], r->model, err);
        if (s) start[s] = start[s - 1] + r->seq[s - 1].n;
    }
    for (step = 0; left && !st; step++) {
        size_t n = 0;

        for (turn = 0; turn < 9; turn++)
            for (s = 0; s < r->n_seq; s++) {
                const list *l = &r->seq[s];

                if (done[s] == l->n || turn > (step * 5 + s * 3) % 9) continue;
                row[n].seq = q[s];
                row[n].token = l->id[done[s]];
                row[n++].logits = out + (start[s] + done[s]++) * r->vocab;
            }
        st = waste_step(r->model, row, n, NULL, NULL, err);
        left -= n;
    }
    for (s = 0; s < r->n_seq; s++) waste_seq_free(q[s]);
    free(q);
    free(done);
    free(start);
    free(row);
    return st;
}

static int run_mode(const run *r, const char *mode, float *out, waste_error *err)
{
    if (!strcmp(mode, "batch")) return by_sequence(r, out, SIZE_MAX, 1, err);
    if (!strcmp(mode, "last")) return by_sequence(r, out, SIZE_MAX, 0, err);
    if (!strcmp(mode, "single")) return by_sequence(r, out, 1, 1, err);
    if (!strcmp(mode, "mixed")) return mixed(r, out, err);
    return usage("unknown mode");
}

/* Where two runs differ in a bit; `last` looks at the last rows only. */
static int same(const run *r, const float *a, const float *b, const char *mode)
{
    size_t s, i, j, row = 0;
    int last = !strcmp(mode, "last");

    for (s = 0; s < r->n_seq; s++)
        for (i = 0; i < r->seq[s].n; i++, row++) {
            if (last && i + 1 < r->seq[s].n) continue;
            for (j = 0; j < r->vocab; j++) {
                float x = a[row * r->vocab + j], y = b[row * r->vocab + j];

                if (!memcmp(&x, &y, sizeof x)) continue;
                fprintf(stderr,
                        "mode %s differs: sequence of %zu, position %zu, logit %zu: "
                        "%.9g, not %.9g\n",
                        mode, r->seq[s].n, i, j, (double)y, (double)x);
                return 0;
            }
        }
    return 1;
}

/* ---- commands ---------------------------------------------------------- */

#define SLOT_TABLE 1024 /* bookkeeping of a cache slot, from above */

/* Bisects for the least budget that waste_model_open takes, and adds to it until
 * the cache has `slots`. */
static int open_at_floor(waste_model **m, const char *path, waste_model_options *opt,
                         uint64_t slots, waste_error *err)
{
    uint64_t lo = 1, hi = (uint64_t)1 << 32, mid;
    waste_model_stats stats;
    waste_status st;

    while (lo < hi) {
        waste_error e = {0};

        mid = lo + (hi - lo) / 2;
        opt->budget = mid;
        st = waste_model_open(m, path, opt, &e);
        waste_model_close(*m);
        *m = NULL;
        if (st && st != WASTE_RAM_BUDGET) {
            *err = e;
            return st;
        }
        if (st)
            lo = mid + 1;
        else
            hi = mid;
    }
    opt->budget = lo;
    st = waste_model_open(m, path, opt, err);
    while (!st && slots) {
        waste_model_stats_get(*m, &stats);
        if (stats.cache_slots >= slots) break;
        opt->budget += (uint64_t)waste_container_info(waste_model_container(*m))->record_bytes *
                           (slots - stats.cache_slots) +
                       SLOT_TABLE;
        waste_model_close(*m);
        *m = NULL;
        st = waste_model_open(m, path, opt, err);
    }
    return st;
}

static int read_list(list *l, const char *text)
{
    char *end;

    l->id = need(calloc(strlen(text) / 2 + 1, sizeof *l->id));
    for (;; text = end + 1) {
        errno = 0;
        l->id[l->n++] = (int32_t)strtol(text, &end, 10);
        if (end == text || errno) return usage("bad id list");
        if (!*end) return 0;
        if (*end != ',') return usage("bad id list");
    }
}

static int write_file(const char *path, const float *data, size_t n)
{
    FILE *f;
    int bad;

    if (!strcmp(path, "-")) return 0;
    f = fopen(path, "wb");
    bad = !f || fwrite(data, sizeof *data, n, f) != n;
    if (f) bad |= fclose(f) != 0;
    if (bad) fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return bad;
}

static int run_modes(const run *r, const char *modes, const char *out)
{
    char text[128], *mode, *next;
    float *first = need(calloc(r->n_rows * r->vocab, sizeof *first));
    float *other = need(calloc(r->n_rows * r->vocab, sizeof *other));
    waste_error err = {0};
    int rc = 0, n = 0;

    snprintf(text, sizeof text, "%s", modes);
    for (mode = text; mode && !rc; mode = next) {
        next = strchr(mode, ',');
        if (next) *next++ = 0;
        rc = run_mode(r, mode, n ? other : first, &err);
        if (rc < 0) rc = fail(&err);
        if (!rc && n++) rc = !same(r, first, other, mode);
    }
    if (!rc) rc = write_file(out, first, r->n_rows * r->vocab);
    free(first);
    free(other);
    return rc;
}

static int command_run(const waste_model_options *options, int at_floor, uint64_t slots, char **arg,
                       int n)
{
    list *seq = need(calloc((size_t)n, sizeof *seq));
    waste_model_options opt = *options;
    waste_model_stats stats;
    waste_error err = {0};
    run r = {0};
    int i, rc = 0;

    r.seq = seq;
    for (i = 3; i < n && !rc; i++) {
        rc = read_list(&seq[r.n_seq], arg[i]);
        r.n_rows += seq[r.n_seq++].n;
    }
    if (!rc && (at_floor ? open_at_floor(&r.model, arg[0], &opt, slots, &err)
                         : waste_model_open(&r.model, arg[0], &opt, &err)))
        rc = fail(&err);
    if (!rc) {
        r.vocab = (size_t)waste_container_info(waste_model_container(r.model))->vocab;
        rc = run_modes(&r, arg[2], arg[1]);
        waste_model_stats_get(r.model, &stats);
        printf("budget %llu memory %llu hits %llu misses %llu slots %llu guesses %llu used %llu "
               "direct %d buffered %d threads %d lookahead %d computing %d\n",
               (unsigned long long)opt.budget, (unsigned long long)stats.memory_bytes,
               (unsigned long long)stats.hits, (unsigned long long)stats.misses,
               (unsigned long long)stats.cache_slots, (unsigned long long)stats.guesses,
               (unsigned long long)stats.guesses_used, stats.banks_direct, stats.banks_buffered,
               stats.io_threads, stats.lookahead, stats.threads);
    }
    waste_model_close(r.model);
    for (i = 0; i < (int)r.n_seq; i++) free(seq[i].id);
    free(seq);
    return rc;
}

static int command_greedy(const waste_model_options *opt, char **arg)
{
    list ids = {0};
    waste_prompt prompt = {0};
    waste_gen_params params;
    waste_gen_token token;
    waste_model *m = NULL;
    waste_gen *g = NULL;
    waste_error err = {0};
    waste_status st;
    int rc = read_list(&ids, arg[2]);

    waste_gen_params_init(&params);
    params.max_tokens = strtoll(arg[1], NULL, 10);
    prompt.tokens = ids.id;
    prompt.n_tokens = ids.n;
    prompt.raw = 1;
    if (!rc) {
        st = waste_model_open(&m, arg[0], opt, &err);
        if (!st) st = waste_gen_open(&g, m, &prompt, &params, &err);
        while (!st) {
            st = waste_gen_next(g, &token, &err);
            if (!st) printf("%d ", (int)token.token);
        }
        printf("\n");
        if (st != WASTE_DONE) rc = fail(&err);
    }
    waste_gen_close(g);
    waste_model_close(m);
    free(ids.id);
    return rc;
}

static waste_status touch(waste_model *m, waste_error *err)
{
    size_t vocab = (size_t)waste_container_info(waste_model_container(m))->vocab, i;
    size_t n = vocab < TOUCH_ROWS ? vocab : TOUCH_ROWS;
    float *logits = need(calloc(vocab, sizeof *logits));
    waste_row row[TOUCH_ROWS] = {{0}};
    waste_seq *q = NULL;
    waste_status st = waste_seq_new(&q, m, err);

    for (i = 0; i < n; i++) {
        row[i].seq = q;
        row[i].token = (int32_t)(i * vocab / n);
        row[i].logits = i + 1 == n ? logits : NULL;
    }
    if (!st) st = waste_step(m, row, n, NULL, NULL, err);
    waste_seq_free(q);
    free(logits);
    return st;
}

static waste_status text_round_trip(const waste_container *c, int markup, waste_error *err)
{
    static const char sample[] = "Hello world 123 \xe4\xb8\x96\xe7\x95\x8c <|open|><|im_end|>\n\n"
                                 "caf\xc3\xa9 \xff\xfe\0\xf0\x9f\x8e\x89!";
    const size_t n = sizeof sample - 1;
    waste_ids ids = {0};
    size_t i, at = 0, bytes;
    waste_status st = waste_tokenize(c, sample, n, markup, &ids, err);

    for (i = 0; i < ids.n && !st; i++) {
        const char *piece = waste_token_bytes(c, ids.id[i], &bytes);

        if (!piece || bytes > n - at || memcmp(piece, sample + at, bytes)) break;
        at += bytes;
    }
    if (!st && at != n) {
        snprintf(err->text, sizeof err->text, "sample text does not come back at byte %zu", at);
        st = err->status = WASTE_FORMAT;
    }
    waste_ids_clear(&ids);
    return st;
}

static waste_status verb(const char *what, const char *path, const waste_model_options *opt,
                         waste_error *err)
{
    waste_container *c = NULL;
    waste_model *m = NULL;
    waste_status st;

    if (!strcmp(what, "text")) {
        st = waste_container_open(&c, path, NULL, err);
        if (!st && waste_container_info(c)->has_tokenizer) {
            st = text_round_trip(c, 0, err);
            if (!st) st = text_round_trip(c, 1, err);
        }
        if (!st) st = waste_container_check_chat(c, err);
        waste_container_close(c);
        return st;
    }
    st = waste_model_open(&m, path, opt, err);
    if (!st && !strcmp(what, "touch")) st = touch(m, err);
    waste_model_close(m);
    return st;
}

static int is_verb(const char *s)
{
    return !strcmp(s, "open") || !strcmp(s, "touch") || !strcmp(s, "text");
}

static int command_check(const waste_model_options *opt)
{
    char line[8192], *path;

    while (fgets(line, sizeof line, stdin)) {
        waste_error err = {0};
        waste_status st;

        line[strcspn(line, "\n")] = 0;
        path = strchr(line, '\t');
        if (path) *path++ = 0;
        if (!path || !is_verb(line)) return usage("bad line");
        st = verb(line, path, opt, &err);
        if (!st && !err.text[0])
            printf("ok\n");
        else if (st == err.status && err.text[0])
            printf("%d %s\n", (int)st, err.text);
        else /* a status without a sentence, or the other way round */
            printf("99 status %d, but the error is %d: %s\n", (int)st, (int)err.status, err.text);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    waste_model_options opt = {.precision = WASTE_PRECISION_EXACT};
    waste_error err = {0};
    int i, at_floor = 0;
    uint64_t slots = 0;

    for (i = 1; i < argc && !strncmp(argv[i], "--", 2); i++) {
        if (!strcmp(argv[i], "--fast"))
            opt.precision = WASTE_PRECISION_FAST;
        else if (!strcmp(argv[i], "--half"))
            opt.kv = WASTE_KV_F16;
        else if (!strcmp(argv[i], "--kernels") && i + 1 < argc)
            opt.kernels = argv[++i];
        else if (!strcmp(argv[i], "--verify"))
            opt.verify = 1;
        else if (!strcmp(argv[i], "--floor"))
            at_floor = 1;
        else if (!strcmp(argv[i], "--buffered"))
            opt.buffered = 1;
        else if (!strcmp(argv[i], "--io-threads") && i + 1 < argc)
            opt.io_threads = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--lookahead") && i + 1 < argc)
            opt.lookahead = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            opt.threads = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--cpus") && i + 1 < argc)
            opt.cpus = argv[++i];
        else if (!strcmp(argv[i], "--slots") && i + 1 < argc)
            at_floor = 1, slots = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--budget") && i + 1 < argc)
            opt.budget = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--context") && i + 1 < argc)
            opt.context = strtoll(argv[++i], NULL, 10);
        else
            return usage("unknown option");
    }
    argv += i;
    argc -= i;
    if (argc >= 5 && !strcmp(argv[0], "run"))
        return command_run(&opt, at_floor, slots, argv + 1, argc - 1);
    if (argc == 4 && !strcmp(argv[0], "greedy")) return command_greedy(&opt, argv + 1);
    if (argc == 1 && !strcmp(argv[0], "check")) return command_check(&opt);
    if (argc == 2 && is_verb(argv[0])) return verb(argv[0], argv[1], &opt, &err) ? fail(&err) : 0;
    return usage("what to do?");
}
