/* Writing large files past the page cache, for programs that exit on errors: a
 * benchmark that follows finds neither dirty pages nor its data in memory. One
 * thread. Included by one program each. */
#ifndef TOOLS_SINK_H
#define TOOLS_SINK_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINK_BYTES  (16 << 20)
#define SINK_ALIGN  4096
#define DIRTY_BYTES (1 << 30) /* at most, when the file system has no direct writes */

/* A file being written. */
typedef struct sink {
    char path[4096];
    int fd, direct;
    unsigned char *buffer; /* SINK_BYTES, aligned */
    size_t used;
    uint64_t written, clean; /* in the file; of it surely on the disk */
} sink;

static const char *sink_program = "sink"; /* for messages */

static void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fprintf(stderr, "%s: ", sink_program);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(1);
}

static void *need(void *p)
{
    if (!p) die("out of memory");
    return p;
}

static void sink_open(sink *s, const char *dir, const char *name)
{
    memset(s, 0, sizeof *s);
    if (snprintf(s->path, sizeof s->path, "%s/%s", dir, name) >= (int)sizeof s->path)
        die("%s: path too long", dir);
    s->fd = -1;
#ifdef O_DIRECT
    s->direct = 1;
    s->fd = open(s->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_DIRECT, 0644);
#endif
    if (s->fd < 0) {
        s->direct = 0;
        s->fd = open(s->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    }
    if (s->fd < 0) die("%s: %s", s->path, strerror(errno));
    s->buffer = need(aligned_alloc(SINK_ALIGN, SINK_BYTES));
}

static void drop_pages(sink *s)
{
    if (fdatasync(s->fd)) die("%s: %s", s->path, strerror(errno));
#ifdef POSIX_FADV_DONTNEED
    posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED);
#endif
    s->clean = s->written;
}

/* The last piece is padded for the alignment, and cut again by sink_close. */
static void sink_flush(sink *s)
{
    size_t n = s->used, at = 0;

    n = (n + SINK_ALIGN - 1) / SINK_ALIGN * SINK_ALIGN;
    memset(s->buffer + s->used, 0, n - s->used);
    while (at < n) {
        ssize_t w = write(s->fd, s->buffer + at, n - at);

        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) die("%s: %s", s->path, w < 0 ? strerror(errno) : "nothing was written");
        at += (size_t)w;
    }
    s->written += s->used;
    s->used = 0;
    if (!s->direct && s->written - s->clean >= DIRTY_BYTES) drop_pages(s);
}

static void sink_put(sink *s, const void *data, size_t n)
{
    const unsigned char *p = data;

    while (n) {
        size_t part = SINK_BYTES - s->used < n ? SINK_BYTES - s->used : n;

        memcpy(s->buffer + s->used, p, part);
        s->used += part;
        p += part;
        n -= part;
        if (s->used == SINK_BYTES) sink_flush(s);
    }
}

static uint64_t sink_at(const sink *s)
{
    return s->written + s->used;
}

static uint64_t sink_close(sink *s)
{
    if (s->used) sink_flush(s);
    if (ftruncate(s->fd, (off_t)s->written)) die("%s: %s", s->path, strerror(errno));
    drop_pages(s);
    if (close(s->fd)) die("%s: %s", s->path, strerror(errno));
    free(s->buffer);
    return s->written;
}

#endif
