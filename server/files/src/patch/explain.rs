//! Why an edit matched nothing: the nearest line, where it diverges, and the likely cause.
//!
//! ```text
//! old text ──► a few words of it ──► their places in the file ──► the old text laid over each place, line by line
//!                                                                   └─► the best: nearest, divergence, cause
//! ```
//! It only helps a person or a model to ask again; nothing is ever applied because it nearly matched. What it spends is
//! bounded by the bytes it looks at: of a large file only the beginning, some scans of that, and few lines one by one.

use std::borrow::Cow;

use memchr::memmem;
use unicode_normalization::UnicodeNormalization as _;

use super::Edit;

/// Bytes of the nearest line that are told.
const NEAREST_TEXT_BYTES_MAX: usize = 200;
/// Bytes of the file that are looked at.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Words of the old text that are looked for in a file of at most [`SMALL_TEXT_BYTES_MAX`], and in a larger one.
const WORD_COUNT_MAX: usize = 4;
const LARGE_WORD_COUNT_MAX: usize = 2;
/// See [`WORD_COUNT_MAX`].
const SMALL_TEXT_BYTES_MAX: usize = 1 << 20;
/// Lines of the old text that words are taken from, and that a place is scored by.
const SCORED_LINE_COUNT_MAX: usize = 64;
/// Bytes of each of those lines that words are taken from.
const WORD_LINE_BYTES_MAX: usize = 1 << 10;
/// Lines of the old text that are compared; alike so far is then taken for alike.
const COMPARED_LINE_COUNT_MAX: usize = 4096;
/// Places of one word that are compared.
const PLACE_COUNT_MAX: usize = 64;
/// Bytes compared line by line, all places together; a line costs at least [`LINE_COST_BYTES`].
const COMPARE_BYTES_MAX: usize = 256 << 10;
const LINE_COST_BYTES: usize = 16;
/// Longest line that is compared.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Longest line that is brought into another Unicode form.
const FOLD_BYTES_MAX: usize = 4 << 10;
/// What one line that is alike may add to a place's score, first or not.
const ONE_LINE_SCORE_MAX: usize = 3;
/// Bytes that are no white space of a new text that is taken for applied, and of one that is whole lines.
const APPLIED_BYTES_MIN: usize = 8;
/// See [`APPLIED_BYTES_MIN`].
const APPLIED_LINE_BYTES_MIN: usize = 4;
/// Bytes of the file in which a merely similar line is sought.
const SIMILAR_BYTES_MAX: usize = 1 << 20;

/// What [`crate::Fault::EditNoMatch`] tells beside the edit's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// 1-based line of the file where the old text would nearly begin.
    pub nearest_line: Option<u64>,
    /// That line, clipped at 200 bytes on a character boundary.
    pub nearest_text: Option<String>,
    /// 1-based line of the file that first differs from the old text.
    pub diverges_at_line: Option<u64>,
    /// The likely cause.
    pub cause: Option<Cause>,
}

/// Why an old text that a person or a model believes in is not in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The file's lines end with CRLF, the old text's with LF, or the other way round.
    Crlf,
    /// White space at the end of a line.
    TrailingWhitespace,
    /// White space at the beginning of a line.
    Indentation,
    /// The same characters in another Unicode form.
    UnicodeForm,
    /// The old text was pasted with line numbers, such as `12| `.
    LineNumberPrefix,
    /// The new text is there already.
    AlreadyApplied,
}

impl Cause {
    /// As the error's metadata `cause` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crlf => "crlf",
            Self::TrailingWhitespace => "trailing_whitespace",
            Self::Indentation => "indentation",
            Self::UnicodeForm => "unicode_form",
            Self::LineNumberPrefix => "line_number_prefix",
            Self::AlreadyApplied => "already_applied",
        }
    }
}

/// Says what an edit whose old text is nowhere in `text` may have meant.
pub fn diagnose(text: &str, edit: &Edit) -> Diagnosis {
    let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    if let Some(at) = with_other_line_ends(text, &edit.old_text) {
        let line = line_start(text, at);
        return told(text, Some(line), Some(line), Some(Cause::Crlf));
    }
    let mut bytes_left = COMPARE_BYTES_MAX;
    let unnumbered = without_line_numbers(&edit.old_text);
    if let Some(old) = &unnumbered {
        let at = find(text, old);
        let laid =
            at.is_none().then(|| best_place(text, old, &mut bytes_left)).flatten().filter(|laid| laid.worst.is_some());
        if let Some(line) = at.map(|at| line_start(text, at)).or(laid.map(|laid| laid.start)) {
            return told(text, Some(line), Some(line), Some(Cause::LineNumberPrefix));
        }
    }
    let laid = best_place(text, &edit.old_text, &mut bytes_left);
    // Lines that are the old text's in another place than the new text's explain more than that the latter is somewhere.
    let is_explained = |at: usize| {
        let new_lines = line_start(text, at)..=at + edit.new_text.len();
        laid.as_ref().is_some_and(|laid| laid.score > ONE_LINE_SCORE_MAX && !new_lines.contains(&laid.start))
    };
    let applied = applied_at(text, edit).filter(|at| !is_explained(*at));
    let cause = laid.as_ref().and_then(|laid| laid.worst).and_then(Likeness::cause);
    if let Some(at) = applied {
        // New text that differs from the old one only in what the cause names is no near miss but the change itself.
        let only_this =
            |likeness| lay(&edit.new_text, 0, &lines_of(&edit.old_text), &mut bytes_left).worst == Some(likeness);
        if cause.is_none() || laid.as_ref().and_then(|laid| laid.worst).is_some_and(only_this) {
            return told(text, Some(line_start(text, at)), None, Some(Cause::AlreadyApplied));
        }
    }
    match laid {
        Some(laid) => told(text, Some(laid.start), laid.diverges, cause),
        None => {
            let similar = similar_line(text, &edit.old_text);
            told(text, similar, similar, None)
        }
    }
}

/// Where the new text is, so that it is likely to be there by this edit: long enough not to be there by chance, not part of a
/// longer word, and only once unless the edit replaces all.
fn applied_at(text: &str, edit: &Edit) -> Option<usize> {
    let new = edit.new_text.as_str();
    let at = find(text, new).filter(|_| !new.is_empty())?;
    let end = at + new.len();
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let joins = |left: &str, right: &str| {
        left.chars().next_back().is_some_and(is_word) && right.chars().next().is_some_and(is_word)
    };
    if joins(&text[..at], new) || joins(new, &text[end..]) {
        return None;
    }
    let whole_lines = (at == 0 || text[..at].ends_with('\n'))
        && (end == text.len() || new.ends_with('\n') || text[end..].starts_with(['\n', '\r']));
    // What an edit leaves of its old text may well have been there before it.
    let needed = match (whole_lines, edit.old_text.contains(new)) {
        (true, _) => APPLIED_LINE_BYTES_MIN,
        (false, false) => APPLIED_BYTES_MIN,
        (false, true) => return None,
    };
    let solid = new.bytes().filter(|byte| !byte.is_ascii_whitespace()).take(needed).count();
    let is_only_one = edit.replace_all || memmem::find_iter(text.as_bytes(), new).nth(1).is_none();
    (solid == needed && is_only_one).then_some(at)
}

/// How much of a line must be overlooked for it to be the old text's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    Exact,
    LineEnd,
    TrailingSpace,
    Indented,
    OtherForm,
}

impl Likeness {
    fn cause(self) -> Option<Cause> {
        Some(match self {
            Self::Exact => return None,
            Self::LineEnd => Cause::Crlf,
            Self::TrailingSpace => Cause::TrailingWhitespace,
            Self::Indented => Cause::Indentation,
            Self::OtherForm => Cause::UnicodeForm,
        })
    }
}

/// The old text laid over a place of the file.
struct Laid {
    /// Byte at which the line begins.
    start: usize,
    /// Two for each line that is alike among the first ones, and one more for each before the first that is not.
    score: usize,
    /// Byte at which the first line begins that is not exactly the old text's.
    diverges: Option<usize>,
    /// What must be overlooked for all lines to be alike; nothing where one is not.
    worst: Option<Likeness>,
}

/// Which part of a line a line of the old text must be.
#[derive(Clone, Copy)]
enum Part {
    Within,
    End,
    Whole,
    Beginning,
}

impl Part {
    fn holds(self, line: &str, old: &str) -> bool {
        match self {
            Self::Within => line.contains(old),
            Self::End => line.ends_with(old),
            Self::Whole => line == old,
            Self::Beginning => line.starts_with(old),
        }
    }
}

/// The lines of an old text, as many as are compared.
struct OldLines<'a> {
    lines: Vec<&'a str>,
    /// There are more.
    is_cut: bool,
}

fn lines_of(old: &str) -> OldLines<'_> {
    let mut lines: Vec<&str> = old.split('\n').take(COMPARED_LINE_COUNT_MAX + 1).collect();
    let is_cut = lines.len() > COMPARED_LINE_COUNT_MAX;
    lines.truncate(COMPARED_LINE_COUNT_MAX);
    OldLines { lines, is_cut }
}

fn find(text: &str, part: &str) -> Option<usize> {
    memmem::find(text.as_bytes(), part.as_bytes())
}

fn best_place(text: &str, old: &str, bytes_left: &mut usize) -> Option<Laid> {
    let old_lines = lines_of(old);
    let mut best: Option<Laid> = None;
    let word_count = if text.len() > SMALL_TEXT_BYTES_MAX { LARGE_WORD_COUNT_MAX } else { WORD_COUNT_MAX };
    for (index, word) in words(&old_lines.lines, word_count) {
        for at in memmem::find_iter(text.as_bytes(), word).take(PLACE_COUNT_MAX) {
            if *bytes_left == 0 {
                return best;
            }
            let Some(start) = lines_above(text, line_start(text, at), index) else { continue };
            let laid = lay(text, start, &old_lines, bytes_left);
            if best.as_ref().is_none_or(|best| laid.score > best.score) {
                best = Some(laid);
            }
        }
    }
    best
}

/// The longest words of the old text's first lines, with the index of the line each is on. A letter that may carry a
/// separate accent in another Unicode form is no part of its word.
fn words<'a>(old_lines: &[&'a str], count: usize) -> Vec<(usize, &'a [u8])> {
    let mut found: Vec<(usize, &[u8])> = Vec::new();
    for (index, line) in old_lines.iter().take(SCORED_LINE_COUNT_MAX).enumerate() {
        let bytes = &line.as_bytes()[..line.floor_char_boundary(WORD_LINE_BYTES_MAX)];
        let mut begin = 0;
        for end in 0..=bytes.len() {
            let byte = bytes.get(end);
            if byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
                continue;
            }
            let cut = if byte.is_some_and(|byte| !byte.is_ascii()) { end.saturating_sub(1) } else { end };
            if cut > begin {
                found.push((index, &bytes[begin..cut]));
            }
            begin = end + 1;
        }
    }
    if found.is_empty() {
        let clipped = |line: &&'a str| line[..line.floor_char_boundary(WORD_LINE_BYTES_MAX)].trim().as_bytes();
        found = old_lines.iter().take(SCORED_LINE_COUNT_MAX).map(clipped).enumerate().collect();
        found.retain(|(_, line)| !line.is_empty());
    }
    found.sort_by_key(|(index, word)| (std::cmp::Reverse(word.len()), *index));
    found.dedup_by_key(|(_, word)| *word);
    found.truncate(count);
    found
}

fn lay(text: &str, start: usize, old: &OldLines<'_>, bytes_left: &mut usize) -> Laid {
    let mut laid = Laid { start, score: 0, diverges: None, worst: Some(Likeness::Exact) };
    let last = old.lines.len() - 1;
    let mut at = Some(start);
    for (index, old_line) in old.lines.iter().enumerate() {
        if *bytes_left == 0 || index > SCORED_LINE_COUNT_MAX && laid.worst.is_none() {
            break;
        }
        let Some(begin) = at else {
            // The file ends before the old text does.
            laid.diverges = laid.diverges.or(Some(text.len()));
            laid.worst = None;
            break;
        };
        let rest = &text[begin..];
        let line = rest.split_once('\n').map_or(rest, |(line, _)| line);
        *bytes_left = bytes_left.saturating_sub(line.len().max(old_line.len()).max(LINE_COST_BYTES));
        let part = match (index == 0, index == last && !old.is_cut) {
            (true, true) => Part::Within,
            (true, false) => Part::End,
            (false, true) => Part::Beginning,
            (false, false) => Part::Whole,
        };
        let likeness = likeness(line, old_line, part);
        if likeness.is_some() && index < SCORED_LINE_COUNT_MAX {
            laid.score += if laid.worst.is_some() { 3 } else { 2 };
        }
        if likeness != Some(Likeness::Exact) {
            laid.diverges = laid.diverges.or(Some(begin));
        }
        laid.worst = laid.worst.max(likeness).filter(|_| laid.worst.is_some() && likeness.is_some());
        at = (line.len() < rest.len()).then(|| begin + line.len() + 1);
    }
    laid
}

fn likeness(line: &str, old: &str, part: Part) -> Option<Likeness> {
    fn bare(line: &str) -> &str {
        line.strip_suffix('\r').unwrap_or(line)
    }
    if line.len().max(old.len()) > LINE_BYTES_MAX {
        return None;
    }
    if part.holds(line, old) {
        return Some(Likeness::Exact);
    }
    if part.holds(bare(line), bare(old)) {
        return Some(Likeness::LineEnd);
    }
    if part.holds(line.trim_end(), old.trim_end()) {
        return Some(Likeness::TrailingSpace);
    }
    if part.holds(line.trim(), old.trim()) {
        return Some(Likeness::Indented);
    }
    let short = line.len() <= FOLD_BYTES_MAX && old.len() <= FOLD_BYTES_MAX;
    let plain = line.is_ascii() && old.is_ascii();
    (short && !plain && part.holds(&folded(line.trim()), &folded(old.trim()))).then_some(Likeness::OtherForm)
}

/// Compatibility decomposition (Unicode Standard Annex 15), and typographic quotes and dashes as ASCII has them.
fn folded(line: &str) -> String {
    line.nfkd()
        .map(|character| match character {
            '\u{2018}' | '\u{2019}' => '\'',
            '\u{201c}' | '\u{201d}' => '"',
            '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
            other => other,
        })
        .collect()
}

fn with_other_line_ends(text: &str, old: &str) -> Option<usize> {
    let other = if old.contains("\r\n") {
        old.replace("\r\n", "\n")
    } else if old.contains('\n') {
        old.replace('\n', "\r\n")
    } else {
        return None;
    };
    find(text, &other)
}

/// The old text without `12| `, `12: `, `12<tab>` or `12→` before each of its lines; nothing where one lacks it.
fn without_line_numbers(old: &str) -> Option<String> {
    let mut result = String::with_capacity(old.len());
    let mut numbered = 0;
    for (index, line) in old.split('\n').enumerate() {
        if index > 0 {
            result.push('\n');
        }
        if line.trim().is_empty() {
            continue;
        }
        let unpadded = line.trim_start_matches(' ');
        let after = unpadded.trim_start_matches(|character: char| character.is_ascii_digit());
        if after.len() == unpadded.len() {
            return None;
        }
        let content = match after.strip_prefix('|').or_else(|| after.strip_prefix(':')) {
            Some(content) => content.strip_prefix(' ').unwrap_or(content),
            None => after.strip_prefix('\t').or_else(|| after.strip_prefix('→'))?,
        };
        result.push_str(content);
        numbered += 1;
    }
    (numbered > 0 && !result.trim().is_empty()).then_some(result)
}

/// The line that shares the longest beginning and end with the old text's first one, where that is more than half of both.
fn similar_line(text: &str, old: &str) -> Option<usize> {
    let mut lines = old.lines().take(COMPARED_LINE_COUNT_MAX).map(str::trim);
    let old = lines.find(|line| !line.is_empty() && line.len() <= LINE_BYTES_MAX)?.as_bytes();
    let mut best: Option<(usize, usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if at > SIMILAR_BYTES_MAX {
            break;
        }
        let trimmed = line.trim().as_bytes();
        let begin = trimmed.iter().zip(old).take_while(|(left, right)| left == right).count();
        let room = trimmed.len().min(old.len()) - begin;
        let end =
            trimmed.iter().rev().zip(old.iter().rev()).take(room).take_while(|(left, right)| left == right).count();
        let shared = begin + end;
        if shared * 2 > trimmed.len().max(old.len()) && best.is_none_or(|(most, _)| shared > most) {
            best = Some((shared, at));
        }
        at += line.len();
    }
    best.map(|(_, at)| at)
}

fn line_start(text: &str, at: usize) -> usize {
    memchr::memrchr(b'\n', &text.as_bytes()[..at]).map_or(0, |newline| newline + 1)
}

/// The beginning of the line that is so many above the one that begins at `start`.
fn lines_above(text: &str, start: usize, count: usize) -> Option<usize> {
    let mut start = start;
    for _ in 0..count {
        start = line_start(text, start.checked_sub(1)?);
    }
    Some(start)
}

fn told(text: &str, nearest: Option<usize>, diverges: Option<usize>, cause: Option<Cause>) -> Diagnosis {
    let number = |at: usize| 1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() as u64;
    let nearest_text = nearest.map(|at| {
        let line = text[at..].split('\n').next().unwrap_or_default();
        let line = line.strip_suffix('\r').map_or(Cow::Borrowed(line), Cow::Borrowed);
        let mut cut = line.len().min(NEAREST_TEXT_BYTES_MAX);
        while !line.is_char_boundary(cut) {
            cut -= 1;
        }
        line[..cut].to_owned()
    });
    let diverges_at_line = if diverges == nearest { nearest.map(number) } else { diverges.map(number) };
    Diagnosis { nearest_line: nearest.map(number), nearest_text, diverges_at_line, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, old: &str, new: &str) -> Diagnosis {
        assert!(!text.contains(old), "the old text must be missing");
        diagnose(text, &Edit { old_text: old.to_owned(), new_text: new.to_owned(), replace_all: false })
    }

    #[track_caller]
    fn check(text: &str, old: &str, nearest: u64, diverges: Option<u64>, cause: Option<Cause>) {
        let found = found(text, old, "something else that is not there");
        assert_eq!(
            (found.nearest_line, found.diverges_at_line, found.cause),
            (Some(nearest), diverges, cause),
            "{found:?}"
        );
    }

    #[test]
    fn names_the_cause() {
        check("one\r\ntwo\r\nthree\r\n", "one\ntwo\n", 1, Some(1), Some(Cause::Crlf));
        check("one\ntwo\nthree\n", "two\r\nthree", 2, Some(2), Some(Cause::Crlf));
        check("\r\n\r\n", "\n\n", 1, Some(1), Some(Cause::Crlf));
        check("a\nfoo  \nbar\n", "foo\nbar\n", 2, Some(2), Some(Cause::TrailingWhitespace));
        check("a\nfoo\nbar\n", "foo\nbar  ", 2, Some(3), Some(Cause::TrailingWhitespace));
        check("if x:\n\tcall()\n", "if x:\n    call()\n", 1, Some(2), Some(Cause::Indentation));
        check("x\n    call(1)\n    call(2)\n", "call(1)\ncall(2)", 2, Some(3), Some(Cause::Indentation));
        check("x\ncafe\u{301} au lait\n", "café au lait", 2, Some(2), Some(Cause::UnicodeForm));
        check("x\ncafé au lait\n", "cafe\u{301} au lait", 2, Some(2), Some(Cause::UnicodeForm));
        check("say “hi” now", "say \"hi\" now", 1, Some(1), Some(Cause::UnicodeForm));
        check(
            "x\nlet a = 1;\nlet b = 2;\n",
            "12| let a = 1;\n13| let b = 2;",
            2,
            Some(2),
            Some(Cause::LineNumberPrefix),
        );
        check("x\n  let a = 1;\n", "    12\t  let a = 1;\n", 2, Some(2), Some(Cause::LineNumberPrefix));
        check("x\n  let a = 1;\n", "     2→  let a = 1;", 2, Some(2), Some(Cause::LineNumberPrefix));
        check("x\n  let a = 1;\n", "2: let a = 1;\n3: x", 2, Some(2), None);
    }

    #[test]
    fn knows_what_was_done_before() {
        let applied = found("fn new_name() {}\n", "old_name", "new_name");
        assert_eq!((applied.cause, applied.nearest_line), (Some(Cause::AlreadyApplied), Some(1)));
        let applied = found("x\n    foo()\n", "\tfoo()", "    foo()");
        assert_eq!((applied.cause, applied.nearest_line), (Some(Cause::AlreadyApplied), Some(2)));
        let applied = found("use a;\nuse b::{c, d};\n\nfn f() {}\n", "use b::c;\n", "use b::{c, d};\n");
        assert_eq!((applied.cause, applied.nearest_line), (Some(Cause::AlreadyApplied), Some(2)));
        assert_eq!(found("b\r\nc\r\n", "b\nc", "b").cause, Some(Cause::Crlf));
    }

    #[test]
    fn new_text_that_is_there_by_chance_was_not_applied() {
        // Too short; a part of a longer word; in two places; what is left of the old text.
        for (text, old, new) in [
            ("let a = true;\n", "let b = false;", "true"),
            ("}\n", "gone();\n}", "}"),
            ("fn new_name_2() {}\n", "old_name", "new_name"),
            ("call(new_name);\ncall(new_name);\n", "old_name", "new_name"),
            ("import something_else\n", "import something, other", "import something"),
            ("x = compute(1) + 2\n", "compute(1) + compute(2)", "compute(1)"),
        ] {
            assert_ne!(found(text, old, new).cause, Some(Cause::AlreadyApplied), "{text}");
        }
        // The old text is nearly there, somewhere else.
        let text = "fn a() {\n    let sum = total(1);\n}\nfn b() {\n    first();\n    second(2);\n    third();\n}\n";
        let found = found(text, "    first();\n    second();\n    third();\n", "    let sum = total(1);\n");
        assert_eq!((found.cause, found.nearest_line, found.diverges_at_line), (None, Some(5), Some(6)));
        // All of them, where all are replaced.
        let edit = Edit { old_text: "old_name".into(), new_text: "new_name".into(), replace_all: true };
        assert_eq!(diagnose("new_name(new_name)", &edit).cause, Some(Cause::AlreadyApplied));
    }

    #[test]
    fn an_empty_new_text_tells_nothing() {
        assert_eq!(found("a", "b", "").cause, None);
    }

    #[test]
    fn names_where_it_diverges() {
        let text = "fn a() {\n    one();\n    two();\n}\nfn b() {\n    one();\n    three();\n}\n";
        check(text, "fn b() {\n    one();\n    two();\n}\n", 5, Some(7), None);
        check("alpha\nbeta\n", "beta\ngamma", 2, Some(3), None);
        check("value = compute(1)\n", "valve = computed(1)", 1, Some(1), None);
        let found = found("nothing alike", "zzz", "y");
        assert_eq!(found, Diagnosis { nearest_line: None, nearest_text: None, diverges_at_line: None, cause: None });
    }

    #[test]
    fn a_long_old_text_is_compared_as_far_as_it_goes() {
        let text = "  line\n".repeat(COMPARED_LINE_COUNT_MAX + 10);
        check(&text, &"line\n".repeat(COMPARED_LINE_COUNT_MAX + 5), 1, Some(2), Some(Cause::Indentation));
        let found = found(&format!("{}needle here", "x\n".repeat(TEXT_BYTES_MAX)), "needle  here", "y");
        assert_eq!(found.nearest_line, None, "beyond what is looked at");
    }

    #[test]
    fn clips_the_line_on_a_character() {
        let text = format!("word {}\n", "é".repeat(200));
        let near = found(&text, "word e", "y").nearest_text.unwrap();
        assert_eq!(near.len(), 199);
        assert!(near.ends_with('é'));
    }
}
