/* Usable memory: machine and control groups, in a made-up /proc and /sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/ram.h"

#define V2     "sys/fs/cgroup"
#define MiB    ((uint64_t)1 << 20)
#define PATH_N 6000

static char root[512];

/* Writes root/path with all directories on the way. */
static void put(const char *path, const char *text)
{
    char full[PATH_N];
    char *p;
    FILE *f;

    assert_true(snprintf(full, sizeof full, "%s/%s", root, path) < (int)sizeof full);
    for (p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; *p++ = '/') {
        *p = 0;
        mkdir(full, 0777);
    }
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s/tests/unit/ram-XXXXXX", TEST_BUILD);
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[600];
    (void)state;

    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static waste_ram get(void)
{
    waste_ram r;

    waste_ram_get(&r, root);
    return r;
}

static void unlimited(void)
{
    waste_ram r = get();

    assert_int_equal(r.usable, r.physical);
    assert_string_equal(r.from, "");
}

/* The limit in force is v, and comes from root/path. */
static void limited(uint64_t v, const char *path)
{
    waste_ram r = get();
    char full[PATH_N];

    snprintf(full, sizeof full, "%s/%s", root, path);
    assert_int_equal(r.usable, v);
    if (strlen(full) < sizeof r.from) assert_string_equal(r.from, full);
}

static void nothing_there_is_the_machine(void **state)
{
    waste_ram r = get(), real;
    (void)state;

    assert_true(r.physical > 16 * MiB);
    assert_int_equal(r.usable, r.physical);
    assert_string_equal(r.from, "");
    waste_ram_get(&real, "");
    assert_int_equal(real.physical, r.physical);
    assert_true(real.usable <= real.physical);
    assert_int_equal(real.usable == real.physical, real.from[0] == 0);
}

static void smallest_of_a_group_and_all_above_it(void **state)
{
    (void)state;
    put("proc/self/cgroup", "12:cpu:/x\n0::/a/b\n");
    put(V2 "/a/b/memory.max", "max\n");
    put(V2 "/a/b/memory.high", "max\n");
    unlimited();
    put(V2 "/a/b/memory.max", "67108864\n");
    limited(64 * MiB, V2 "/a/b/memory.max");
    put(V2 "/a/b/memory.high", "33554432\n");
    limited(32 * MiB, V2 "/a/b/memory.high");
    put(V2 "/a/memory.max", "16777216\n");
    limited(16 * MiB, V2 "/a/memory.max");
    put(V2 "/memory.max", "8388608"); /* the mount's root counts too */
    limited(8 * MiB, V2 "/memory.max");
}

static void without_a_usable_path_the_root_is_read(void **state)
{
    static const char *const lines[] = {
        "",          "0::/\n",          "0::/not/there\n",     "0::/a/../b\n",
        "0::/..\n",  "0::relative/b\n", "1:name=systemd:/b\n", "nonsense\n0:\n",
        "0::/b/..\n"};
    size_t i;
    (void)state;

    put(V2 "/memory.max", "8388608\n");
    put(V2 "/b/memory.max", "1048576\n");
    for (i = 0; i < sizeof lines / sizeof *lines; i++) {
        put("proc/self/cgroup", lines[i]);
        limited(8 * MiB, V2 "/memory.max");
    }
    put("proc/self/cgroup", "0::/b..c\n"); /* dots in a name are no step upwards */
    put(V2 "/b..c/memory.max", "524288\n");
    limited(MiB / 2, V2 "/b..c/memory.max");
    put("proc/self/cgroup", "0::/b/\n");
    limited(MiB, V2 "/b/memory.max");
}

static void only_a_plain_decimal_number_is_a_limit(void **state)
{
    static const char *const no[] = {
        "max",
        "",
        "\n",
        "-1",
        "+8388608",
        "8388608 ",
        "0x80",
        "8388k",
        "8388608\n\n",
        "8e6",
        " 8388608",
        "8\n8",
        "1.5",
        "99999999999999999999",
        "0000000000000000000000000000000000000000000000000000000008388608"};
    size_t i;
    (void)state;

    put("proc/self/cgroup", "0::/c\n");
    for (i = 0; i < sizeof no / sizeof *no; i++) {
        put(V2 "/c/memory.max", no[i]);
        unlimited();
    }
    put(V2 "/c/memory.max", "9223372036854775807\n"); /* more than there is */
    unlimited();
    put(V2 "/c/memory.max", "0\n"); /* a limit like any other */
    limited(0, V2 "/c/memory.max");
}

static void version_1_and_its_way_of_saying_none(void **state)
{
    const char v1[] = "sys/fs/cgroup/memory";
    char file[200];
    (void)state;

    put("proc/self/cgroup", "7:pids:/p\n4:cpu,memory:/d/e\n0::/\n");
    snprintf(file, sizeof file, "%s/memory.limit_in_bytes", v1);
    put(file, "9223372036854771712\n");
    unlimited();
    snprintf(file, sizeof file, "%s/d/memory.limit_in_bytes", v1);
    put(file, "25165824\n");
    limited(24 * MiB, file);
    put("proc/self/cgroup", "4:memorystick:/d/e\n"); /* another controller */
    unlimited();
    put("proc/self/cgroup", "4:memory:/d/e\n");
    limited(24 * MiB, file);
    snprintf(file, sizeof file, "%s/memory.limit_in_bytes", v1);
    put(file, "16777216\n");
    limited(16 * MiB, file);
    put(V2 "/unified/memory.max", "4194304\n"); /* both versions at once */
    limited(4 * MiB, V2 "/unified/memory.max");
}

static void a_very_long_path_does_no_harm(void **state)
{
    char line[PATH_N] = "0::";
    waste_ram r;
    (void)state;

    put(V2 "/memory.max", "8388608\n");
    while (strlen(line) < 5000) strcat(line, "/0123456789abcdef");
    put("proc/self/cgroup", line);
    limited(8 * MiB, V2 "/memory.max");
    line[3 + 17 * 18] = 0;
    put("proc/self/cgroup", line);
    strcpy(line, V2);
    while (strlen(line) < sizeof V2 - 1 + 17 * 18) strcat(line, "/0123456789abcdef");
    strcat(line, "/memory.max");
    put(line, "1048576\n");
    r = get();
    assert_int_equal(r.usable, MiB);
    assert_memory_equal(r.from, "...", 3); /* its end is what is told */
    assert_non_null(strstr(r.from, "/0123456789abcdef/memory.max"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_there_is_the_machine, make_root, remove_root),
        cmocka_unit_test_setup_teardown(smallest_of_a_group_and_all_above_it, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(without_a_usable_path_the_root_is_read, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(only_a_plain_decimal_number_is_a_limit, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(version_1_and_its_way_of_saying_none, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(a_very_long_path_does_no_harm, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
