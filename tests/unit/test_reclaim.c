/* convert/reclaim through whole conversions: shards go when the last that needs them
 * is on disk, in an order that a crash cannot hurt, and not otherwise. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/plat.h"
#include "convert/disk.h"
#include "emulated.h"
#include "lib/checkpoint.h"

static char source[256], target[300];

static int make_dirs(void **state)
{
    (void)state;
    test_dir(source);
    snprintf(target, sizeof target, "%s.waste", source);
    return 0;
}

static int remove_dirs(void **state)
{
    (void)state;
    test_dir_remove(source);
    test_dir_remove(target);
    return 0;
}

static void clean(int flags)
{
    test_dir_remove(source);
    test_dir_remove(target);
    assert_int_equal(waste_path_make_dir(source, NULL), WASTE_OK);
    ckpt_model(source, flags, NULL);
}

static int in(const char *dir, const char *name)
{
    char path[700];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return waste_path_exists(path);
}

static int shards(void)
{
    return in(source, "model-1.safetensors") + 2 * in(source, "model-2.safetensors") +
           4 * in(source, "model-3.safetensors");
}

static char *load(const char *dir, const char *name)
{
    char path[700], *data;
    size_t n;
    waste_error err = {0};

    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (waste_file_load(path, 1 << 28, &data, &n, &err)) fail_msg("%s", err.text);
    return data;
}

static void remove_file(const char *dir, const char *name)
{
    char path[700];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(unlink(path), 0);
}

/* Runs until done, or until a row of this phase and layer was given. */
static waste_status run(const waste_convert_options *opt, const char *until, int layer,
                        waste_error *err)
{
    waste_convert *c;
    waste_convert_row row;
    waste_status st;

    memset(err, 0, sizeof *err);
    st = waste_convert_open(&c, source, target, opt, err);
    while (!st) {
        st = waste_convert_next(c, &row, err);
        if (!st && until && strcmp(row.phase, until) == 0 && row.layer == layer) break;
    }
    waste_convert_close(c);
    return st;
}

static void expect(waste_status got, waste_status want, const waste_error *err, const char *about)
{
    if (got != want) fail_msg("status %d, wanted %d: %s", got, want, err->text);
    if (!strstr(err->text, about)) fail_msg("\"%s\" does not say \"%s\"", err->text, about);
}

static const char *const names[] = {"manifest.json", "trunk.bin", "codebooks.bin", "experts-L1.bin",
                                    "experts-L2.bin"};

static void whole(uint64_t hash[5])
{
    size_t i, k, n;

    for (i = 0; i < 5; i++) {
        char path[700], *data;
        snprintf(path, sizeof path, "%s/%s", target, names[i]);
        assert_int_equal(waste_file_load(path, 1 << 28, &data, &n, NULL), WASTE_OK);
        hash[i] = 14695981039346656037u;
        for (k = 0; k < n; k++) hash[i] = (hash[i] ^ (unsigned char)data[k]) * 1099511628211u;
        waste_mem_free(data);
    }
    assert_false(in(target, ".convert"));
}

static uint64_t plan_of(const waste_convert_options *opt, const char *kind)
{
    waste_convert_options o = *opt;
    waste_convert *c;
    waste_convert_row row;
    waste_error err = {0};
    uint64_t bytes = UINT64_MAX;

    o.plan = 1;
    assert_int_equal(waste_convert_open(&c, source, target, &o, &err), WASTE_OK);
    while (waste_convert_next(c, &row, &err) == WASTE_OK) {
        if (strcmp(row.phase, "problem") == 0) fail_msg("%s", row.note);
        if (row.kind && strcmp(row.kind, kind) == 0) bytes = row.bytes;
    }
    waste_convert_close(c);
    assert_true(bytes != UINT64_MAX);
    return bytes;
}

static uint64_t bytes_now(void)
{
    char work[400];

    snprintf(work, sizeof work, "%s/.convert", target);
    return waste_disk_dir_bytes(source) + waste_disk_dir_bytes(target) + waste_disk_dir_bytes(work);
}

/* ---- what must hold ------------------------------------------------------------------ */

static void spent_shards_go_and_the_ledger_says_so(void **state)
{
    const waste_convert_options on = {.reclaim = "on"};
    static const int left[] = {6, 4, 0}; /* after trunk, layer 1, layer 2 */
    waste_convert *c;
    waste_convert_row row;
    waste_error err = {0};
    uint64_t want[5], got[5], peak, before, most = 0;
    int n = 0;
    char *ledger;
    (void)state;
    clean(CKPT_SHARDS);
    expect(run(NULL, NULL, 0, &err), WASTE_DONE, &err, "");
    whole(want);
    assert_int_equal(shards(), 7);
    test_dir_remove(target);
    peak = plan_of(&on, "peak_disk");
    assert_false(waste_path_exists(target));
    before = bytes_now();
    memset(&err, 0, sizeof err);
    assert_int_equal(waste_convert_open(&c, source, target, &on, &err), WASTE_OK);
    while (waste_convert_next(c, &row, &err) == WASTE_OK) {
        if (bytes_now() > most) most = bytes_now();
        if (strcmp(row.phase, "reclaim") != 0) continue;
        assert_non_null(strstr(row.note, "1 shards deleted"));
        assert_true(row.bytes > 0);
        assert_int_equal(shards(), left[n++]);
    }
    waste_convert_close(c);
    if (err.status) fail_msg("%s", err.text);
    assert_int_equal(n, 3);
    whole(got);
    assert_memory_equal(got, want, sizeof want);
    ledger = load(source, ".reclaimed");
    assert_string_equal(ledger, "model-1.safetensors\nmodel-2.safetensors\nmodel-3.safetensors\n");
    waste_mem_free(ledger);
    assert_true(most <= before + peak); /* as planned */
}

static void a_dry_run_deletes_nothing(void **state)
{
    const waste_convert_options dry = {.reclaim = "dry"};
    waste_convert *c;
    waste_convert_row row;
    waste_error err = {0};
    uint64_t all, last = 0;
    int n = 0;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    clean(CKPT_SHARDS);
    all = waste_disk_dir_bytes(source);
    assert_int_equal(waste_convert_open(&c, source, target, &dry, &err), WASTE_OK);
    while (waste_convert_next(c, &row, &err) == WASTE_OK) {
        if (strcmp(row.phase, "reclaim") != 0) continue;
        assert_non_null(strstr(row.note, "could be deleted"));
        assert_true(row.bytes > last);
        last = row.bytes;
        n++;
    }
    waste_convert_close(c);
    assert_int_equal(n, 3);
    assert_true(last < all && last > all / 2); /* config and index are no shards */
    assert_int_equal(shards(), 7);
    assert_false(in(source, ".reclaimed"));
}

static void an_interrupted_one_is_gone_on_with(void **state)
{
    waste_convert_options opt = {.reclaim = "on"};
    waste_error err;
    uint64_t want[5], got[5];
    int i;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    clean(CKPT_SHARDS);
    expect(run(NULL, NULL, 0, &err), WASTE_DONE, &err, "");
    whole(want);
    for (i = 0; i < 4; i++) { /* i & 1: without asking for it again */
        clean(CKPT_SHARDS);
        opt.reclaim = "on";
        expect(run(&opt, i < 2 ? "codebooks" : "reclaim", i < 2 ? 2 : -1, &err), WASTE_OK, &err,
               "");
        assert_int_equal(shards(), i < 2 ? 4 : 6);
        assert_true(plan_of(&opt, "found") > 0); /* and no problem */
        if (i & 1) opt.reclaim = NULL;
        expect(run(&opt, NULL, 0, &err), WASTE_DONE, &err, "");
        assert_int_equal(shards(), i & 1 ? (i < 2 ? 4 : 6) : 0);
        whole(got);
        /* the time of a shard is not in a container */
        assert_memory_equal(got, want, sizeof want);
    }
}

static void recorded_but_not_deleted_is_no_loss(void **state)
{
    const waste_convert_options on = {.reclaim = "on"};
    waste_error err;
    (void)state;
    clean(CKPT_SHARDS);
    test_text(source, ".reclaimed", "model-1.safetensors\nmodel-2.safetensors\n");
    expect(run(&on, NULL, 0, &err), WASTE_DONE, &err, "");
    assert_int_equal(shards(), 0);
}

static void what_nobody_reads_holds_its_shard(void **state)
{
    const waste_convert_options on = {.reclaim = "on"};
    const waste_convert_options trial = {.reclaim = "on", .layers = "1"};
    waste_error err;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    /* the block for multi-token prediction, in the last shard */
    clean(CKPT_SHARDS | CKPT_DEEPSEEK);
    expect(run(&on, NULL, 0, &err), WASTE_DONE, &err, "");
    assert_int_equal(shards(), 4);
    /* a layer that a trial leaves out */
    clean(CKPT_SHARDS);
    expect(run(&trial, NULL, 0, &err), WASTE_DONE, &err, "");
    assert_int_equal(shards(), 4);
    expect(run(&on, NULL, 0, &err), WASTE_DONE, &err, "");
    assert_int_equal(shards(), 0);
}

/* ---- refusals ------------------------------------------------------------------------ */

static void refuses_what_cannot_be_told(void **state)
{
    const waste_convert_options on = {.reclaim = "on"}, odd = {.reclaim = "yes"};
    char inside[400];
    waste_convert *c;
    waste_error err;
    (void)state;
    clean(CKPT_SHARDS);
    expect(run(&odd, NULL, 0, &err), WASTE_ARG, &err, "reclaim is \"yes\"");
    memset(&err, 0, sizeof err);
    snprintf(inside, sizeof inside, "%s/sub", source);
    expect(waste_convert_open(&c, source, inside, &on, &err), WASTE_ARG, &err, "inside each other");
    /* absent, whatever else the ledger has */
    test_text(source, ".reclaimed", "model-22.safetensors\n");
    remove_file(source, "model-2.safetensors");
    expect(run(&on, NULL, 0, &err), WASTE_IO, &err, "model-2.safetensors is missing (1 of 3");
    test_text(source, ".reclaimed", "model-2.safetensors\n");
    expect(run(&on, NULL, 0, &err), WASTE_IO, &err, "model-2.safetensors is missing (1 of 3");
    /* there, and not finished */
    clean(CKPT_SHARDS);
    test_text(source, ".download-state", "model-1.safetensors\nmodel-3.safetensors\r\n");
    expect(run(&on, NULL, 0, &err), WASTE_FORMAT, &err,
           "model-2.safetensors is not listed in .download-state");
    assert_int_equal(shards(), 7);
    assert_false(waste_path_exists(target));
}

static void refuses_when_what_is_gone_is_needed(void **state)
{
    const waste_convert_options on = {.reclaim = "on"};
    const waste_convert_options other = {.reclaim = "on", .trunk_bits = 8, .overwrite = 1};
    waste_error err;
    (void)state;
    clean(CKPT_SHARDS);
    expect(run(&on, "codebooks", 2, &err), WASTE_OK, &err, "");
    assert_int_equal(shards(), 4);
    /* other options: what is finished cannot be made again */
    expect(run(&other, NULL, 0, &err), WASTE_ARG, &err, "were reclaimed: it is not touched");
    assert_true(in(target, ".convert/trunk.bin"));
    /* the ledger is the source's own record */
    test_text(source, ".reclaimed", "model-2.safetensors\n");
    expect(run(&on, NULL, 0, &err), WASTE_FORMAT, &err,
           "model-1.safetensors is missing, and .reclaimed does not have it");
    test_text(source, ".reclaimed", "model-1.safetensors\nmodel-2.safetensors");
    remove_file(target, ".convert/experts-L1.bin");
    {
        const waste_convert_options plan = {.plan = 1};
        waste_convert *c;
        waste_convert_row row;
        int said = 0;
        memset(&err, 0, sizeof err);
        assert_int_equal(waste_convert_open(&c, source, target, &plan, &err), WASTE_OK);
        while (waste_convert_next(c, &row, &err) == WASTE_OK)
            said += strcmp(row.phase, "problem") == 0 &&
                    strstr(row.note, "model-2.safetensors was reclaimed, and layer 1 is") != NULL;
        waste_convert_close(c);
        assert_int_equal(said, 1);
    }
    expect(run(&on, NULL, 0, &err), WASTE_FORMAT, &err,
           "model-2.safetensors was reclaimed, and layer 1 is still to be converted");
    remove_file(target, ".convert/trunk.bin");
    expect(run(&on, NULL, 0, &err), WASTE_FORMAT, &err,
           "was reclaimed, and the trunk is still to be converted");
    assert_int_equal(shards(), 4);
}

static void an_unsound_bank_keeps_its_shards(void **state)
{
    const waste_convert_options on = {.reclaim = "on"}, plain = {0};
    waste_error err;
    char *bank, path[700];
    size_t n;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    clean(CKPT_SHARDS);
    expect(run(&plain, "codebooks", 2, &err), WASTE_OK, &err, "");
    snprintf(path, sizeof path, "%s/.convert/experts-L1.bin", target);
    assert_int_equal(waste_file_load(path, 1 << 28, &bank, &n, &err), WASTE_OK);
    bank[n / 2] ^= 1; /* the magic of the third of four records */
    test_write(target, ".convert/experts-L1.bin", bank, n);
    waste_mem_free(bank);
    expect(run(&on, "reclaim", -1, &err), WASTE_OK, &err, "");
    assert_int_equal(shards(), 6); /* the trunk's, and not the layer's */
    expect(run(&on, NULL, 0, &err), WASTE_DONE, &err, "");
    assert_int_equal(shards(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spent_shards_go_and_the_ledger_says_so),
        cmocka_unit_test(a_dry_run_deletes_nothing),
        cmocka_unit_test(an_interrupted_one_is_gone_on_with),
        cmocka_unit_test(recorded_but_not_deleted_is_no_loss),
        cmocka_unit_test(what_nobody_reads_holds_its_shard),
        cmocka_unit_test(refuses_what_cannot_be_told),
        cmocka_unit_test(refuses_when_what_is_gone_is_needed),
        cmocka_unit_test(an_unsound_bank_keeps_its_shards),
    };
    return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
