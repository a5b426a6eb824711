/* Sets of CPUs as text: see cpus.h. Owns no state. */
#include "base/cpus.h"

#include <string.h>

static const char *skip_blanks(const char *s)
{
    while (*s == ' ' || *s == '\t') s++;
    return s;
}

/* A CPU number and the blanks around it; NULL when there is none. */
static const char *number(const char *s, int *to)
{
    s = skip_blanks(s);
    if (*s < '0' || *s > '9') return NULL;
    for (*to = 0; *s >= '0' && *s <= '9'; s++) {
        *to = *to * 10 + (*s - '0');
        if (*to >= WASTE_CPUS_MOST) return NULL;
    }
    return skip_blanks(s);
}

int waste_cpus_read(waste_cpus *out, const char *s)
{
    int a, b;

    memset(out, 0, sizeof *out);
    do {
        s = number(s, &a);
        if (!s) return -1;
        b = a;
        if (*s == '-') s = number(s + 1, &b);
        if (!s || b < a) return -1;
        for (; a <= b; a++) out->bit[a / 64] |= (uint64_t)1 << a % 64;
    } while (*s++ == ',');
    return s[-1] ? -1 : 0;
}

waste_status waste_cpus_parse(waste_cpus *out, const char *text, waste_error *err)
{
    if (waste_cpus_read(out, text))
        return waste_fail(err, WASTE_ARG,
                          "cpus '%.100s' is not a list of CPU numbers and ranges from 0 to %d like "
                          "\"0-5,8\"",
                          text, WASTE_CPUS_MOST - 1);
    if (!waste_cpus_can_bind())
        return waste_fail(err, WASTE_UNSUPPORTED,
                          "cpus '%.100s': threads cannot be bound to CPUs on this system", text);
    return WASTE_OK;
}

int waste_cpus_has(const waste_cpus *c, int cpu)
{
    return (int)(c->bit[cpu / 64] >> cpu % 64 & 1);
}

int waste_cpus_count(const waste_cpus *c)
{
    int n = 0, i;

    for (i = 0; c && i < WASTE_CPUS_MOST; i++) n += waste_cpus_has(c, i);
    return n;
}

int waste_cpus_pick(const waste_cpus *c, int i)
{
    int left = i % waste_cpus_count(c), cpu;

    for (cpu = 0; !waste_cpus_has(c, cpu) || left-- > 0; cpu++) continue;
    return cpu;
}
