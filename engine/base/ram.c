/* Physical memory and control groups: see ram.h. Owns no state.
 *
 * The group of a process is named relative to a mount whose root may be the
 * machine's or, with a private namespace, the process's own group. In the second
 * case the path in /proc may not exist below the mount and the limit is in its
 * root. So the path and all that is above it are read, root included, and what is
 * not there counts for nothing. */
#include "base/ram.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/plat.h"

/* Elsewhere anybody could make such a directory. */
#if defined(__linux__)
#define HAS_GROUPS 1
#else
#define HAS_GROUPS 0
#endif

/* Where version 2 is mounted, alone or beside version 1; and version 1's memory
 * controller. */
static const char *const mounts_v2[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", NULL};
static const char *const mounts_v1[] = {"/sys/fs/cgroup/memory", NULL};
static const char *const limits_v2[] = {"memory.max", "memory.high", NULL};
static const char *const limits_v1[] = {"memory.limit_in_bytes", NULL};

/* Version 1 has no word for "no limit": the kernel's is a page short of 2^63. */
#define V1_UNLIMITED ((uint64_t)1 << 62)

/* Of a long path the end says more. */
static void note_source(waste_ram *r, const char *path)
{
    size_t n = strlen(path), room = sizeof r->from - 1;

    if (n <= room) {
        memcpy(r->from, path, n + 1);
    } else {
        memcpy(r->from, "...", 3);
        memcpy(r->from + 3, path + n - (room - 3), room - 3 + 1);
    }
}

/* The limit in `path` if it is a plain decimal byte count and smaller than what
 * is known so far. */
static void apply_limit(waste_ram *r, const char *path, uint64_t unlimited)
{
    FILE *f = waste_file_stream(path);
    char text[64];
    size_t n;
    uint64_t v;

    if (!f) return;
    n = fread(text, 1, sizeof text, f);
    fclose(f);
    if (n == sizeof text) return;
    if (n && text[n - 1] == '\n') n--;
    if (waste_parse_u64(text, n, UINT64_MAX, &v) || v >= unlimited || v >= r->usable) return;
    r->usable = v;
    note_source(r, path);
}

/* The group `path` ("/a/b", or "" for the root) below one mount, and every group
 * above it. */
static void apply_groups(waste_ram *r, const char *root, const char *mount, const char *path,
                         const char *const *limits, uint64_t unlimited)
{
    char group[WASTE_PATH_MAX], file[2 * WASTE_PATH_MAX + 64];
    char *slash;
    size_t i;

    if (snprintf(group, sizeof group, "%s", path) >= (int)sizeof group) group[0] = 0;
    for (;;) {
        for (i = 0; limits[i]; i++)
            if (snprintf(file, sizeof file, "%s%s%s/%s", root, mount, group, limits[i]) <
                (int)sizeof file)
                apply_limit(r, file, unlimited);
        slash = strrchr(group, '/');
        if (!slash) return;
        *slash = 0;
    }
}

static int has_parent_step(const char *path)
{
    const char *p = path;

    while ((p = strstr(p, "..")) != NULL) {
        if ((p == path || p[-1] == '/') && (p[2] == '/' || p[2] == 0)) return 1;
        p += 2;
    }
    return 0;
}

/* Whether the comma-separated list s[0..n) has this word. */
static int lists(const char *s, size_t n, const char *word)
{
    size_t len = strlen(word), i = 0, end;

    for (; i < n; i = end + 1) {
        const char *comma = memchr(s + i, ',', n - i);
        end = comma ? (size_t)(comma - s) : n;
        if (end - i == len && memcmp(s + i, word, len) == 0) return 1;
    }
    return 0;
}

/* Reads a line of /proc/self/cgroup, "number:controllers:path", into v2 or v1. */
static void take_line(char *line, char v2[WASTE_PATH_MAX], char v1[WASTE_PATH_MAX])
{
    char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL, *to;
    size_t n;

    if (!path) return;
    if (strncmp(line, "0::", 3) == 0)
        to = v2;
    else if (lists(list + 1, (size_t)(path - list - 1), "memory"))
        to = v1;
    else
        return;
    path++;
    n = strcspn(path, "\n");
    while (n && path[n - 1] == '/') n--;
    path[n] = 0;
    if (path[0] == '/' && !has_parent_step(path)) snprintf(to, WASTE_PATH_MAX, "%s", path);
}

/* A line too long for the buffer is cut, and its rest is no line of this form. */
static void read_groups(const char *root, char v2[WASTE_PATH_MAX], char v1[WASTE_PATH_MAX])
{
    char path[WASTE_PATH_MAX + 32], line[WASTE_PATH_MAX];
    FILE *f;

    v2[0] = v1[0] = 0;
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path) return;
    f = waste_file_stream(path);
    if (!f) return;
    while (fgets(line, sizeof line, f)) take_line(line, v2, v1);
    fclose(f);
}

void waste_ram_get(waste_ram *out, const char *root)
{
    char v2[WASTE_PATH_MAX], v1[WASTE_PATH_MAX];
    size_t i;

    out->physical = out->usable = waste_pages_physical();
    out->from[0] = 0;
    if (!HAS_GROUPS && !root[0]) return;
    read_groups(root, v2, v1);
    for (i = 0; mounts_v2[i]; i++) apply_groups(out, root, mounts_v2[i], v2, limits_v2, UINT64_MAX);
    for (i = 0; mounts_v1[i]; i++)
        apply_groups(out, root, mounts_v1[i], v1, limits_v1, V1_UNLIMITED);
}
