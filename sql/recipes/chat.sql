-- Queries over conversations (docs/sessions.md). Each stands alone; :session is a number.
-- The tables are plain: these work in any SQLite tool, without the extension.

-- A transcript.
SELECT seq, role, content, tool_calls FROM waste_messages WHERE session = :session ORDER BY seq;

-- Sessions, latest first: turns, tokens, when.
SELECT s.id, s.name, s.model, count(m.seq) AS messages, s.n_tokens, s.updated
  FROM waste_sessions s LEFT JOIN waste_messages m ON m.session = s.id
 GROUP BY s.id ORDER BY s.updated DESC;

-- What was said about something, and where.
SELECT session, seq, role, content FROM waste_messages WHERE content LIKE '%' || :words || '%';

-- Did the last turns take their state up, or compute it again?
SELECT seq, stats ->> 'source' AS source, stats ->> 'reused' AS reused, stats ->> 'prefilled' AS prefilled,
       stats ->> 'rejected' AS rejected, stats ->> 'total_ms' AS ms
  FROM waste_messages WHERE session = :session AND role = 'assistant' ORDER BY seq;

-- Bytes of state, by session; what forks share is counted for each of them.
SELECT m.session, sum(length(w.data)) AS bytes
  FROM (SELECT DISTINCT session, span FROM waste_messages WHERE span IS NOT NULL) m
  JOIN waste_state w ON w.span = m.span GROUP BY m.session ORDER BY bytes DESC;

-- Where the branches of a conversation come from.
WITH RECURSIVE tree(id, name, depth) AS (
  SELECT id, name, 0 FROM waste_sessions WHERE id = :session
  UNION ALL
  SELECT s.id, s.name, t.depth + 1 FROM waste_sessions s JOIN tree t ON s.parent = t.id)
SELECT printf('%*s', 2 * depth, '') || coalesce(name, id) AS branch FROM tree;

-- Keep the words of what has rested for a month, not the state: it costs computing when somebody goes on.
DELETE FROM waste_state WHERE span IN
  (SELECT m.span FROM waste_messages m JOIN waste_sessions s ON s.id = m.session
    WHERE s.updated < datetime('now', '-30 days'));

-- Forget sessions of a year ago altogether.
DELETE FROM waste_sessions WHERE updated < datetime('now', '-1 year');

-- The whole conversation in the OpenAI message schema, for waste_chat_json or another server.
SELECT json_group_array(json_patch(json_object('role', role, 'content', content),
         json_object('name', name, 'tool_call_id', tool_call_id, 'tool_calls', json(tool_calls))))
  FROM (SELECT * FROM waste_messages WHERE session = :session ORDER BY seq);
