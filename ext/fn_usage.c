/* waste_usage_save(model): writes down which experts the model has wanted, so
 * that the next open starts with them in memory.
 *
 *     SELECT waste_register('demo', 'examples/demo/demo.waste', '{"usage":"table"}');
 *     SELECT waste_generate('demo', 'What is the capital of Italy?');
 *     SELECT waste_usage_save('demo') > 0;   -- 1
 *     SELECT model, count(*) > 0 FROM waste_usage GROUP BY model;   -- demo|1
 *
 * Where it goes is the model's option "usage": "table" is the table waste_usage
 * of this database, true is usage.waste in the container, a path is that file.
 * The default is false, and saving is then an error. What was saved before is
 * replaced; demand that was read at open is part of what is saved, so nothing
 * learned is lost but by decay.
 *
 * Gives the number of rows. A NULL model gives NULL. The model must be open on
 * this connection. waste_close saves too; the end of a connection does not. A
 * file that is there and is no usage file is left alone, with an error. */
#include "ext_args.h"
#include "ext_models.h"
#include "ext_usage.h"
#include "fn.h"

SQLITE_EXTENSION_INIT3

void waste_fn_usage_save(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    waste_conn *conn = sqlite3_user_data(ctx);
    waste_model_ref ref = {0};
    waste_error err = {0};
    waste_usage_kept what = WASTE_USAGE_KEPT;
    int64_t rows = 0;
    waste_status st;

    (void)argc;
    if (sqlite3_value_type(argv[0]) == SQLITE_NULL) return;
    st = waste_models_find(&ref, conn, argv[0], &err);
    if (!st) st = waste_usage_keep(&what, &rows, conn, &ref, &err);
    if (!st && what == WASTE_USAGE_NOT_OPEN)
        st = waste_fail(&err, WASTE_ARG,
                        "waste_usage_save: model '%s' is not open on this connection: there is "
                        "nothing to save",
                        ref.label);
    else if (!st && what == WASTE_USAGE_NOWHERE)
        st = waste_fail(&err, WASTE_ARG,
                        "waste_usage_save: model '%s' keeps no usage; its option 'usage' can be "
                        "true, \"table\" or a path",
                        ref.label);
    if (st)
        waste_args_fail(ctx, &err);
    else
        sqlite3_result_int64(ctx, rows);
    waste_models_ref_clear(&ref);
}
