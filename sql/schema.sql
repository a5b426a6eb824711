-- Tables of the WASTE extension; waste_setup() and waste_register() make them.
-- Plain tables: no view, trigger, check or default calls a function of the
-- extension, so the database opens, dumps and copies without it.

-- Models by name. path is the container's directory; options is NULL or a JSON
-- object (budget, context, precision, verify).
CREATE TABLE IF NOT EXISTS waste_models(
  name TEXT PRIMARY KEY NOT NULL,
  path TEXT NOT NULL,
  options TEXT
);
