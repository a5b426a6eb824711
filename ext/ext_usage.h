/* Learned demand of a model, kept between runs: the model option "usage", the
 * table waste_usage, and the hotlist file. On SQLite's thread. */
#ifndef EXT_USAGE_H
#define EXT_USAGE_H

#include "base/json.h"
#include "ext_models.h"
#include "sqlite3ext.h"

/* Reader of the option, for the table in ext_models.c; `into` is a
 * waste_usage_choice. */
waste_status waste_usage_option(const waste_json *value, void *into, waste_error *err);

/* Warms the model with the rows of waste_usage that are `name`'s, if there is
 * such a table. In the background, and a hint: nothing that goes wrong shows. */
void waste_usage_restore(sqlite3 *db, const char *name, waste_model *m);

/* What came of saving. */
typedef enum waste_usage_kept {
    WASTE_USAGE_KEPT,
    WASTE_USAGE_NOT_OPEN, /* the model, on this connection and in this process */
    WASTE_USAGE_NOWHERE   /* the option is off */
} waste_usage_kept;

/* Writes what the model learned to where its option says, replacing what was
 * there: the rows of its name, or the file. *rows gets how many. */
waste_status waste_usage_keep(waste_usage_kept *what, int64_t *rows, waste_conn *conn,
                              const waste_model_ref *ref, waste_error *err);

#endif
