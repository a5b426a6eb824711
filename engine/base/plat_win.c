/* Windows: see plat.h. Owns no state.
 *
 * Files that are read are opened overlapped: of a handle that is not, the system does one
 * read at a time, and readers of one expert file would wait for each other. Every read
 * has an event of its own. Files that are written have one writer and are not. */
#include <windows.h>

#include <stdlib.h>
#include <string.h>

#include "base/plat_system.h"

#define UNITS    (WASTE_PATH_MAX + 8) /* UTF-16 is never longer than UTF-8; and a prefix */
#define EPOCH_S  11644473600u         /* 1970, in seconds since 1601 */
#define HALF(n)  ((DWORD)((uint64_t)(n)&0xFFFFFFFFu))
#define UPPER(n) ((DWORD)((uint64_t)(n) >> 32))

static HANDLE handle(const waste_file *f)
{
    return (HANDLE)f->fd;
}

/* ---- text ----------------------------------------------------------------------- */

/* In the language of the user, of one line. */
const char *waste_plat_reason(char text[WASTE_PLAT_REASON])
{
    const DWORD code = GetLastError();
    wchar_t wide[WASTE_PLAT_REASON];
    DWORD n = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS |
                                 FORMAT_MESSAGE_MAX_WIDTH_MASK,
                             NULL, code, 0, wide, WASTE_PLAT_REASON / 3, NULL);

    while (n && (wide[n - 1] <= ' ' || wide[n - 1] == '.')) n--;
    n = (DWORD)WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, text, WASTE_PLAT_REASON - 1, NULL,
                                   NULL);
    text[n] = 0;
    if (!n) snprintf(text, WASTE_PLAT_REASON, "error %lu of Windows", code);
    return text;
}

static int to_wide(wchar_t *to, int cap, const char *path)
{
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, to, cap) > 0;
}

static int is_share(const wchar_t *p)
{
    return p[0] == '\\' && p[1] == '\\';
}

/* The absolute path, in the form that has no limit of 260 characters and gives no
 * meaning to names like "nul". 0 with the reason as the last error. */
static int full_path(wchar_t to[UNITS], const char *path)
{
    wchar_t given[WASTE_PATH_MAX], full[WASTE_PATH_MAX];
    const wchar_t *rest = full, *prefix = L"\\\\?\\";
    DWORD n;

    if (!path[0]) {
        SetLastError(ERROR_PATH_NOT_FOUND);
        return 0;
    }
    if (!to_wide(given, WASTE_PATH_MAX, path)) return 0;
    n = GetFullPathNameW(given, WASTE_PATH_MAX, full, NULL);
    if (n >= WASTE_PATH_MAX) SetLastError(ERROR_FILENAME_EXCED_RANGE);
    if (n == 0 || n >= WASTE_PATH_MAX) return 0;
    if (is_share(full) && (full[2] == '?' || full[2] == '.') && full[3] == '\\') {
        prefix = L"";
    } else if (is_share(full)) {
        rest = full + 2;
        prefix = L"\\\\?\\UNC\\";
    }
    wcscpy(to, prefix);
    wcscat(to, rest);
    return 1;
}

/* To UTF-8, with forward slashes and without the prefix; 0 when it does not fit. */
static int from_wide(char out[WASTE_PATH_MAX], const wchar_t *path)
{
    wchar_t share[UNITS];
    char *p;

    if (wcsncmp(path, L"\\\\?\\UNC\\", 8) == 0 && wcslen(path) < UNITS) {
        share[0] = '\\';
        wcscpy(share + 1, path + 7);
        path = share;
    } else if (wcsncmp(path, L"\\\\?\\", 4) == 0) {
        path += 4;
    }
    if (WideCharToMultiByte(CP_UTF8, 0, path, -1, out, WASTE_PATH_MAX, NULL, NULL) == 0) return 0;
    for (p = out; (p = strchr(p, '\\')) != NULL;) *p = '/';
    return 1;
}

/* ---- files ------------------------------------------------------------------------ */

/* Others may do with it what POSIX lets them, deleting and renaming included. */
static HANDLE open_path(const char *path, DWORD access, DWORD how, DWORD flags)
{
    wchar_t wide[UNITS];

    if (!full_path(wide, path)) return INVALID_HANDLE_VALUE;
    return CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                       how, flags ? flags : FILE_ATTRIBUTE_NORMAL, NULL);
}

static waste_status open_to_read(waste_file *f, const char *path, DWORD flags, waste_error *err)
{
    waste_path_info i;
    waste_status st = waste_path_stat(&i, path, err);

    f->fd = WASTE_FILE_CLOSED;
    if (st) return st;
    if (i.is_file) {
        f->fd = (intptr_t)open_path(path, GENERIC_READ, OPEN_EXISTING,
                                    FILE_FLAG_OVERLAPPED | FILE_ATTRIBUTE_NORMAL | flags);
        if (f->fd == WASTE_FILE_CLOSED) return waste_plat_failed(err, "open", path);
    }
    if (!i.is_file || GetFileType(handle(f)) != FILE_TYPE_DISK) {
        waste_file_close(f);
        return waste_fail(err, WASTE_IO, "%s is not a regular file", path);
    }
    return WASTE_OK;
}

waste_status waste_file_open(waste_file *f, const char *path, waste_error *err)
{
    return open_to_read(f, path, 0, err);
}

waste_status waste_file_create(waste_file *f, const char *path, waste_error *err)
{
    f->fd = (intptr_t)open_path(path, GENERIC_WRITE, CREATE_ALWAYS, 0);
    return f->fd == WASTE_FILE_CLOSED ? waste_plat_failed(err, "create", path) : WASTE_OK;
}

static int seek(const waste_file *f, uint64_t offset)
{
    LARGE_INTEGER to;

    to.QuadPart = (LONGLONG)offset;
    return SetFilePointerEx(handle(f), to, NULL, FILE_BEGIN) != 0;
}

waste_status waste_file_open_at(waste_file *f, const char *path, int make, uint64_t offset,
                                waste_error *err)
{
    waste_status st;

    f->fd = (intptr_t)open_path(path, GENERIC_WRITE, make ? OPEN_ALWAYS : OPEN_EXISTING, 0);
    if (f->fd == WASTE_FILE_CLOSED) return waste_plat_failed(err, "open", path);
    if (seek(f, offset)) return WASTE_OK;
    st = waste_plat_failed(err, "seek in", path);
    waste_file_close(f);
    return st;
}

waste_status waste_file_append(waste_file *f, const char *path, waste_error *err)
{
    f->fd = (intptr_t)open_path(path, FILE_APPEND_DATA | SYNCHRONIZE, OPEN_ALWAYS, 0);
    return f->fd == WASTE_FILE_CLOSED ? waste_plat_failed(err, "open", path) : WASTE_OK;
}

void waste_file_close(waste_file *f)
{
    if (f->fd != WASTE_FILE_CLOSED) CloseHandle(handle(f));
    f->fd = WASTE_FILE_CLOSED;
}

FILE *waste_file_stream(const char *path)
{
    wchar_t wide[UNITS];

    return full_path(wide, path) ? _wfopen(wide, L"rbN") : NULL;
}

waste_status waste_file_size(const waste_file *f, const char *path, uint64_t *size,
                             waste_error *err)
{
    LARGE_INTEGER n;

    if (!GetFileSizeEx(handle(f), &n)) return waste_plat_failed(err, "stat", path);
    *size = (uint64_t)n.QuadPart;
    return WASTE_OK;
}

/* The end goes where the file pointer is. */
waste_status waste_file_cut(const waste_file *f, const char *path, uint64_t size, waste_error *err)
{
    FILE_END_OF_FILE_INFO end;

    end.EndOfFile.QuadPart = (LONGLONG)size;
    if (SetFileInformationByHandle(handle(f), FileEndOfFileInfo, &end, sizeof end)) return WASTE_OK;
    return waste_plat_failed(err, "cut", path);
}

int64_t waste_plat_read(const waste_file *f, void *to, size_t n, uint64_t offset)
{
    OVERLAPPED at = {0};
    DWORD got = 0, code = ERROR_SUCCESS;

    at.Offset = HALF(offset);
    at.OffsetHigh = UPPER(offset);
    at.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL);
    if (!at.hEvent) return -1;
    if (!ReadFile(handle(f), to, (DWORD)n, NULL, &at)) code = GetLastError();
    if (code == ERROR_SUCCESS || code == ERROR_IO_PENDING)
        code = GetOverlappedResult(handle(f), &at, &got, TRUE) ? ERROR_SUCCESS : GetLastError();
    CloseHandle(at.hEvent);
    if (code == ERROR_HANDLE_EOF) return 0;
    SetLastError(code);
    return code == ERROR_SUCCESS ? (int64_t)got : -1;
}

int64_t waste_plat_write(const waste_file *f, const void *from, size_t n)
{
    DWORD put = 0;

    return WriteFile(handle(f), from, (DWORD)n, &put, NULL) ? (int64_t)put : -1;
}

/* The system does not say what its cache holds. */
int waste_file_read_now(const waste_file *f, void *to, size_t n, uint64_t offset)
{
    (void)f, (void)to, (void)offset;
    return n == 0;
}

waste_status waste_file_sync(const waste_file *f, const char *path, waste_error *err)
{
    return FlushFileBuffers(handle(f)) ? WASTE_OK : waste_plat_failed(err, "sync", path);
}

waste_status waste_file_rename(const char *from, const char *to, waste_error *err)
{
    wchar_t a[UNITS], b[UNITS];

    if (full_path(a, from) && full_path(b, to) &&
        MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH))
        return WASTE_OK;
    return waste_plat_failed(err, "rename onto", to);
}

/* ---- past the cache ----------------------------------------------------------------- */

/* Whether reads at multiples of a block are whole sectors. Unknown: the probe decides. */
static int sectors_fit(const waste_file *f)
{
    FILE_STORAGE_INFO i;

    return !GetFileInformationByHandleEx(handle(f), FileStorageInfo, &i, sizeof i) ||
           (i.LogicalBytesPerSector && WASTE_FILE_BLOCK % i.LogicalBytesPerSector == 0);
}

/* A file is opened direct, or it is not: there is no changing it. */
waste_status waste_file_open_direct(waste_file *f, const char *path, size_t bytes, int want,
                                    int *direct, waste_error *err)
{
    waste_status st = WASTE_OK;

    *direct = 0;
    f->fd = WASTE_FILE_CLOSED;
    if (want && bytes && bytes % WASTE_FILE_BLOCK == 0 &&
        open_to_read(f, path, FILE_FLAG_NO_BUFFERING, NULL) == WASTE_OK && sectors_fit(f))
        st = waste_plat_probe(f, path, bytes, direct, err);
    if (*direct) return WASTE_OK;
    waste_file_close(f);
    return st ? st : open_to_read(f, path, FILE_FLAG_RANDOM_ACCESS, err);
}

/* There are no such hints. */
void waste_file_ahead(const waste_file *f, uint64_t offset, uint64_t n)
{
    (void)f, (void)offset, (void)n;
}

void waste_file_drop(const waste_file *f, uint64_t offset, uint64_t n)
{
    (void)f, (void)offset, (void)n;
}

/* ---- paths ---------------------------------------------------------------------------- */

static uint64_t since_1970(FILETIME t)
{
    const uint64_t ticks = (uint64_t)t.dwHighDateTime << 32 | t.dwLowDateTime; /* of 100 ns */

    return ticks < (uint64_t)EPOCH_S * 10000000u ? 0
                                                 : (ticks - (uint64_t)EPOCH_S * 10000000u) * 100u;
}

/* ReFS has identities of 128 bits, whose upper half is 0 elsewhere. */
static void identify(HANDLE h, const BY_HANDLE_FILE_INFORMATION *i, uint64_t id[2])
{
    FILE_ID_INFO wide;
    uint64_t half[2];

    id[0] = i->dwVolumeSerialNumber;
    id[1] = (uint64_t)i->nFileIndexHigh << 32 | i->nFileIndexLow;
    if (!GetFileInformationByHandleEx(h, FileIdInfo, &wide, sizeof wide)) return;
    memcpy(half, &wide.FileId, sizeof half);
    id[0] = wide.VolumeSerialNumber ^ half[1];
    id[1] = half[0];
}

/* Backup semantics: directories cannot be opened without. */
static HANDLE open_named(const char *path)
{
    return open_path(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
}

waste_status waste_path_stat(waste_path_info *out, const char *path, waste_error *err)
{
    const HANDLE h = open_named(path);
    BY_HANDLE_FILE_INFORMATION i;
    waste_status st = WASTE_OK;

    if (h == INVALID_HANDLE_VALUE) return waste_plat_failed(err, "open", path);
    if (GetFileInformationByHandle(h, &i)) {
        out->bytes = (uint64_t)i.nFileSizeHigh << 32 | i.nFileSizeLow;
        out->modified_ns = since_1970(i.ftLastWriteTime);
        identify(h, &i, out->id);
        out->is_dir = (i.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
        out->is_file = !out->is_dir && !(i.dwFileAttributes & FILE_ATTRIBUTE_DEVICE);
    } else {
        st = waste_plat_failed(err, "open", path);
    }
    CloseHandle(h);
    return st;
}

waste_status waste_path_make_dir(const char *path, waste_error *err)
{
    wchar_t wide[UNITS];

    if (full_path(wide, path) && CreateDirectoryW(wide, NULL)) return WASTE_OK;
    if (GetLastError() == ERROR_ALREADY_EXISTS && waste_path_is_dir(path)) return WASTE_OK;
    return waste_plat_failed(err, "make directory", path);
}

waste_status waste_path_delete(const char *path, waste_error *err)
{
    wchar_t wide[UNITS];

    if (full_path(wide, path) && DeleteFileW(wide)) return WASTE_OK;
    return waste_plat_failed(err, "delete", path);
}

static int separates(char c)
{
    return c == '/' || c == '\\';
}

static size_t to_separator(const char *path, size_t n)
{
    while (path[n] && !separates(path[n])) n++;
    return n;
}

size_t waste_path_root(const char *path)
{
    size_t n;

    if (separates(path[0]) && separates(path[1])) {
        n = to_separator(path, 2);                   /* server */
        n = path[n] ? to_separator(path, n + 1) : n; /* share */
        return path[n] ? n + 1 : n;
    }
    if (separates(path[0])) return 1;
    if (path[0] && path[1] == ':') return separates(path[2]) ? 3 : 2;
    return 0;
}

static waste_status not_absolute(const char *path, waste_error *err)
{
    return waste_fail(err, WASTE_IO, "%s: cannot make the path absolute", path);
}

waste_status waste_path_absolute(char out[WASTE_PATH_MAX], const char *path, waste_error *err)
{
    wchar_t wide[UNITS];

    if (full_path(wide, path) && from_wide(out, wide)) return WASTE_OK;
    return not_absolute(path, err);
}

waste_status waste_path_real(char out[WASTE_PATH_MAX], const char *path, waste_error *err)
{
    const HANDLE h = open_named(path);
    wchar_t wide[UNITS];
    DWORD n = 0;

    if (h != INVALID_HANDLE_VALUE) {
        n = GetFinalPathNameByHandleW(h, wide, UNITS, FILE_NAME_NORMALIZED | VOLUME_NAME_DOS);
        CloseHandle(h);
    }
    return n && n < UNITS && from_wide(out, wide) ? WASTE_OK : not_absolute(path, err);
}

int waste_path_free(const char *path, uint64_t *bytes)
{
    wchar_t wide[UNITS];
    ULARGE_INTEGER n;

    if (!full_path(wide, path) || !GetDiskFreeSpaceExW(wide, &n, NULL, NULL)) return -1;
    *bytes = n.QuadPart;
    return 0;
}

/* ---- directories -------------------------------------------------------------------- */

#define NOT_PLAIN (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT | FILE_ATTRIBUTE_DEVICE)

int waste_dir_each(const char *dir, int (*each)(void *ctx, const char *path, uint64_t bytes),
                   void *ctx)
{
    char path[WASTE_PATH_MAX], name[3 * MAX_PATH];
    wchar_t wide[UNITS + 2];
    WIN32_FIND_DATAW e;
    HANDLE d;
    int rc = 0;

    if (!full_path(wide, dir)) return 0;
    wcscat(wide, wide[wcslen(wide) - 1] == '\\' ? L"*" : L"\\*");
    d = FindFirstFileW(wide, &e);
    if (d == INVALID_HANDLE_VALUE) return 0;
    do {
        if (e.dwFileAttributes & NOT_PLAIN ||
            !WideCharToMultiByte(CP_UTF8, 0, e.cFileName, -1, name, sizeof name, NULL, NULL) ||
            waste_path_join(path, sizeof path, dir, name, NULL))
            continue;
        rc = each(ctx, path, (uint64_t)e.nFileSizeHigh << 32 | e.nFileSizeLow);
    } while (!rc && FindNextFileW(d, &e));
    FindClose(d);
    return rc;
}

void waste_dir_remove(const char *path)
{
    wchar_t wide[UNITS];

    if (full_path(wide, path)) RemoveDirectoryW(wide);
}

/* NTFS writes names to its log by itself, and has no call for more. */
void waste_dir_sync(const char *path)
{
    (void)path;
}

/* A directory cannot be locked (LockFileEx takes files), and nothing may be written into
 * it. So a kernel object bears its identity as its name: it exists as long as somebody
 * has it open, which ends with the process. Other machines that see the directory do not
 * see the object. */
waste_status waste_dir_lock(intptr_t *lock, const char *path, waste_error *err)
{
    wchar_t name[64];
    uint64_t id[2];
    HANDLE h;
    waste_status st = waste_path_identity(path, id, err);

    *lock = WASTE_DIR_UNLOCKED;
    if (st) return st;
    swprintf(name, sizeof name / sizeof *name, L"Global\\waste-%016llx-%016llx",
             (unsigned long long)id[0], (unsigned long long)id[1]);
    h = CreateMutexW(NULL, FALSE, name);
    if (!h) return GetLastError() == ERROR_ACCESS_DENIED ? WASTE_BUSY : WASTE_OK;
    if (GetLastError() == ERROR_ALREADY_EXISTS) {
        CloseHandle(h);
        return WASTE_BUSY;
    }
    *lock = (intptr_t)h;
    return WASTE_OK;
}

void waste_dir_unlock(intptr_t *lock, int shared)
{
    (void)shared; /* nothing forks */
    if (*lock != WASTE_DIR_UNLOCKED) CloseHandle((HANDLE)*lock);
    *lock = WASTE_DIR_UNLOCKED;
}

/* ---- time and memory ------------------------------------------------------------------ */

uint64_t waste_clock_ns(void)
{
    LARGE_INTEGER per_second, now;
    uint64_t f, t;

    QueryPerformanceFrequency(&per_second); /* neither can fail since Windows XP */
    QueryPerformanceCounter(&now);
    f = (uint64_t)per_second.QuadPart;
    t = (uint64_t)now.QuadPart;
    return t / f * 1000000000u + t % f * 1000000000u / f;
}

/* Large pages need a privilege that users do not have. */
void *waste_pages_map(size_t bytes, int for_reads)
{
    (void)for_reads;
    return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void waste_pages_unmap(void *p, size_t bytes)
{
    (void)bytes; /* the whole of what was mapped */
    VirtualFree(p, 0, MEM_RELEASE);
}

uint64_t waste_pages_physical(void)
{
    MEMORYSTATUSEX m;

    m.dwLength = sizeof m;
    return GlobalMemoryStatusEx(&m) && m.ullTotalPhys ? m.ullTotalPhys : UINT64_MAX;
}
