// The texts that tokenizer.mjs asks tiktoken about: { cat, parts }, where a part
// [unit, times] is `unit` written `times` times. Chosen for the places where the
// pattern decides something: see docs/format.md 8.3 and 8.7.
const rows = [];
const add = (cat, ...texts) => texts.forEach((t) => rows.push({ cat, parts: [[t, 1]] }));
const repeat = (cat, ...parts) => rows.push({ cat, parts });

add('empty', '');

add('verified splits',
  'Hello, world!', "don't can't we've I'll you're it's", "DON'T", "IT'Sx", "'tis 'S",
  'numbers 1234567 and 42', '100,000.5', '½ ٣٤٥٦', 'CamelCase SCREAMING_CASE snake_case iPhone',
  '  indented\n\ttabbed\n\nblank line', 'a  b', 'a  ', 'trailing   \n  next', 'a\tb\t\tc',
  '\r\n\r\nx', '=== title\n\nx', 'x=1;y=2;/*comment*/', '好的!世界', '!好', '价格100元',
  '日本語のテキスト', '々〇', '한국어 텍스트', 'emoji 🎉🎉 ok', 'cafe\u0301', 'a\u00a0b', 'a\u3000b',
  'a\u200bb', '\u0000a', 'role="user"<|sep|>', 'カタカナABC', 'ABCカナdef', '\u0301ABC', '-ABC', 'ªB');

add('english',
  'An index is a promise that somebody else already did the sorting.',
  'The river rose overnight; by Tuesday the lower road was gone, and so was the bridge (the old one).',
  'Dr. Okafor\'s notes – all 214 pages of them – weren\'t filed until "later", whatever that means...',
  'naïve café façade coöperate Zoë’s piñata', 'OpenSSL 3.0.2 on x86_64, e.g. v1.2.3-rc4+build.5',
  'A', 'a', ' a', 'a ', 'I', 'mother-in-law', 'He said "no" -- then: yes?! #tag @name 50% a&b');

add('italian',
  "L'orologio della stazione segnava le 7:45, ma l'autobus non c'era ancora.",
  'Perché no? Così è più facile: un po’ alla volta, finché dura.',
  "Quest'anno l'università costa 1.234,56 € — il 3,5% in più; dov'è l'uscita?",
  "dell'AMICO D'ACCORDO c'È un'Idea");

add('code',
  'for (size_t i = 0; i < n; i++) { sum += x[i] * w[i]; }\n',
  'def area(r):\n    """Of a circle."""\n    return math.pi * r ** 2\n\n\nprint(area(3))\n',
  '#include <stdio.h>\r\n\r\nint main(void)\r\n{\r\n\treturn puts("hi\\n") < 0;\r\n}\r\n',
  "SELECT name, count(*) AS n FROM t WHERE id IN (1, 22, 333) AND note LIKE '%it''s%' GROUP BY 1;",
  'const f = async ({a, ...rest}) => `${a ?? 0}:${JSON.stringify(rest)}`; // HTTPServer2Go',
  '<div class="box" id=\'x1\'>&nbsp;</div>\n<!-- end -->', 'git log --oneline | head -n 20 > /tmp/out.txt',
  'a_b__c _private __init__ kebab-case $var @decorator 0xFF 1e-9 3.14f ::std::move');

add('json',
  '{"name":"sensor-7","values":[1,20,300,4000,-5.5e+10],"ok":true,"next":null}',
  '{\n  "outer": {\n    "inner": [\n      {}, [], "", "\\u00e9\\n"\n    ]\n  }\n}\n',
  '[[1,2],[3,4]]\n[]', '{"à":"è","键":"值"}');

add('whitespace',
  ' ', '  ', '\t', '\n', '\r', '\r\n', '\n\n', ' \n', '\n ', ' \n ', '\t \n\t x', 'x \n', 'x  \n\n  y',
  'x\n\n\n  \n  y', 'x \t y', 'x\u00a0\u00a0y', '\u2003\u2003x', 'x\u2028y\u2029z', 'x\u0085y', 'x\u000b\u000cy',
  '\u1680x\u202fy\u205fz', 'x \r y', 'x\r\r\n\n\ry', '   1', '   !', '   中', '   a', '\t1', '\t!', '\t中', '\ta',
  '\n1', '\n!', '\n中', '\na', ' \n1', '!\n\n a', '! \n a', '!\r\n!\r\n', 'end of line   ', '\u3000\u3000中', '\u001c\u001dx');

add('digits',
  '1', '12', '123', '1234', '12345678', '1 2', 'a1', '1a', '1.5', '-1', '٠١٢٣٤٥٦٧٨٩', '०१२३', '๐๑๒๓๔', '１２３４５',
  '²³¹⁴', '½¼¾⅓', 'ⅠⅡⅢⅣ', '①②③④⑤', '12½٣4', '𝟘𝟙𝟚𝟛', 'x²+y²=z²', '3월 14일', '㊀㊁㈠', '二〇二四年', '〡〢〣〤', '1\u0301\u03022');

add('contractions',
  "I'm you're he's she'd we'll they've can't", "I'M YOU'RE HE'S SHE'D WE'LL THEY'VE CAN'T", "I'm'd'll've're's't",
  "x'sy", "x'ly", "x'lly", "x'rey", "x'r e", "x'v", "x'", "''s", "a''s", "1's", "!'s", " 's", "\n's", "中's", "の's", "é's", "É'S",
  "e\u0301's", "a’s", "a'ſ", "don'ſt", "'ſ", "a'ＳS", "ab'M ab'm AB'm Ab'Ll", "'S'", "'Sb", "l'LL'E");

add('case',
  'aB', 'Ab', 'AB', 'ABc', 'aBC', 'aBCd', 'ǅ', 'ǅa', 'Aǅ', 'aǅ', 'aʰb', 'Aʰb', 'AʰB', 'AªB', 'ªAB', 'AªBªC', 'Aªªb', 'ABʰCDʰ',
  'ΑΒΓαβγ', 'ПриветМир', 'ԱԲգ', 'ႠႡა', 'ᲐᲑა', 'ÉCOLE', 'éCole', 'A\u0301B\u0301c', 'ABC\u0301DEF', '-Ab-cD-EF', '_A _a _1',
  'ﬁn ﬃ ẞß İi ıI', 'ⓐⒶ', 'ℌ𝔥𝕳');

add('chinese',
  '今天天气很好，我们去公园。', '第3章 总则（试行）', '中文english混排', 'abc中文', '中文ABC中文', '「引号」、顿号；冒号：', '中 文', '中\n文', '你好！！！世界',
  '㐀㐁𠀀𠀁', '⺀⺁⼀⼁', '!⺀⺁', '〇一二', '〆切', '〸〹〺〻', '豈更', '𮯰𮯱', '𖿰𖿱中', '𱍐𲎯', '中\u0301文', '中\u302a文');

add('japanese',
  '東京タワーに行きました。', 'コンピューター', 'ヴァイオリン', 'ひらがなカタカナ漢字', '食べる、飲む。', 'ｶﾀｶﾅ ﾊﾝｶｸ', '々々人々', 'がか\u3099', 'ー〜・', '㌔㍍', 'A社のB案', 'ゝゞヽヾ');

add('korean', '안녕하세요, 세계!', '오늘 날씨가 좋네요.', '가나다ABC라마바abc', '\u1112\u1161\u11ab글', 'ㄱㄴㄷ ㅏㅑ', '한국어中文日本語', '３월１４일');

add('arabic and others',
  'مرحبا بالعالم', 'النص العربي ١٢٣٤٥ والأرقام', 'ا\u064eل\u0652', 'שלום, עולם! 123', 'नमस्ते दुनिया', 'স্বাগতম ১২৩৪', 'สวัสดีชาวโลก', 'வணக்கம்', 'ສະບາຍດີ',
  'Καλημέρα κόσμε', 'Привет, мир!', 'გამარჯობა', 'Բարև', 'አማርኛ ፩፪፫፬', 'ᚠᚢᚦ', '\u0600\u0601x', 'ᠮᠣᠩᠭᠣᠯ', 'བོད་སྐད།', 'ខ្មែរ', '𐐀𐐨', '𞤀𞤢');

add('combining',
  'e\u0301', 'e\u0301\u0302\u0303', '\u0301', '\u0301\u0302', ' \u0301', ' \u0301a', '\n\u0301', '!\u0301', '!\u0301!', '1\u0301', 'A\u0301', 'A\u0301b', '\u0301A', '\u0301a', '\u0301\u0301A',
  '-\u0301A', 'a\u20dd', '\u20dd\u20dd!', '#\ufe0f\u20e3', '1\ufe0f\u20e3', 'x\u0300y\u0300z', '\u093f\u0939', 'क\u094dष');

add('emoji',
  '😀', '😀😃😄', ' 😀', 'a😀', '😀a', '😀 a', '👨\u200d👩\u200d👧\u200d👦', '👩🏽\u200d💻 works', '🏳\ufe0f\u200d🌈', '🇮🇹🇯🇵', '❤\ufe0f!', '☕\ufe0f\n\n', '✨a✨', '🎉中🎉', '😀1😀', '🧑\u200d🚀\'s', '\u200d', 'a\u200d', '\u200da');

add('controls and oddities',
  '\u0000', 'a\u0000b', '\u0000\u0000a', '\u001b[0m', '\u007f', '\u00ad', 'a\u00adb', '\ufeffa', '\ufffd', '\ufffda', '\uffff', '\ue000a', '\u{10ffff}', '\u{e0041}', '\u0378a', '\u2060a', '\u200ea\u200f', '¿Qué?', '№5', '™®©', '°C', '$5 €5 £5', '…a…', 'a—b', '“q”', '‘q’', '`q`', '^~^', '<>', '|>', '<|', '<|x', '\\n');

add('control spellings',
  '<|open|>', '<|open|><|sep|>', 'a<|sep|>b', 'role="user"<|sep|>x', '<|open|', '<|open', 'open|>', '<<|sep|>', '<|<|sep|>', '<|sep|><|sep|', ' <|sep|> ', '\n<|sep|>\n', 'x<|sep|>\n\ny', 'a  <|sep|>b',
  '[BOS]hello[EOS]', '[bos]', '[BOS', '<|é|>', '<|中|>', '中<|中|>中', '<|q"q|>', '<|back\\slash|>', '<|tab\there|>', '<|nl\nhere|>', '<|😀|>', '====', '===', '=======', "it<|sep|>'s", '12<|sep|>345', 'e<|sep|>\u0301',
  '<|end_of_msg|><|open|>message role="system"<|sep|>obey', 'hi<|end_of_msg|>');
// <|a|> begins <|a|>b: which of the two tiktoken finds is chance, so these have
// the answer of the rule "the longest".
add('one spelling begins another', '<|a|>', '<|a|>b', '<|a|>c', '<|a|><|a|>b', 'x<|a|>bb', '<|a|><|sep|>b');

repeat('long runs', ['好', 86]);
repeat('long runs', ['=', 400]);
repeat('long runs', ['\n', 300]);
repeat('long runs', [' ', 1300]);
repeat('long runs', ['a', 1500]);
repeat('long runs', ['A', 1500]);
repeat('long runs', ['aB', 800]);
repeat('long runs', ['漢字', 700]);
repeat('long runs', ['7', 1025]);
repeat('long runs', ['-', 1024]);
repeat('long runs', ['é', 600]);
repeat('long runs', ['\r\n', 700]);
repeat('long runs', ['\u0301', 700]);
repeat('long runs', ['😀', 300]);
repeat('long runs', ['Aª', 500]);
repeat('long runs', ["'s", 600]);
repeat('long runs', ['<|', 600]);
repeat('long runs', ['<|sep|>', 200]);

// The cuts at 25,000 characters of one kind and at 400,000 characters. The odd
// lengths before and after a cut make it visible in pairs of equal characters.
repeat('cuts', ['a', 1], ['=', 25001]);
repeat('cuts', ['ab ', 1], ['é', 25003], [' c', 1]);
repeat('cuts', ['x', 1], [' ', 25001], ['y', 1]);
repeat('cuts', ['!', 1], ['\n', 25000], ['z', 1]);
repeat('cuts', ['=', 24998], ['<|open|>', 1]);
repeat('cuts', ['=', 24992], ['<|open|>', 1]);
repeat('cuts', ['1', 25002]);
repeat('cuts', ['中', 50001]);
repeat('cuts', ['hello ', 66668]);
repeat('cuts', ['  \n', 133335]);

// Mixtures: a fixed generator over the characters that the pattern tells apart.
const atoms = ['a', 'b', 'A', 'B', 'é', 'É', 'ǅ', 'ʰ', 'ª', 'の', 'ア', '中', '々', '〇', '\u0301', '\u093f', '1', '2', '٣', '½', ' ', ' ', '\n', '\r', '\t', '\u00a0', '\u3000',
  "'", 's', 'T', 'l', 'L', 're', 'VE', '!', '-', '_', '"', '<|', '|>', '😀', '\u200d', '\u0000', '한', 'ا', '⺀', '𖿰', 'ſ', '<|sep|>', '<|open|>'];
let seed = 20240229;
const random = (n) => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) % 65521 % n;
for (let i = 0; i < 400; i++) {
  let text = '';
  for (let k = 1 + random(24); k > 0; k--) text += atoms[random(atoms.length)];
  add('mixtures', text);
}

export default rows;
