/* Plans of conversions, and conversions that the disk or the checkpoint fail: what is
 * said, and that nothing is published or deleted. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conversion.h"
#include "convert/disk.h"
#include "emulated.h"

/* ---- plans --------------------------------------------------------------------------- */

/* All notes of rows of a phase, and the bytes of one kind. */
typedef struct plan {
    char problems[2000], warnings[2000];
    int n_problems;
    uint64_t container, peak_disk, found, trunk;
    double seconds;
} plan;

static void plan_it(plan *p, const waste_convert_options *opt)
{
    waste_convert_options o = opt ? *opt : (waste_convert_options){0};
    waste_convert *c;
    waste_convert_row row;
    waste_error err = {0};

    memset(p, 0, sizeof *p);
    o.plan = 1;
    if (waste_convert_open(&c, source, target, &o, &err)) fail_msg("%s", err.text);
    while (waste_convert_next(c, &row, &err) == WASTE_OK) {
        char *to = strcmp(row.phase, "problem") == 0   ? p->problems
                   : strcmp(row.phase, "warning") == 0 ? p->warnings
                                                       : NULL;
        p->n_problems += to == p->problems;
        if (to) strncat(strncat(to, row.note, 900), "\n", 2);
        if (to || !row.kind) continue;
        if (strcmp(row.kind, "container") == 0) p->container = row.bytes;
        if (strcmp(row.kind, "peak_disk") == 0) p->peak_disk = row.bytes;
        if (strcmp(row.kind, "found") == 0) p->found = row.bytes;
        if (strcmp(row.kind, "trunk") == 0) p->trunk = row.bytes;
        if (strcmp(row.kind, "time") == 0) p->seconds = row.seconds;
    }
    waste_convert_close(c);
}

static void says(const char *text, const char *about)
{
    if (!strstr(text, about)) fail_msg("\"%s\" does not say \"%s\"", text, about);
}

static void says_how_large_it_will_be(void **state)
{
    waste_convert_options trial = {.layers = "1"}, over = {.overwrite = 1};
    char path[600];
    waste_error err;
    uint64_t bytes;
    plan p;
    (void)state;
    begin(CKPT_SHARDS, NULL);
    plan_it(&p, NULL);
    assert_int_equal(p.n_problems, 0);
    assert_false(waste_path_exists(target));
    assert_true(p.seconds > 0 && p.seconds < 60);
    says(p.warnings, "no tiktoken.model or tokenizer.model");
    expect(run(NULL, &err), WASTE_DONE, &err, "");
    bytes = waste_disk_dir_bytes(target);
    assert_true(bytes <= p.container && p.container < bytes + 200000);
    assert_true(p.peak_disk >= bytes);
    snprintf(path, sizeof path, "%s/trunk.bin", target);
    assert_int_equal(waste_disk_size(path), p.trunk);
    /* now there is a container */
    plan_it(&p, NULL);
    says(p.problems, "manifest.json exists");
    plan_it(&p, &over);
    assert_int_equal(p.n_problems, 0);
    /* what a trial has done is found */
    test_dir_remove(target);
    expect(run(&trial, &err), WASTE_DONE, &err, "");
    plan_it(&p, NULL);
    assert_int_equal(p.n_problems, 0);
    assert_true(p.found > p.trunk);
    over.overwrite = 0;
    over.trunk_bits = 8;
    plan_it(&p, &over);
    says(p.problems, "unfinished conversion");
}

static void names_everything_that_would_fail(void **state)
{
    waste_convert *c;
    waste_convert_row row;
    waste_error err = {0};
    char path[600];
    plan p;
    (void)state;
    begin(CKPT_SHARDS, "model.layers.2.block_sparse_moe.experts.3.w2.weight");
    plan_it(&p, NULL);
    says(p.problems, "lacks 1 matrices of experts, the first is "
                     "model.layers.2.block_sparse_moe.experts.3.w2.weight");
    snprintf(path, sizeof path, "%s/model-2.safetensors", source);
    unlink(path);
    plan_it(&p, NULL);
    says(p.problems, "1 of 3 shards cannot be read, the first: ");
    says(p.problems, "model-2.safetensors is missing");
    says(p.problems, "tensors, the first is model.layers.1.");
    says(p.problems, "lacks 13 matrices of experts");
    test_text(source, "model-2.safetensors", "short");
    plan_it(&p, NULL);
    says(p.problems, "model-2.safetensors has 5 bytes");
    test_text(source, "config.json", "{\"num_hidden_layers\":3}");
    plan_it(&p, NULL);
    says(p.problems, "has no hidden_size");
    /* while another conversion is at work */
    begin(0, NULL);
    assert_int_equal(waste_convert_open(&c, source, target, NULL, &err), WASTE_OK);
    assert_int_equal(waste_convert_next(c, &row, &err), WASTE_OK);
    plan_it(&p, NULL);
    says(p.problems, "in use by another conversion");
    waste_convert_close(c);
}

static void names_tensors_that_nobody_knows(void **state)
{
    static const float x[2] = {1, 2};
    plan p;
    (void)state;
    begin(CKPT_SHARDS | CKPT_DEEPSEEK, NULL);
    plan_it(&p, NULL);
    says(p.warnings, "tensors of no layer of the model are left out, such as model.layers.3.");
    test_safetensors(
        source, "model-9.safetensors",
        "{\"model.inv_freq\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", x, 8);
    {
        char path[600], *index, *more;
        size_t n;
        waste_error err = {0};
        snprintf(path, sizeof path, "%s/model.safetensors.index.json", source);
        assert_int_equal(waste_file_load(path, 1 << 20, &index, &n, &err), WASTE_OK);
        more = malloc(n + 200);
        snprintf(more, n + 200, "%.*s,\"model.inv_freq\":\"model-9.safetensors\"}}", (int)n - 2,
                 index);
        test_text(source, "model.safetensors.index.json", more);
        free(more);
        waste_mem_free(index);
    }
    plan_it(&p, NULL);
    assert_int_equal(p.n_problems, 0);
    says(p.warnings, "1 tensors that no engine asks for are carried along, such as model.inv_freq");
}

static void planning_leaves_nothing_behind_when_memory_runs_out(void **state)
{
    waste_convert_options opt = {.plan = 1, .threads = 1};
    uint64_t before, n;
    waste_error err;
    waste_status st;
    (void)state;
    begin(0, NULL);
    before = waste_mem_used();
    for (n = 1;; n += n < 40 ? 1 : n / 8) {
        waste_mem_fail_at(n, 1);
        st = run(&opt, &err);
        waste_mem_fail_at(0, 0);
        assert_int_equal(waste_mem_used(), before);
        if (st == WASTE_DONE) break;
        expect(st, WASTE_NOMEM, &err, "memory");
    }
    assert_in_range(n, 50, 1000000);
}

/* ---- failures ------------------------------------------------------------------------ */

/* Stands in the way of libc's: the program is linked with the engine. */
static const char *full_for; /* what no write to has room; NULL: all have */

ssize_t write(int fd, const void *from, size_t n)
{
    char link[64], path[700];
    ssize_t len;

    if (full_for) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        len = readlink(link, path, sizeof path - 1);
        path[len > 0 ? len : 0] = 0;
        if (strstr(path, full_for)) {
            errno = ENOSPC;
            return -1;
        }
    }
    return syscall(SYS_write, fd, from, n);
}

static long few_pages; /* of the machine; 0: as many as there are */

long sysconf(int name)
{
    long (*real)(int);

    if (few_pages && name == _SC_PHYS_PAGES) return few_pages;
    *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}

/* A token needs the model in memory; a conversion does not. */
static void a_machine_too_small_for_the_model_converts_it(void **state)
{
    static const waste_cancel never;
    waste_model_options o = {.context = 16, .buffered = 1, .lookahead = -1, .cancel = never};
    const long page = sysconf(_SC_PAGESIZE);
    waste_plan_report report = {0};
    waste_error err;
    double floor = 0;
    size_t i;
    (void)state;
    begin(0, NULL);
    expect(run(NULL, &err), WASTE_DONE, &err, "");
    assert_non_null(strstr(last_proof, "generated a token"));
    assert_int_equal(waste_plan_make(&report, target, &o, 0, &err), WASTE_OK);
    for (i = 0; i < report.n; i++)
        if (strcmp(report.row[i].part, "floor") == 0) floor = report.row[i].value;
    waste_plan_clear(&report);
    for (i = 0; i < 2; i++) { /* a page or two to either side of 3/4 */
        waste_convert_options opt = {.overwrite = 1};
        few_pages = (long)(floor * 4 / 3 / (double)page) + (i ? 2 : -2);
        expect(run(&opt, &err), WASTE_DONE, &err, "");
        few_pages = 0;
        assert_non_null(strstr(last_proof, i ? "generated a token" : "no token was generated"));
        if (!i) assert_non_null(strstr(last_proof, "above 3/4 of the usable RAM"));
    }
}

/* Over a container that is there: it stays, and so does what was finished. */
static void a_full_disk_loses_nothing(void **state)
{
    static const char *const names[] = {"trunk.bin",      "codebooks-L1.bin", "experts-L1.bin",
                                        "experts-L2.bin", "codebooks.bin",    "manifest.json"};
    const waste_convert_options over = {.experts = "vq2r", .overwrite = 1};
    waste_convert *c;
    waste_convert_row row;
    waste_verify *v;
    waste_verify_row r;
    waste_error err;
    waste_status st;
    size_t i;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(CKPT_SHARDS, NULL);
    expect(run(NULL, &err), WASTE_DONE, &err, "");
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        memset(&err, 0, sizeof err);
        assert_int_equal(waste_convert_open(&c, source, target, &over, &err), WASTE_OK);
        full_for = names[i];
        while ((st = waste_convert_next(c, &row, &err)) == WASTE_OK) continue;
        waste_convert_close(c);
        full_for = NULL;
        expect(st, WASTE_IO, &err, "No space left");
        says(err.text, names[i]);
        memset(&err, 0, sizeof err);
        assert_int_equal(waste_verify_open(&v, target, source, NULL, &err), WASTE_OK);
        while (waste_verify_next(v, &r, &err) == WASTE_OK) assert_true(r.ok);
        waste_verify_close(v);
        assert_true(there(source, "model-1.safetensors"));
        assert_int_equal(there(target, ".convert/trunk.bin"), i > 0);
    }
    expect(run(&over, &err), WASTE_DONE, &err, "");
    assert_false(there(target, ".convert"));
}

/* A limit of the system itself, which cuts a write in the middle. */
static void a_write_that_is_cut_short_is_found(void **state)
{
    struct rlimit old, small;
    waste_error err;
    waste_status st;
    (void)state;
    begin(0, NULL);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 100000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    st = run(NULL, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    expect(st, WASTE_IO, &err, "trunk.bin.tmp: File too large");
    assert_false(waste_path_exists(target)); /* nothing was finished */
    expect(run(NULL, &err), WASTE_DONE, &err, "");
}

static void damaged_checkpoints_are_named(void **state)
{
    static const struct {
        const char *head, *about;
    } bad[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
         "model.safetensors: tensors a and b overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,99]}}",
         "model.safetensors: tensor a has bytes 0 to 99 of a payload of 16"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1099511627776,1099511627776],"
         "\"data_offsets\":[0,8]}}",
         "model.safetensors: shape of tensor a is too large"},
        {"{\"model.embed_tokens.weight\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "tensor model.embed_tokens.weight is F4, which is not supported"},
        {"{\"a\":", "model.safetensors"},
    };
    static const char payload[16] = {0};
    waste_error err;
    size_t i;
    (void)state;
    begin(0, NULL);
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        waste_status st;
        test_safetensors(source, "model.safetensors", bad[i].head, payload, sizeof payload);
        st = run(NULL, &err);
        assert_true(st < 0);
        says(err.text, bad[i].about);
        assert_false(waste_path_exists(target));
        assert_true(there(source, "model.safetensors"));
    }
    /* a header that is longer than the file */
    test_write(source, "model.safetensors", "\xff\xff\0\0\0\0\0\0{}", 10);
    expect(run(NULL, &err), WASTE_FORMAT, &err, "a header of 65535 bytes in a file of 10");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_how_large_it_will_be),
        cmocka_unit_test(names_everything_that_would_fail),
        cmocka_unit_test(names_tensors_that_nobody_knows),
        cmocka_unit_test(planning_leaves_nothing_behind_when_memory_runs_out),
        cmocka_unit_test(a_machine_too_small_for_the_model_converts_it),
        cmocka_unit_test(a_full_disk_loses_nothing),
        cmocka_unit_test(a_write_that_is_cut_short_is_found),
        cmocka_unit_test(damaged_checkpoints_are_named),
    };
    return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
