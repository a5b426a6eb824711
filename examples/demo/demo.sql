-- What `make demo` runs: sqlite3 :memory: < examples/demo/demo.sql
.load build/waste
.bail on
.mode list

-- From the published checkpoint (safetensors, MXFP4 experts) to a container.
SELECT 'converted ' || max(total) || ' pieces, ' || (max(bytes) / 1000000) || ' MB'
  FROM waste_convert('examples/demo/checkpoint', 'examples/demo/demo.waste');

SELECT 'registered ' || json_extract(waste_register('demo', 'examples/demo/demo.waste'), '$.arch');

.print
.mode box --wrap 60
CREATE TABLE questions(q TEXT);
INSERT INTO questions VALUES
  ('What is the capital of Italy?'),
  ('Which continent is Madagascar in?'),
  ('Bridgetown is the capital of what country?'),
  ('What is 27 + 14?'),
  ('Classify this review: I loved this music.'),
  ('Extract name and city as JSON: Clara moved to Lisbon.'),
  ('Show all users older than 30.');
SELECT q AS question, waste_generate('demo', q) AS answer FROM questions;
