/* The functions, for the table in ext.c. sqlite3_user_data is the
 * connection (waste_conn). What each does stands where it is defined. */
#ifndef FN_H
#define FN_H

#include "sqlite3ext.h"

/* ext.c: whether the text has the name of any function or table of ours in it. */
int waste_fn_named(const char *sql);

/* fn_admin.c */
void waste_fn_version(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_setup(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_register(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_open(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_close(sqlite3_context *ctx, int argc, sqlite3_value **argv);

/* fn_usage.c */
void waste_fn_usage_save(sqlite3_context *ctx, int argc, sqlite3_value **argv);

/* fn_calibrate.c */
void waste_fn_calibrate_step(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_calibrate_final(sqlite3_context *ctx);
void waste_fn_importance_save(sqlite3_context *ctx, int argc, sqlite3_value **argv);

/* fn_text.c */
void waste_fn_tokenize(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_detokenize(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_token_count(sqlite3_context *ctx, int argc, sqlite3_value **argv);

/* fn_generate.c */
void waste_fn_generate(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_generate_json(sqlite3_context *ctx, int argc, sqlite3_value **argv);

/* fn_chat.c */
void waste_fn_render(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_chat_json(sqlite3_context *ctx, int argc, sqlite3_value **argv);

/* fn_session.c */
void waste_fn_session(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_fork(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_chat(sqlite3_context *ctx, int argc, sqlite3_value **argv);

#endif
