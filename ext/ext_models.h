/* What a model argument means on one connection: a row of waste_models or a
 * path, and the container or open model behind it.
 *
 * A connection (waste_conn) belongs to the thread SQLite runs it on. It keeps
 * the models it has used open until waste_close or its own end, and the last
 * few containers it has looked into. */
#ifndef EXT_MODELS_H
#define EXT_MODELS_H

#include "base/buf.h"
#include "base/json.h"
#include "ext_shared.h"
#include "sqlite3ext.h"

typedef struct waste_conn waste_conn;

/* Counted: one reference each for the maker, every registered function and
 * module, and every virtual table. The last release closes what it holds. */
waste_conn *waste_models_conn_new(sqlite3 *db); /* NULL: out of memory */
void waste_models_conn_hold(waste_conn *c);
void waste_models_conn_release(void *conn);    /* fits xDestroy */
sqlite3 *waste_models_db(const waste_conn *c); /* borrowed */
/* For waste_direct_enter. */
int *waste_models_depth(waste_conn *c);
int waste_models_conns(void); /* alive in the process; any thread */

/* A model argument, looked up. */
typedef struct waste_model_ref {
    char *label;   /* the argument, for messages */
    char *path;    /* of the container */
    char *options; /* the row's option JSON, or NULL */
    int by_name;   /* found in waste_models */
} waste_model_ref;

/* The argument must not be NULL (that is the caller's own answer). */
waste_status waste_models_find(waste_model_ref *out, waste_conn *c, sqlite3_value *model,
                               waste_error *err);
void waste_models_ref_clear(waste_model_ref *r);

/* A container or open model in use. It outlives waste_close and the connection's
 * cache until it is ended. */
typedef struct waste_held waste_held;

typedef struct waste_lease {
    waste_held *held;
    const waste_container *container;
    waste_model *model; /* NULL when only the container was asked for */
} waste_lease;

/* Only the container: no weight is loaded. */
waste_status waste_models_container(waste_lease *out, waste_conn *c, sqlite3_value *model,
                                    waste_error *err);
/* The model, opened if it is not yet. `cancel` is asked while another thread
 * opens it. */
waste_status waste_models_weights(waste_lease *out, waste_conn *c, sqlite3_value *model,
                                  const waste_cancel *cancel, waste_error *err);
/* The same of a reference; `extra` (an option object, NULL: none) goes over the
 * row's own options. */
waste_status waste_models_open(waste_lease *out, waste_conn *c, const waste_model_ref *ref,
                               const waste_json *extra, const waste_cancel *cancel,
                               waste_error *err);
void waste_models_end(waste_lease *l); /* fine when zero */

/* The model if this connection has it open; WASTE_DONE if not, or if it was the
 * process this one was forked from that opened it. */
waste_status waste_models_opened(waste_lease *out, waste_conn *c, const waste_model_ref *ref,
                                 waste_error *err);
/* Ends this connection's use of the model; 1 if it had it open, else 0. */
int waste_models_close(waste_conn *c, const waste_model_ref *ref);

/* Whether the model was opened for a row with other options, those of usage aside,
 * and nobody but this connection has it: closing it is then all that the new ones
 * need to apply. */
int waste_models_stale(waste_conn *c, const waste_model_ref *ref);

/* Of an open model: how many connections hold it, and what it was opened with. */
int waste_models_users(const waste_lease *l);
const waste_model_options *waste_models_options(const waste_lease *l); /* borrowed */
/* Where this connection keeps what the model learned; borrowed. */
const waste_usage_choice *waste_models_usage(const waste_lease *l);

/* Appends the names in waste_models that lead to the container, ", " between. */
void waste_models_names(waste_buf *out, waste_conn *c, const uint64_t id[2]);

#endif
