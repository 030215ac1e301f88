//! Robustness tests: damaged lines go through all kinds of columns to Arrow arrays without a panic or an invalid memory access.
//!
//! Run them with the address sanitizer too. Python tests compare the values.

use crate::arrow::{column_array, int64_array, struct_array, text_array};
use crate::column::{Body, Column, Texts};
use crate::ids;
use crate::keys::Keys;
use crate::line::Stream;
use crate::reader::{Form, Reader, Rows};
use crate::replacement::Action;

const LINE: &str = r#"{"type":"RECORD","record":{"stream":"s","namespace":null,"data":{"text":"a \u00e9 b","json":{"a": [1, "x"]},"flag":true,
"integer":-12,"number":1.5e3,"price":-12.5,"date":"2024-02-29","time":"12:34:56.5Z","at":"2024-02-29T01:02:03+01:00","union":[1],
"point":{"lat":1.25,"tags":["a",null,"b\\"]},"points":[{"lat":1},{},null,{"lat":NaN,"tags":[]}],"other":{"deep":[[[]]]}},"emitted_at":5}}"#;
const TOKENS: [&[u8]; 20] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"NaN",
    b"-",
    b"1e9",
    b"\\u00e9",
    b"\\ud800",
    b"\xff",
    b"\xc3",
    b"\n",
    b"\r\n",
    b" ",
    b"2024-02-30",
];

fn point() -> Column {
    let tags = Column::new(Body::Array { offsets: vec![0], items: Box::new(text()) });
    let members = vec![Column::new(Body::Number(Vec::new())), tags];
    Column::new(Body::Object { keys: Keys::new(vec![b"lat".to_vec(), b"tags".to_vec()]), members })
}

fn text() -> Column {
    Column::new(Body::Text(Texts::new()))
}

fn reader() -> Reader {
    let fields = [
        ("text", text()),
        ("json", Column::new(Body::Json { opening: b'{', texts: Texts::new() })),
        ("flag", Column::new(Body::Boolean(Vec::new()))),
        ("integer", Column::new(Body::Integer(Vec::new()))),
        ("number", Column::new(Body::Number(Vec::new()))),
        ("price", Column::new(Body::decimal(12, 2).unwrap())),
        ("date", Column::new(Body::Date(Vec::new()))),
        ("time", Column::new(Body::Time { shifted: true, values: Vec::new() })),
        ("at", Column::new(Body::Timestamp { shifted: true, values: Vec::new() })),
        ("union", Column::new(Body::Other)),
        ("other", Column::new(Body::Cell(Texts::new()))),
        ("point", point()),
        ("points", Column::new(Body::Array { offsets: vec![0], items: Box::new(point()) })),
    ];
    let fields = fields.into_iter().map(|(name, column)| (name.as_bytes().to_vec(), column)).collect();
    Reader::of_fields(Stream { name: b"s".to_vec(), namespace: Vec::new() }, fields)
}

fn treated_reader() -> Reader {
    let fields = [("text", text()), ("date", text()), ("at", Column::new(Body::Cell(Texts::new()))), ("point", point())];
    let actions = [
        ("text", Action::Hash),
        ("date", Action::Truncate(3)),
        ("at", Action::Null),
        ("point", Action::Keep),
        ("json", Action::Drop),
        ("union", Action::Hash),
        ("other", Action::Drop),
    ];
    let fields = fields.into_iter().map(|(name, column)| (name.as_bytes().to_vec(), column)).collect();
    let actions = actions.map(|(name, action)| (name.as_bytes().to_vec(), action)).to_vec();
    Reader::of_treated(Stream { name: b"s".to_vec(), namespace: Vec::new() }, fields, actions, b"secret")
}

fn reader_of_records() -> Reader {
    let column = Column::new(Body::Json { opening: b'{', texts: Texts::new() });
    Reader::of_records(Stream { name: b"s".to_vec(), namespace: Vec::new() }, column)
}

/// A pseudorandom number generator (xorshift), written here to avoid another crate.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn spoilt(line: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut line = line.to_vec();
    for _ in 0..chance.below(4) {
        let at = chance.below(line.len() + 1);
        match chance.below(4) {
            0 => line.truncate(at),
            1 if at < line.len() => line[at] = chance.below(256) as u8,
            2 => drop(line.splice(at..at, TOKENS[chance.below(TOKENS.len())].iter().copied())),
            _ => {
                let end = (at + chance.below(40)).min(line.len());
                let repeated = line[at..end].to_vec();
                drop(line.splice(at..at, repeated));
            }
        }
    }
    line
}

fn export(mut rows: Rows, lines: &[u8]) {
    let texts = rows.texts(lines);
    assert_eq!(texts.offsets.len(), rows.count + 1);
    assert!(rows.columns.iter().all(|column| column.len == rows.count));
    drop(text_array(texts));
    let children = std::iter::once(int64_array(rows.emitted_at)).chain(rows.columns.into_iter().map(column_array)).collect();
    drop(struct_array(rows.count, children));
}

#[test]
fn a_plain_line_is_read() {
    let line = LINE.replace('\n', "");
    let rows = reader().read(line.as_bytes(), Form::Messages);
    assert_eq!((rows.count, rows.odd_lines.len(), rows.emitted_at[0]), (1, 0, 5));
    let odd: usize = rows.columns.iter().map(|column| column.odd.len()).sum();
    assert_eq!(odd, 1); // the union; the NaN becomes null
    export(rows, line.as_bytes());
}

#[test]
fn spoilt_lines_end_in_columns_of_one_length() {
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2_000);
    let line = LINE.replace('\n', "").into_bytes();
    let mut chance = Chance(88_172_645_463_325_252);
    let mut readers = [reader(), reader_of_records(), treated_reader()];
    for _ in 0..rounds {
        let mut lines = Vec::new();
        for _ in 0..chance.below(8) {
            lines.extend(spoilt(&line, &mut chance));
            lines.push(b'\n');
        }
        lines.truncate(lines.len().saturating_sub(chance.below(2)));
        for reader in &mut readers {
            let rows = reader.read(&lines, Form::Messages);
            assert_eq!(rows.count, lines.split_inclusive(|&byte| byte == b'\n').count());
            export(rows, &lines);
            export(reader.read(&lines, Form::Data), &lines);
        }
    }
}

#[test]
fn times_of_a_key_that_its_type_might_cut_are_odd() {
    let at = |whole| {
        let column = Column { whole, ..Column::new(Body::Timestamp { shifted: true, values: Vec::new() }) };
        Reader::of_fields(Stream { name: b"s".to_vec(), namespace: Vec::new() }, vec![(b"at".to_vec(), column)])
    };
    let lines: String =
        ["2024-02-29T01:02:03.123456Z", "2024.02.29 01:02:03Z", "2024-02-29T01:02:03.1234560Z", "2024-02-29T01:02:03.123456789Z"]
            .iter()
            .map(|text| format!(r#"{{"record":{{"stream":"s","emitted_at":1,"data":{{"at":"{text}"}}}}}}{}"#, '\n'))
            .collect();
    let odd = |reader: &mut Reader| -> Vec<usize> {
        reader.read(lines.as_bytes(), Form::Messages).columns[0].odd.iter().map(|odd| odd.position).collect()
    };
    assert!(odd(&mut at(false)).is_empty());
    let mut whole = at(true);
    assert_eq!(odd(&mut whole), [2, 3]);
    assert_eq!(odd(&mut whole), [2, 3]); // the column of the next block is whole, too
}

#[test]
fn cells_and_records_are_compact_text() {
    let line = br#"{"record":{"stream":"s","emitted_at":1,"data":{"a": [1, "x y"], "b":"\u00e9","c":"\ud83d\ude00","d":NaN,"e":null}}}"#;
    let fields = ["a", "b", "c", "d", "e"].map(|key| (key.as_bytes().to_vec(), Column::new(Body::Cell(Texts::new()))));
    let rows = Reader::of_fields(Stream { name: b"s".to_vec(), namespace: Vec::new() }, fields.into()).read(line, Form::Messages);
    assert_eq!(rows.columns.iter().map(|column| column.odd.len()).collect::<Vec<_>>(), [0, 0, 1, 1, 0]);
    assert_eq!(rows.columns.iter().map(|column| column.nulls.len()).collect::<Vec<_>>(), [0, 0, 1, 1, 1]);
    let text = |rows: &Rows, at: usize| match &rows.columns[at].body {
        Body::Cell(texts) | Body::Json { texts, .. } => String::from_utf8(texts.data.clone()).unwrap(),
        _ => unreachable!(),
    };
    assert_eq!((text(&rows, 0), text(&rows, 1)), (r#"[1,"x y"]"#.to_string(), r#""\u00e9""#.to_string()));

    let rows = reader_of_records().read(br#"{"record":{"stream":"s","emitted_at":1,"data":{"a": [1], "b":"NaN"}}}"#, Form::Messages);
    assert_eq!(text(&rows, 0), r#"{"a":[1],"b":"NaN"}"#);
    let rows = reader_of_records().read(br#"{"record":{"stream":"s","emitted_at":1,"data":null}}"#, Form::Messages);
    assert_eq!(rows.odd_lines.len(), 1);
}

#[test]
fn row_ids_are_as_long_as_they_must_be() {
    let texts = ids::texts(1_700_000_000_000, &[0xff; 40]);
    assert_eq!(texts.offsets, [0, 36, 72]);
    assert_eq!(&texts.data[..36], b"018bcfe5-6800-7fff-bfff-ffffffffffff");
}

#[test]
fn decimals_are_exact_or_odd() {
    let texts = ["0.1", "-0.0", "9.99", "-9.99", "10", "1.500", "1.501", "1e0", "\"1\"", "0.00", "12345678901234567890"];
    let line = |text: &str| format!("{{\"record\":{{\"stream\":\"s\",\"emitted_at\":1,\"data\":{{\"a\":{text}}}}}}}\n");
    let fields = vec![(b"a".to_vec(), Column::new(Body::decimal(3, 2).unwrap()))];
    let mut reader = Reader::of_fields(Stream { name: b"s".to_vec(), namespace: Vec::new() }, fields);
    let rows = reader.read(texts.map(line).concat().as_bytes(), Form::Messages);
    let Body::Decimal { values, .. } = &rows.columns[0].body else { unreachable!() };
    assert_eq!(values[..], [10, 0, 999, -999, 0, 150, 0, 0, 0, 0, 0]);
    assert_eq!(rows.columns[0].odd.iter().map(|odd| odd.position).collect::<Vec<_>>(), [4, 6, 7, 8, 10]);
    assert!(Body::decimal(39, 0).is_none() && Body::decimal(2, 3).is_none());
}
