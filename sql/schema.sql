-- Tables of the WASTE extension; waste_setup() and waste_register() make them.
-- Plain tables: no view, trigger, check or default calls a function of the
-- extension, so the database opens, dumps and copies without it.

-- Models by name. path is the container's directory; options is NULL or a JSON
-- object (budget, context, precision, kv, verify, direct_io, io_threads, lookahead,
-- exclusive, usage, threads, cpus).
CREATE TABLE IF NOT EXISTS waste_models(
  name TEXT PRIMARY KEY NOT NULL,
  path TEXT NOT NULL,
  options TEXT
);

-- Which experts a model has wanted, for models with the option "usage":"table";
-- waste_close() and waste_usage_save() replace a model's rows.
CREATE TABLE IF NOT EXISTS waste_usage(
  model TEXT NOT NULL,
  layer INTEGER NOT NULL,
  expert INTEGER NOT NULL,
  hits INTEGER NOT NULL,
  PRIMARY KEY(model, layer, expert)
) WITHOUT ROWID;

-- Conversations. keep: of how many of the last turns the model's state is kept, so
-- that they can be gone on with or forked without computing again; 0: none.
-- state_rev counts the turns written: a turn is only added to what it has read.
CREATE TABLE IF NOT EXISTS waste_sessions(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT UNIQUE,
  model TEXT NOT NULL,
  parent INTEGER REFERENCES waste_sessions(id) ON DELETE SET NULL,
  options TEXT,
  keep INTEGER NOT NULL DEFAULT 1,
  n_tokens INTEGER NOT NULL DEFAULT 0,
  state_rev INTEGER NOT NULL DEFAULT 0,
  model_id TEXT,
  created TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);

-- Their messages. tokens: what the model read or wrote (int32, little-endian), with
-- tokens_sum over it; NULL: not read yet, and neither is anything after it. span
-- names the rows of waste_state that these tokens have made. omitted: NULL, or the seq of
-- the message from which on the model is not shown this one.
CREATE TABLE IF NOT EXISTS waste_messages(
  session INTEGER NOT NULL REFERENCES waste_sessions(id) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  role TEXT NOT NULL,
  content TEXT,
  name TEXT,
  reasoning TEXT,
  tool_calls TEXT,
  tool_call_id TEXT,
  images TEXT,
  finish TEXT,
  stats TEXT,
  n_tokens INTEGER,
  tokens BLOB,
  tokens_sum INTEGER,
  span INTEGER,
  omitted INTEGER,
  PRIMARY KEY(session, seq)
);
CREATE INDEX IF NOT EXISTS waste_messages_span ON waste_messages(span);

-- The state that spans of tokens have left in the model, exact, in pieces of at most
-- 16 MiB: 'latents' of the span's own positions, which never change and which forks
-- share; 'state' and 'ring' as they are at its end.
CREATE TABLE IF NOT EXISTS waste_state(
  span INTEGER NOT NULL,
  layer INTEGER NOT NULL,
  part TEXT NOT NULL,
  block INTEGER NOT NULL,
  data BLOB NOT NULL,
  sum INTEGER NOT NULL,
  PRIMARY KEY(span, layer, part, block)
);

-- Deleting a session takes its messages along, and deleting a message its state,
-- unless a fork has it too; whether foreign keys are enforced or not.
CREATE TRIGGER IF NOT EXISTS waste_sessions_gone AFTER DELETE ON waste_sessions BEGIN
  DELETE FROM waste_messages WHERE session = OLD.id;
  UPDATE waste_sessions SET parent = NULL WHERE parent = OLD.id;
END;
CREATE TRIGGER IF NOT EXISTS waste_messages_gone AFTER DELETE ON waste_messages
WHEN OLD.span IS NOT NULL BEGIN
  DELETE FROM waste_state WHERE span = OLD.span
    AND NOT EXISTS (SELECT 1 FROM waste_messages WHERE span = OLD.span);
END;
CREATE TRIGGER IF NOT EXISTS waste_messages_moved AFTER UPDATE OF span ON waste_messages
WHEN OLD.span IS NOT NULL AND OLD.span IS NOT NEW.span BEGIN
  DELETE FROM waste_state WHERE span = OLD.span
    AND NOT EXISTS (SELECT 1 FROM waste_messages WHERE span = OLD.span);
END;
