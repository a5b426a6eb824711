/* manifest.json, read and bounded: every number that sizes or indexes anything
 * later has been checked here or in model/config.h. Immutable after loading;
 * any thread may read it. */
#ifndef WASTE_MANIFEST_H
#define WASTE_MANIFEST_H

#include "base/error.h"
#include "base/json.h"
#include "store/format.h"

#define WASTE_MAX_LAYERS 128

/* Geometry of the expert quantiser (docs/format.md 2.2). */
typedef struct waste_quant {
    int stages;       /* 1..8 */
    int vec_dim;      /* 1..64 */
    int entries;      /* 1..256 */
    int index_block;  /* rows per index block; 0: plain row-major; else 64 */
    int index_bits;   /* 8, or 6 with stages 4 and entries 64 */
    int vector_bytes; /* per (row, vector): stages, or 3 for 6-bit indices */
} waste_quant;

typedef struct waste_trunk_entry {
    const char *name; /* borrowed from the manifest's JSON */
    waste_fmt fmt;
    int dims;
    int64_t shape[4];
    int64_t rows, cols; /* cols: last axis; rows: product of the others */
    int64_t group;      /* 0 for F32 */
    uint64_t off, scale_off;
    uint64_t payload_bytes, scale_bytes;
} waste_trunk_entry;

typedef struct waste_bank_entry {
    const char *file; /* NULL: the layer has no bank */
    int experts;
    uint64_t record_bytes;
    int codebook_base;
} waste_bank_entry;

typedef struct waste_manifest {
    char *dir;                /* the container, without trailing slashes */
    char *path;               /* dir/manifest.json: every message about it starts so */
    waste_json *json;         /* owns all borrowed names */
    const waste_json *config; /* text model configuration */
    const waste_json *outer;  /* config._outer, or the object around text_config, or NULL */
    const char *arch;         /* to report: docs/format.md 2.1 */
    const char *prefix;       /* of text-model tensors, "" if none */
    waste_quant quant;
    waste_trunk_entry *trunk; /* sorted by name, first of duplicates only */
    size_t n_trunk;
    waste_bank_entry bank[WASTE_MAX_LAYERS];
    uint64_t trunk_file_bytes, n_codebooks;
} waste_manifest;

/* Reads dir/manifest.json and the sizes of trunk.bin and codebooks.bin. What
 * sizes or indexes is bounded on the way: every tensor lies inside trunk.bin,
 * bank names are plain file names, codebooks.bin holds whole records. What the
 * layers must agree on with the configuration is waste_config_read's.
 * A path without a container is WASTE_IO, a malformed one WASTE_FORMAT. */
waste_status waste_manifest_open(waste_manifest **out, const char *dir, waste_error *err);
void waste_manifest_close(waste_manifest *m);
/* NULL when there is none. */
const waste_trunk_entry *waste_manifest_tensor(const waste_manifest *m, const char *name);

#endif
