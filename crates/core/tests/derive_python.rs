//! Compares derived keys, and the JSON they are made from, with what a real Python computes. Never skipped: without
//! `python3` it fails, because a promise that was not checked is not kept.

#![expect(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use onlyonce_core::key::derive::Derivation;

/// How many cases are generated beside the fixed ones.
const GENERATED: usize = 5000;

/// The seed, unless `ONLYONCE_SEED` names another one.
const SEED: u64 = 0x6f6e_6c79_6f6e_6365;

/// Reads one case per line: a JSON list of entity, action and the *text* of the params, so that Python reads the same
/// text as we do. Writes the key and the JSON that it was made from.
const SCRIPT: &str = r#"
import hashlib, json, sys
for line in sys.stdin.buffer:
    e, a, text = json.loads(line)
    p = json.loads(text)
    source = f"{e}:{a}" if not p else f"{e}:{a}:{json.dumps(p, sort_keys=True)}"
    key = hashlib.sha256(source.encode()).hexdigest()[:32]
    sys.stdout.write(key + " " + (json.dumps(p, sort_keys=True) if p else "") + "\n")
"#;

/// Entity, action, and the text of the params.
type Case = (String, String, String);

#[test]
fn keys_are_those_of_python_on_nasty_params() {
    let cases: Vec<Case> = nasty_params()
        .into_iter()
        .map(|params| ("order-123".to_owned(), "create".to_owned(), params))
        .chain([("Zürich:😀".to_owned(), "\u{7f}\n\"é\\".to_owned(), r#"{"a": 1}"#.to_owned())])
        .collect();
    let keys = compare(&cases);
    assert_eq!(cases[0].2, r#"{"currency":"USD","amount":100}"#);
    assert_eq!(keys[0], "0681b5ad331e2ebe28b4f1ab218048a4");
}

#[test]
fn keys_are_those_of_python_on_generated_params() {
    let seed =
        std::env::var("ONLYONCE_SEED").map_or(SEED, |text| text.parse().expect("ONLYONCE_SEED is a number"));
    println!("seed: ONLYONCE_SEED={seed}");
    let mut chance = Chance(seed);
    let cases: Vec<Case> = (0..GENERATED)
        .map(|_| {
            let mut params = String::new();
            chance.object(&mut params, 4);
            (format!("e{}", chance.text()), format!("a{}", chance.text()), params)
        })
        .collect();
    compare(&cases);
}

/// Every power of two and of ten, and its neighbours: where shortest digits are hardest to find.
#[test]
fn floats_are_those_of_python_at_every_power() {
    let powers = (-1074..=1023).map(|power| 2_f64.powi(power));
    let tens = (-323..=308).map(|power| format!("1e{power}").parse::<f64>().unwrap());
    let all: Vec<f64> =
        powers.chain(tens).flat_map(|float| [float, float.next_down(), float.next_up()]).collect();
    let texts: Vec<String> =
        all.iter().filter(|float| float.is_finite()).map(|float| format!("{float:e}")).collect();
    let cases: Vec<Case> = texts
        .chunks(200)
        .map(|chunk| ("e".to_owned(), "a".to_owned(), format!("{{\"f\": [{}]}}", chunk.join(", "))))
        .collect();
    compare(&cases);
}

fn nasty_params() -> Vec<String> {
    let digits = "9876543210".repeat(430);
    let mut list: Vec<String> = [
        r#"{"currency":"USD","amount":100}"#,
        "{}",
        " {\t\r\n} ",
        r#"{"": ""}"#,
        r#"{"a": {}, "b": [], "c": [[], {}], "d": [{"z": 1, "y": {"b": 2, "a": 1}}]}"#,
        r#"{"a": null, "b": true, "c": false, "d": [null, true, false]}"#,
        r#"{"i": [0, -0, 1, -1, 9007199254740993, -9007199254740993, 18446744073709551616, 1000000000000000000000]}"#,
        r#"{"f": [0.0, -0.0, 0e0, -0e5, 0E+0, 1.0, 1e0, 1E5, 1e-5, 1.5e-5, 0.0001, 0.00001, 123456789.125, 1.10]}"#,
        r#"{"f": [1e15, 1e16, 1e17, 1e21, 1e22, 1e23, 123456789012345678.0, 9999999999999998.0, 99999999999999990.0]}"#,
        r#"{"f": [1e308, 1.7976931348623157e308, -1.7976931348623158e308, 5e-324, 2.2250738585072011e-308, 1e-400]}"#,
        r#"{"f": [-1e-400, 0.1, 0.2, 0.30000000000000004, 2.5, 1e+2, 1E-2, 4.35, 2.675, 1.005, 100.0, 5.684341886080801e-14]}"#,
        r#"{"f": [0.1000000000000000055511151231257827021181583404541015625, 3.14159265358979323846264338327950288]}"#,
        r#"{"s": "\u0000\u0001\u001f \u007f\u0080\u00ff\u0100\u2028\u2029\ufeff\uffff"}"#,
        r#"{"s": "\"\\\/\b\f\n\r\t", "t": "</script>'&"}"#,
        r#"{"s": "\ud83d\ude00😀𝄞\udbff\udfff", "e": "éè", "c": "e\u0301"}"#,
        r#"{"\ud83d\ude00": 1, "\ufb33": 2, "\uffff": 3, "\ue000": 4, "é": 5, "z": 6, "Z": 7, "_": 8, "1": 9, "10": 10, "2": 11}"#,
        r#"{"a": 1, "A": 2, "aa": 3, "a\u0000": 4, "a ": 5, "": 6, "\u007f": 7, "\"": 8, "\\": 9}"#,
        r#"{"true": true, "null": null, "1": 1, "1.0": 1.0, "NaN": "NaN"}"#,
    ]
    .map(str::to_owned)
    .to_vec();
    // The longest integers that Python reads, and the deepest nesting that we read.
    list.push(format!("{{\"i\": [{digits}, -{digits}]}}"));
    list.push(format!("{{\"deep\": {}{}}}", "[".repeat(63), "]".repeat(63)));
    list.push(format!("{}1{}", "{\"a\": ".repeat(64), "}".repeat(64)));
    list
}

/// Panics on the first case on which we and Python differ. Answers the keys.
fn compare(cases: &[Case]) -> Vec<String> {
    let answers = ask_python(cases);
    assert_eq!(answers.len(), cases.len(), "python3 answered every case");
    for ((entity, action, params), answer) in cases.iter().zip(&answers) {
        let ours = Derivation::new(entity, action).unwrap().with_params(params).expect(params);
        let answered = format!("{} {}", ours.key().as_str(), ours.params_text().unwrap_or_default());
        assert_eq!(&answered, answer, "ours (left) and Python's (right) for {entity:?} {action:?} {params}");
    }
    answers.iter().map(|answer| answer.split(' ').next().unwrap_or_default().to_owned()).collect()
}

fn ask_python(cases: &[Case]) -> Vec<String> {
    let mut python = Command::new("python3")
        .args(["-c", SCRIPT])
        .env("PYTHONIOENCODING", "utf-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed: this test compares with it and is never skipped");
    let lines: String = cases.iter().map(|case| serde_json::to_string(case).unwrap() + "\n").collect();
    let mut stdin = python.stdin.take().unwrap();
    // A thread of its own: both pipes are short, and each side would wait for the other.
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = python.wait_with_output().unwrap();
    writer.join().unwrap().expect("python3 reads all cases");
    assert!(output.status.success(), "python3 ended with {}", output.status);
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Makes JSON texts in every spelling: blanks, escapes, forms of numbers. `SplitMix64`, so that a seed says it all.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[usize::try_from(self.below(list.len() as u64)).unwrap()]
    }

    fn value(&mut self, out: &mut String, depth: u64) {
        match self.below(if depth == 0 { 6 } else { 8 }) {
            0 => out.push_str(self.pick(&["null", "true", "false"])),
            1 => self.integer(out),
            2 | 3 => self.float(out),
            4 | 5 => {
                let text = self.text();
                self.spell(out, &text);
            }
            6 => self.list(out, depth - 1),
            _ => self.object(out, depth - 1),
        }
    }

    fn list(&mut self, out: &mut String, depth: u64) {
        out.push('[');
        for index in 0..self.below(5) {
            out.push_str(if index == 0 { "" } else { "," });
            self.blank(out);
            self.value(out, depth);
            self.blank(out);
        }
        out.push(']');
    }

    fn object(&mut self, out: &mut String, depth: u64) {
        let mut names: Vec<String> = (0..self.below(6)).map(|_| self.text()).collect();
        names.sort_by_key(|_| self.next());
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        out.push('{');
        for (index, name) in names.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { "," });
            self.blank(out);
            self.spell(out, name);
            self.blank(out);
            out.push(':');
            self.blank(out);
            self.value(out, depth);
        }
        self.blank(out);
        out.push('}');
    }

    fn integer(&mut self, out: &mut String) {
        out.push_str(self.pick(&["", "-"]));
        let digits = self.pick(&[1, 1, 3, 15, 16, 17, 19, 20, 40, 400]);
        if digits == 1 {
            return write!(out, "{}", self.below(10)).unwrap();
        }
        write!(out, "{}", 1 + self.below(9)).unwrap();
        for _ in 1..digits {
            write!(out, "{}", self.below(10)).unwrap();
        }
    }

    fn float(&mut self, out: &mut String) {
        let bits = f64::from_bits(self.next());
        let float = if bits.is_finite() { bits } else { 0.5 };
        match self.below(6) {
            0 => write!(out, "{float:e}"),
            1 => write!(out, "{float:.17E}"),
            2 => write!(out, "{}.{:03}", self.below(100_000), self.below(1000)),
            // Halfway between two shortest spellings, where Python takes the even one.
            3 => write!(
                out,
                "{}.{}",
                self.below(1 << 50),
                self.pick(&["125", "375", "625", "875", "0625", "4375"])
            ),
            4 => write!(out, "-{}.{}e{}", self.below(10), self.below(100_000_000), self.below(40)),
            _ => write!(out, "{}{}-{}", self.below(1000), self.pick(&["e", "E"]), self.below(340)),
        }
        .unwrap();
    }

    fn text(&mut self) -> String {
        (0..self.below(8)).map(|_| self.character()).collect()
    }

    fn character(&mut self) -> char {
        let code = match self.below(8) {
            0 => self.below(0x20),
            1 => self.pick(&[0x22, 0x5c, 0x2f, 0x7f, 0x80, 0x2028, 0xfeff, 0xffff, 0xe000]),
            2 => self.below(0x800),
            3 => self.below(0x1_0000),
            4 => 0x1_0000 + self.below(0x10_0000),
            _ => 0x20 + self.below(0x5f),
        };
        u32::try_from(code).ok().and_then(char::from_u32).unwrap_or('\u{fb33}')
    }

    /// Writes a JSON string: characters as they are where that is allowed, or in one of their escaped spellings.
    fn spell(&mut self, out: &mut String, text: &str) {
        out.push('"');
        for character in text.chars() {
            let must = character < ' ' || character == '"' || character == '\\';
            if !must && self.below(4) > 0 {
                out.push(character);
                continue;
            }
            for unit in character.encode_utf16(&mut [0; 2]) {
                match self.below(2) {
                    0 => write!(out, "\\u{unit:04x}").unwrap(),
                    _ => write!(out, "\\u{unit:04X}").unwrap(),
                }
            }
        }
        out.push('"');
    }

    fn blank(&mut self, out: &mut String) {
        out.push_str(self.pick(&["", "", "", " ", "\n", "\t", " \r\n"]));
    }
}
