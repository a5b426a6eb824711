/* Spent shards: see reclaim.h. Owns, per shard, the set of readers it waits for. */
#include "convert/reclaim.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "convert/disk.h"

#define LEDGER  ".reclaimed"
#define READERS (WASTE_MAX_LAYERS + 1) /* the trunk, then the layers */

typedef struct shard {
    unsigned char waits[READERS];
    int n_waits;
    int held;     /* holds something that nobody reads */
    int released; /* or never was there */
} shard;

struct waste_reclaim {
    const waste_source *source;
    waste_reclaim_mode mode;
    shard *shard;
};

int waste_reclaim_parse(const char *name, waste_reclaim_mode *mode)
{
    static const char *const names[] = {"off", "dry", "on"};
    int i;

    *mode = WASTE_RECLAIM_OFF;
    for (i = 0; name && i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *mode = (waste_reclaim_mode)i;
            return 0;
        }
    return name ? -1 : 0;
}

static int slot_of(int reader)
{
    return reader == WASTE_NAMES_TRUNK ? 0 : reader + 1;
}

static void list_readers(waste_reclaim *r, const waste_settings *c)
{
    size_t i;

    for (i = 0; i < waste_source_count(r->source); i++) {
        const waste_st_tensor *t = waste_source_at(r->source, i);
        shard *h = r->shard + waste_source_shard_of(r->source, t);
        const int reader = waste_names_reader(t->name, c);
        if (reader == WASTE_NAMES_NOBODY) {
            h->held = 1;
        } else if (!h->waits[slot_of(reader)]) {
            h->waits[slot_of(reader)] = 1;
            h->n_waits++;
        }
    }
}

/* One name a line. */
static int is_in_ledger(const char *ledger, const char *name)
{
    const size_t n = strlen(name);
    const char *at = ledger;

    while (at && *at) {
        if (strncmp(at, name, n) == 0 && (at[n] == '\n' || at[n] == '\r' || !at[n])) return 1;
        at = strchr(at, '\n');
        if (at) at++;
    }
    return 0;
}

static waste_status check_gone(waste_reclaim *r, waste_error *err)
{
    char path[WASTE_PATH_MAX], *ledger = NULL;
    size_t i, bytes;
    waste_source_shard d;
    waste_status st = waste_path_join(path, sizeof path, waste_source_dir(r->source), LEDGER, err);

    if (!st && waste_path_exists(path)) st = waste_file_load(path, 1u << 24, &ledger, &bytes, err);
    for (i = 0; !st && i < waste_source_shards(r->source); i++) {
        waste_source_shard_get(r->source, i, &d);
        if (!d.gone) continue;
        r->shard[i].released = 1;
        if (!ledger || !is_in_ledger(ledger, d.name))
            st = waste_fail(err, WASTE_FORMAT, "%s/%s is missing, and " LEDGER " does not have it",
                            waste_source_dir(r->source), d.name);
    }
    waste_mem_free(ledger);
    return st;
}

waste_status waste_reclaim_open(waste_reclaim **out, const waste_source *s, const waste_settings *c,
                                waste_reclaim_mode mode, waste_error *err)
{
    waste_reclaim *r = waste_mem_zero(sizeof *r);
    waste_status st;

    *out = NULL;
    if (r) r->shard = waste_mem_array(waste_source_shards(s) + 1, sizeof *r->shard);
    if (!r || !r->shard) {
        waste_reclaim_close(r);
        return waste_fail(err, WASTE_NOMEM, "out of memory");
    }
    r->source = s;
    r->mode = mode;
    list_readers(r, c);
    st = check_gone(r, err);
    if (st) {
        waste_reclaim_close(r);
        return st;
    }
    *out = r;
    return WASTE_OK;
}

void waste_reclaim_close(waste_reclaim *r)
{
    if (!r) return;
    waste_mem_free(r->shard);
    waste_mem_free(r);
}

waste_status waste_reclaim_needs(const waste_reclaim *r, int reader, waste_error *err)
{
    waste_source_shard d;
    size_t i;

    for (i = 0; i < waste_source_shards(r->source); i++) {
        waste_source_shard_get(r->source, i, &d);
        if (!d.gone || !r->shard[i].waits[slot_of(reader)]) continue;
        if (reader == WASTE_NAMES_TRUNK)
            return waste_fail(err, WASTE_FORMAT,
                              "%s/%s was reclaimed, and the trunk is still to be converted from it",
                              waste_source_dir(r->source), d.name);
        return waste_fail(err, WASTE_FORMAT,
                          "%s/%s was reclaimed, and layer %d is still to be converted from it",
                          waste_source_dir(r->source), d.name, reader);
    }
    return WASTE_OK;
}

/* Nonzero when the shard waits for nobody any more, as of this reader. */
static int is_spent(shard *h, int reader)
{
    if (h->waits[slot_of(reader)]) {
        h->waits[slot_of(reader)] = 0;
        h->n_waits--;
    }
    if (h->n_waits || h->held || h->released) return 0;
    h->released = 1;
    return 1;
}

/* Recorded and not deleted costs nothing; deleted and not recorded would look like a
 * download that failed. So: header, ledger, deletion. */
static waste_status delete (const waste_reclaim *r, size_t i, const char *name, const char *work,
                            int *gone, char note[200], waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_error why = {0};
    waste_status st = waste_source_keep_header(r->source, i, work, err);

    *gone = 0;
    if (!st) st = waste_path_join(path, sizeof path, waste_source_dir(r->source), LEDGER, err);
    if (!st) st = waste_disk_append_line(path, name, err);
    if (!st) st = waste_path_join(path, sizeof path, waste_source_dir(r->source), name, err);
    if (st) return st;
    *gone = waste_path_delete(path, &why) == WASTE_OK;
    if (!*gone) snprintf(note, 200, "%.199s", why.text);
    return WASTE_OK;
}

waste_status waste_reclaim_done(waste_reclaim *r, int reader, const char *work, int *n,
                                uint64_t *bytes, char note[200], waste_error *err)
{
    waste_source_shard d;
    waste_status st = WASTE_OK;
    size_t i;

    *n = 0;
    *note = 0;
    for (i = 0; !st && i < waste_source_shards(r->source); i++) {
        int gone = 1;
        if (!is_spent(r->shard + i, reader) || r->mode == WASTE_RECLAIM_OFF) continue;
        waste_source_shard_get(r->source, i, &d);
        if (r->mode == WASTE_RECLAIM_ON) st = delete (r, i, d.name, work, &gone, note, err);
        if (st || !gone) continue;
        ++*n;
        *bytes += d.bytes;
    }
    return st;
}

uint64_t waste_reclaim_would(waste_reclaim *r, int reader)
{
    waste_source_shard d;
    uint64_t bytes = 0;
    size_t i;

    for (i = 0; i < waste_source_shards(r->source); i++) {
        if (!is_spent(r->shard + i, reader)) continue;
        waste_source_shard_get(r->source, i, &d);
        bytes += d.bytes;
    }
    return bytes;
}
