/* Conversations as rows: waste_sessions, waste_messages and waste_state of one
 * schema ("main", "temp" or an attached database).
 *
 * What a conversation is for the model is its token ids, in the order of its rows.
 * A state is taken up only for the very tokens that made it: sequences at rest are
 * found by their tokens, rows of waste_state are checked against them. So a
 * ROLLBACK, a restored copy or another process' turn needs no noticing.
 *
 * Belongs to the thread that runs the connection. No statement outlives a call. */
#ifndef EXT_SESSION_H
#define EXT_SESSION_H

#include "base/buf.h"
#include "ext_models.h"
#include "sqlite3ext.h"
#include "waste.h"

typedef enum waste_session_role {
    WASTE_SESSION_OTHER, /* tool */
    WASTE_SESSION_SYSTEM,
    WASTE_SESSION_USER,
    WASTE_SESSION_ASSISTANT
} waste_session_role;

/* One row of waste_messages that the model is shown. Its tokens are ids[from..to) of the
 * conversation. */
typedef struct waste_session_message {
    int64_t seq, span; /* span 0: none */
    size_t from, to;
    int known; /* its tokens are there and whole, and so are all before it */
    int fresh; /* these are not the tokens of its row */
    waste_session_role role;
} waste_session_message;

typedef struct waste_session {
    sqlite3 *db;
    char *schema;
    int64_t id, keep, rev;
    char *name;           /* or NULL */
    char *options;        /* or NULL */
    sqlite3_value *model; /* as waste_models_find takes it */
    char *model_id;       /* or NULL */
    /* waste_session_read */
    waste_session_message *message;
    size_t n, cap;
    size_t known;     /* messages at the front whose tokens are known */
    waste_ids ids;    /* of these */
    int64_t last_seq; /* of all messages; -1: none */
    /* Of all rows, to notice changes: how many, their tokens, rows without, rows that are
     * left out. */
    int64_t counted[4];
    /* Set before reading: messages before this seq are left out, but for those of the
     * system (ext_truncate.h); 0: none. Then what that leaves out, its tokens, and whether the
     * conversation's first message is among it. */
    int64_t cut, cut_n, cut_tokens;
    int headless;
    /* For the renderer: the messages from the last one on that the model itself wrote, as
     * members of a JSON array; at[i] is where the i-th ends. The first `skip` are known. */
    waste_buf tail;
    size_t *at;
    size_t tail_n, skip;
} waste_session;

/* The row that an SQL value (a number or a name) leads to, nothing more. WASTE_ARG
 * when there is none. Clear it in any case. */
waste_status waste_session_find(waste_session *s, sqlite3 *db, sqlite3_value *which,
                                const char *who, waste_error *err);
/* Reads again what of the row a turn depends on, now that a transaction holds still what
 * is read. WASTE_ARG when it is gone. */
waste_status waste_session_reread(waste_session *s, waste_error *err);
waste_session_role waste_session_role_of(const char *text);
/* Its messages, anew each time. `text` is the identity of the tokenizer in use: tokens of
 * another are unknown. */
waste_status waste_session_read(waste_session *s, uint64_t text, waste_error *err);
void waste_session_clear(waste_session *s);

/* WASTE_BUSY when the session or its messages are not what was read. */
waste_status waste_session_unchanged(const waste_session *s, waste_error *err);

/* One more message, zeroed; NULL: out of memory. */
waste_session_message *waste_session_add(waste_session *s, waste_error *err);

/* Appends a message for the renderer to the tail. Texts may be NULL. parts: further texts of it. */
typedef struct waste_session_draft {
    waste_str role, content, name, reasoning, call_id;
    const char *tool_calls; /* JSON */
    const waste_str *parts;
    size_t n_parts;
} waste_session_draft;

waste_status waste_session_draft_add(waste_session *s, const waste_session_draft *d,
                                     waste_error *err);

/* ---- transactions ---------------------------------------------------------------- */

/* Around a few statements that belong together, inside whatever the caller has going
 * on: a transaction of its own, a savepoint in the caller's, or nothing when a
 * statement of the caller's is just writing, for then SQLite allows neither. */
typedef enum waste_session_kind {
    WASTE_SCOPE_NONE,
    WASTE_SCOPE_OWN,
    WASTE_SCOPE_SAVEPOINT
} waste_session_kind;

typedef struct waste_session_scope {
    waste_session_kind kind;
    int write;
    sqlite3_stmt *guard; /* see undo in ext_session.c */
} waste_session_scope;

/* Every begin, failed or not, needs its end. */
waste_status waste_session_begin(waste_session_scope *scope, sqlite3 *db, int write,
                                 const waste_cancel *cancel, const char *doing, waste_error *err);
/* st: what happened in between. Keeps the work or undoes it; the first error counts. */
waste_status waste_session_end(waste_session_scope *scope, sqlite3 *db, waste_status st,
                               const char *doing, waste_error *err);

/* Whether begin failed because the statement that calls us reads the database as it was
 * before somebody else wrote to it: SQLite then lets the connection write no more until
 * that statement ends. */
int waste_session_outdated(sqlite3 *db);
/* Another connection to the schema's file, which is "main" there, for that case. Close it
 * with sqlite3_close. WASTE_BUSY when there is no file or it cannot be opened. */
waste_status waste_session_aside(sqlite3 **out, sqlite3 *db, const char *schema, waste_error *err);

/* Where the session tables are: main, else the first database that has them, else main.
 * Free with waste_mem_free. */
waste_status waste_session_schema(char **out, sqlite3 *db, waste_error *err);

/* Prepares `sql`, in which $ stands for the schema and its dot. */
waste_status waste_session_prepare(sqlite3_stmt **q, sqlite3 *db, const char *schema,
                                   const char *sql, waste_error *err);
/* What SQLite says, as an error. */
waste_status waste_session_failed(sqlite3 *db, const char *doing, waste_error *err);
/* Steps a statement that gives no row, and finalizes it. */
waste_status waste_session_run(sqlite3_stmt *q, const char *doing, waste_error *err);

#endif
