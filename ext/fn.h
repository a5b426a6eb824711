/* The scalar functions, for the table in ext.c. sqlite3_user_data is the
 * connection (waste_conn). What each does stands where it is defined. */
#ifndef FN_H
#define FN_H

#include "sqlite3ext.h"

/* fn_admin.c */
void waste_fn_version(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_setup(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_register(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_open(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_close(sqlite3_context *ctx, int argc, sqlite3_value **argv);

/* fn_text.c */
void waste_fn_tokenize(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_detokenize(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_token_count(sqlite3_context *ctx, int argc, sqlite3_value **argv);

/* fn_generate.c */
void waste_fn_generate(sqlite3_context *ctx, int argc, sqlite3_value **argv);
void waste_fn_generate_json(sqlite3_context *ctx, int argc, sqlite3_value **argv);

#endif
