/* Model options: see ext_wish.h. */
#include "ext_wish.h"

#include <stddef.h>
#include <string.h>

#include "base/pool.h"
#include "ext_args.h"
#include "ext_usage.h"

SQLITE_EXTENSION_INIT3

#define MAX_IO_THREADS 16
#define MAX_LOOKAHEAD  64

/* Bytes, or a decimal number with K, M, G or T (powers of two), then B or iB if
 * one likes. By hand, since strtod depends on the host's locale. */
static int parse_size(const char *s, size_t n, uint64_t *out)
{
    static const char units[] = "KMGT";
    double v = 0, place = 1;
    size_t i = 0;
    int digits = 0, shift = 0;

    for (; i < n && s[i] >= '0' && s[i] <= '9'; i++, digits++) v = v * 10 + (s[i] - '0');
    if (i < n && s[i] == '.')
        for (i++; i < n && s[i] >= '0' && s[i] <= '9'; i++, digits++)
            v += (s[i] - '0') * (place /= 10);
    if (i < n && s[i] == ' ') i++;
    if (i < n) {
        const char *unit = strchr(units, s[i] & ~0x20);
        if (unit && *unit) {
            shift = 10 * (int)(unit - units + 1);
            i++;
            if (i < n && s[i] == 'i') i++;
        }
    }
    if (i < n && (s[i] | 0x20) == 'b') i++;
    v *= (double)((uint64_t)1 << shift);
    if (i != n || !digits || !(v >= 1 && v <= 4611686018427387904.0)) return -1;
    *out = (uint64_t)v;
    return 0;
}

static waste_status read_budget(const waste_json *j, void *into, waste_error *err)
{
    size_t bytes;
    const char *text = waste_json_text(j, &bytes);
    int64_t v;

    (void)err;
    if (text) return parse_size(text, bytes, into) ? WASTE_ARG : WASTE_OK;
    if (waste_json_int(j, &v) || v < 1) return WASTE_ARG;
    *(uint64_t *)into = (uint64_t)v;
    return WASTE_OK;
}

static waste_status read_precision(const waste_json *j, void *into, waste_error *err)
{
    static const char *const words[] = {"fast", "exact", NULL};
    int i = waste_args_word(j, words);

    (void)err;
    if (i < 0) return WASTE_ARG;
    *(waste_precision *)into = i ? WASTE_PRECISION_EXACT : WASTE_PRECISION_FAST;
    return WASTE_OK;
}

static waste_status read_kv(const waste_json *j, void *into, waste_error *err)
{
    static const char *const words[] = {"f32", "f16", NULL};
    int i = waste_args_word(j, words);

    (void)err;
    if (i < 0) return WASTE_ARG;
    *(waste_kv *)into = i ? WASTE_KV_F16 : WASTE_KV_F32;
    return WASTE_OK;
}

static waste_status read_direct_io(const waste_json *j, void *into, waste_error *err)
{
    int64_t n = -1;
    int on;

    (void)err;
    if (waste_json_bool(j, &on)) {
        if (waste_json_int(j, &n) || n < 0 || n > 1) return WASTE_ARG;
        on = (int)n;
    }
    *(int *)into = !on;
    return WASTE_OK;
}

static int read_count(const waste_json *j, int64_t most, int *into)
{
    int64_t n;

    if (waste_json_int(j, &n) || n < 0 || n > most) return -1;
    *into = (int)n;
    return 0;
}

static waste_status read_io_threads(const waste_json *j, void *into, waste_error *err)
{
    (void)err;
    return read_count(j, MAX_IO_THREADS, into) ? WASTE_ARG : WASTE_OK;
}

/* 0 is none, for which the engine says -1: its 0 is the default. */
static waste_status read_lookahead(const waste_json *j, void *into, waste_error *err)
{
    int n;

    (void)err;
    if (read_count(j, MAX_LOOKAHEAD, &n)) return WASTE_ARG;
    *(int *)into = n ? n : -1;
    return WASTE_OK;
}

static waste_status read_threads(const waste_json *j, void *into, waste_error *err)
{
    (void)err;
    return read_count(j, WASTE_POOL_MOST, into) ? WASTE_ARG : WASTE_OK;
}

/* Checked where the model opens, and here so that a wrong one is named at once. */
static waste_status read_cpus(const waste_json *j, void *into, waste_error *err)
{
    waste_error wrong = {0};
    waste_cpus list;
    size_t bytes;
    const char *text = waste_json_text(j, &bytes);
    waste_status st;

    if (!text || bytes >= WASTE_CPUS_TEXT || memchr(text, 0, bytes)) return WASTE_ARG;
    st = waste_cpus_parse(&list, text, &wrong);
    if (st) return st == WASTE_ARG ? st : waste_fail(err, st, "%s", wrong.text);
    memcpy(into, text, bytes + 1);
    return WASTE_OK;
}

typedef struct fields {
    waste_wish wish;
    int probe; /* no option of a model, but told where all of them are */
} fields;

#define OF_MODEL 1
#define OF_PLAN  2
#define AT(f)    offsetof(fields, wish.f)

/* Rows in the order of the WASTE_GIVEN bits. */
static const waste_option model_options[] = {
    {"budget", WASTE_OPTION_CUSTOM, OF_MODEL, AT(options.budget), 0, 0,
     "bytes, or a size like \"46G\" or \"512MiB\"", read_budget},
    {"context", WASTE_OPTION_INT, OF_MODEL, AT(options.context), 1, 1 << 30,
     "an integer from 1 to 1073741824", NULL},
    {"precision", WASTE_OPTION_CUSTOM, OF_MODEL, AT(options.precision), 0, 0,
     "\"fast\" or \"exact\"", read_precision},
    {"verify", WASTE_OPTION_BOOL, OF_MODEL, AT(options.verify), 0, 0, "true or false", NULL},
    {"direct_io", WASTE_OPTION_CUSTOM, OF_MODEL, AT(options.buffered), 0, 0, "true or false",
     read_direct_io},
    {"io_threads", WASTE_OPTION_CUSTOM, OF_MODEL, AT(options.io_threads), 0, 0,
     "an integer from 0 to 16 (0: the default)", read_io_threads},
    {"lookahead", WASTE_OPTION_CUSTOM, OF_MODEL, AT(options.lookahead), 0, 0,
     "an integer from 0 to 64", read_lookahead},
    {"exclusive", WASTE_OPTION_BOOL, OF_MODEL, AT(options.exclusive), 0, 0, "true or false", NULL},
    {"usage", WASTE_OPTION_CUSTOM, OF_MODEL, AT(usage), 0, 0,
     "false, true, \"table\", or a path (it contains a /)", waste_usage_option},
    {"threads", WASTE_OPTION_CUSTOM, OF_MODEL, AT(options.threads), 0, 0,
     "an integer from 0 to 64 (0: the default)", read_threads},
    {"cpus", WASTE_OPTION_CUSTOM, OF_MODEL, AT(cpus), 0, 0,
     "CPU numbers and ranges from 0 to 1023, like \"0-5,8\"", read_cpus},
    {"kv", WASTE_OPTION_CUSTOM, OF_MODEL, AT(options.kv), 0, 0, "\"f32\" or \"f16\"", read_kv},
    {"sequences", WASTE_OPTION_INT, OF_MODEL, AT(options.sequences), 1, 4096,
     "an integer from 1 to 4096", NULL},
    {"probe", WASTE_OPTION_BOOL, OF_PLAN, offsetof(fields, probe), 0, 0, "true or false", NULL}};

static waste_status read_wish(waste_wish *wish, int *probe, unsigned groups,
                              const waste_json *object, const char *who, waste_error *err)
{
    fields f;
    unsigned given;
    waste_status st;

    f.wish = *wish;
    f.probe = 0;
    st = waste_args_read(model_options, sizeof model_options / sizeof *model_options, groups, &f,
                         &given, object, who, err);
    *wish = f.wish;
    if (wish->cpus[0]) wish->options.cpus = wish->cpus;
    wish->given |= given & WASTE_GIVEN_ALL;
    if (probe) *probe = f.probe;
    return st;
}

waste_status waste_wish_read(waste_wish *wish, const waste_json *object, const char *who,
                             waste_error *err)
{
    return read_wish(wish, NULL, OF_MODEL, object, who, err);
}

waste_status waste_wish_read_probe(waste_wish *wish, int *probe, const waste_json *object,
                                   const char *who, waste_error *err)
{
    return read_wish(wish, probe, OF_MODEL | OF_PLAN, object, who, err);
}
