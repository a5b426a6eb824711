/* The files of a container that are neither weights nor manifest: tokenizer,
 * special tokens, chat format and template, vision settings (docs/convert.md 7). */
#ifndef WASTE_FILES_H
#define WASTE_FILES_H

#include "base/buf.h"
#include "convert/settings.h"
#include "convert/writer.h"

#define WASTE_FILES_MAX 5

typedef struct waste_files {
    struct {
        const char *name;
        waste_buf data;
    } item[WASTE_FILES_MAX];
    int n;
} waste_files;

/* Reads and checks what the checkpoint directory has; what it lacks is left out.
 * A zeroed *out. Errors name the file and the member. */
waste_status waste_files_prepare(waste_files *out, const char *source, const waste_settings *c,
                                 waste_error *err);
/* All of them; a chat.json that the target has already is kept. */
waste_status waste_files_write(const waste_files *f, waste_writer *w, waste_error *err);
void waste_files_clear(waste_files *f);

#endif
