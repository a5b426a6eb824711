/* Hotlists: see store/usage.h. Called by whoever opens or saves a model; nothing
 * is shared. What the public interface offers on top is in stats.c. */
#include "store/usage.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/plat.h"

#define MAGIC     0x47535557u /* "WUSG" */
#define VERSION   1u
#define HEADER    16u
#define ENTRY     16u
#define MAX_BYTES ((uint64_t)1 << 26) /* of a file worth reading: four million entries */

static uint32_t get16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const unsigned char *p)
{
    return get16(p) | get16(p + 2) << 16;
}

static void put(waste_buf *b, uint64_t v, int bytes)
{
    for (; bytes > 0; bytes--, v >>= 8) waste_buf_byte(b, (char)(v & 0xff));
}

/* ---- order ---- */

static int by_wish(const void *pa, const void *pb)
{
    const waste_usage_row *a = pa, *b = pb;

    if (a->hits != b->hits) return a->hits > b->hits ? -1 : 1;
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    return (a->expert > b->expert) - (a->expert < b->expert);
}

void waste_usage_sort(waste_usage_row *rows, size_t n)
{
    if (n > 1) qsort(rows, n, sizeof *rows, by_wish);
}

/* ---- reading ---- */

static size_t take_entries(waste_usage_row *to, const unsigned char *p, size_t n,
                           const waste_bank_shape *shape)
{
    size_t taken = 0;

    for (; n > 0; n--, p += ENTRY) {
        const int layer = (int)get16(p), expert = (int)get16(p + 2);
        const uint32_t hits = get32(p + 4);

        if (layer < shape->first_moe || layer >= shape->layers || expert >= shape->experts || !hits)
            continue;
        to[taken].layer = layer;
        to[taken].expert = expert;
        to[taken++].hits = hits;
    }
    return taken;
}

size_t waste_usage_read(waste_usage_row **rows, const char *path, const waste_bank_shape *shape)
{
    waste_error ignored = {0};
    char *data;
    size_t bytes, n = 0;

    *rows = NULL;
    if (waste_file_load(path, MAX_BYTES, &data, &bytes, &ignored)) return 0;
    if (bytes >= HEADER + ENTRY && get32((unsigned char *)data) == MAGIC)
        *rows = waste_mem_array((bytes - HEADER) / ENTRY, sizeof **rows);
    if (*rows)
        n = take_entries(*rows, (unsigned char *)data + HEADER, (bytes - HEADER) / ENTRY, shape);
    waste_mem_free(data);
    waste_usage_sort(*rows, n);
    if (n) return n;
    waste_mem_free(*rows);
    *rows = NULL;
    return 0;
}

/* ---- writing ---- */

static waste_status may_replace(const char *path, waste_error *err)
{
    unsigned char magic[4] = {0};
    waste_error ignored = {0};
    waste_file f = {WASTE_FILE_CLOSED};
    uint64_t size = 0;
    int ours;

    if (!waste_path_exists(path)) return WASTE_OK;
    ours = !waste_file_open(&f, path, &ignored) && !waste_file_size(&f, path, &size, &ignored) &&
           (size == 0 ||
            (size >= sizeof magic && !waste_file_read(&f, path, magic, sizeof magic, 0, &ignored) &&
             get32(magic) == MAGIC));
    waste_file_close(&f);
    if (ours) return WASTE_OK;
    return waste_fail(err, WASTE_ARG, "%s is there and is no usage file; it is left alone", path);
}

waste_status waste_usage_write(const char *path, const waste_usage_row *rows, size_t n,
                               uint64_t clock, waste_error *err)
{
    waste_buf b = {0};
    waste_status st = may_replace(path, err);
    size_t i;

    if (st) return st;
    put(&b, MAGIC, 4);
    put(&b, VERSION, 4);
    put(&b, clock, 8);
    for (i = 0; i < n; i++) {
        if (rows[i].layer > UINT16_MAX || rows[i].expert > UINT16_MAX) continue;
        put(&b, (uint64_t)rows[i].layer, 2);
        put(&b, (uint64_t)rows[i].expert, 2);
        put(&b, rows[i].hits, 4);
        put(&b, 0, 4); /* last_seen: the counts are decayed already */
        put(&b, 0, 4);
    }
    st = b.failed ? waste_fail(err, WASTE_NOMEM, "out of memory writing %s", path)
                  : waste_file_publish(path, b.data, b.len, err);
    waste_buf_clear(&b);
    return st;
}
