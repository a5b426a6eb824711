/* One safetensors file: u64 little-endian header length, a JSON header
 * {name: {"dtype", "shape", "data_offsets"}}, then the payload (docs/convert.md 1).
 * Opening reads and checks the header; no descriptor stays open between calls,
 * so a checkpoint of hundreds of shards costs the host none. */
#ifndef WASTE_SAFETENSORS_H
#define WASTE_SAFETENSORS_H

#include "base/error.h"

#define WASTE_SAFETENSORS_DIMS 8

typedef enum waste_dtype {
    WASTE_DTYPE_F32,
    WASTE_DTYPE_F16,
    WASTE_DTYPE_BF16,
    WASTE_DTYPE_U8,
    WASTE_DTYPE_F8_E4M3,
    WASTE_DTYPE_F8_E5M2,
    WASTE_DTYPE_OTHER /* known by name only; cannot be decoded */
} waste_dtype;

typedef struct waste_safetensors waste_safetensors;

typedef struct waste_st_tensor {
    const char *name;              /* borrowed from the file's object */
    const waste_safetensors *file; /* the file that holds it */
    waste_dtype dtype;
    char dtype_name[12]; /* as written, for messages */
    int dims;
    int64_t shape[WASTE_SAFETENSORS_DIMS]; /* each >= 0; the product fits int64 */
    uint64_t off, bytes;                   /* in the file */
} waste_st_tensor;

/* WASTE_IO when the file cannot be read, WASTE_FORMAT when it is malformed: the
 * header is longer than the file, a tensor's range is not inside the payload,
 * not as long as dtype and shape say, or overlaps another's. */
waste_status waste_safetensors_open(waste_safetensors **out, const char *path, waste_error *err);
void waste_safetensors_close(waste_safetensors *s);

/* The header of a file that was deleted since, kept by waste_safetensors_keep: its
 * tensors can be listed; reading fails. `kept` is what is read, `path` what the
 * object is of; what was to be remembered of the file comes back. */
waste_status waste_safetensors_open_kept(waste_safetensors **out, const char *kept,
                                         const char *path, uint64_t *bytes, uint64_t *mtime,
                                         waste_error *err);
/* Copies the header to `to` (synced, whole or absent). */
waste_status waste_safetensors_keep(const waste_safetensors *s, const char *to, uint64_t bytes,
                                    uint64_t mtime, waste_error *err);

const char *waste_safetensors_path(const waste_safetensors *s);
size_t waste_safetensors_count(const waste_safetensors *s);
const waste_st_tensor *waste_safetensors_at(const waste_safetensors *s, size_t i); /* by name */
const waste_st_tensor *waste_safetensors_find(const waste_safetensors *s, const char *name);

/* Bytes [first, first + n) of the tensor, which the caller keeps inside it. */
waste_status waste_safetensors_read(const waste_st_tensor *t, uint64_t first, void *to, size_t n,
                                    waste_error *err);

#endif
