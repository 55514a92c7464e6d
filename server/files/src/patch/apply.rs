//! Edits on text: which bytes become which.
//!
//! Matching is exact to the byte. Nothing is folded: line ends, white space, a byte order mark and Unicode forms are text
//! like any other, and new text lands as it is. What a near miss was meant to match is [`super::explain`]'s to say.

use std::borrow::Cow;

use memchr::memmem::Finder;

use super::{Edit, explain};
use crate::{
    budget::{Budget, Spent},
    error::Fault,
    limits::Limits,
    path::TreePath,
};

/// Lines that `EditNotUnique` names.
const NAMED_LINE_COUNT_MAX: usize = 10;
/// Most replacements that are counted: the wire's `int32`.
const REPLACEMENT_COUNT_MAX: u32 = i32::MAX as u32;

/// What edits made of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The whole new content.
    pub content: Vec<u8>,
    /// Places in which an old text was replaced; counted up to the wire's 2,147,483,647.
    pub replacements: u32,
}

/// Applies edits that [`super::check_edits`] found sound, in order, each to what the one before it made; all or none.
///
/// `path` is only for the faults.
///
/// # Errors
/// `NotUtf8` with the first bad byte, `EditNoMatch`, `EditNotUnique`, `TooLarge` where the text between or after the edits
/// would be over `patch_file_bytes_max`; `DeadlineExceeded` and `Gone` as the budget says.
pub fn apply(
    path: &TreePath,
    content: &[u8],
    edits: &[Edit],
    limits: &Limits,
    budget: &dyn Budget,
) -> Result<Applied, Fault> {
    if let Err(error) = std::str::from_utf8(content) {
        return Err(Fault::NotUtf8 { path: path.clone(), offset: error.valid_up_to() as u64 });
    }
    let mut text = Cow::Borrowed(content);
    let mut replacements: u32 = 0;
    for (edit_index, edit) in edits.iter().enumerate() {
        match budget.spent() {
            Some(Spent::Gone) => return Err(Fault::Gone),
            Some(Spent::Time | Spent::Deadline) => return Err(Fault::DeadlineExceeded),
            None => {}
        }
        let found = find(&text, edit).map_err(|miss| miss.into_fault(path, edit_index, &text, edit))?;
        let new_bytes = size_after(text.len() as u64, found.count(), edit);
        if new_bytes > limits.patch_file_bytes_max {
            return Err(Fault::TooLarge {
                path: path.clone(),
                size_bytes: new_bytes,
                limit_bytes: limits.patch_file_bytes_max,
                instead: "Write",
            });
        }
        text = Cow::Owned(replaced(&text, edit, &found, new_bytes));
        let count = u32::try_from(found.count()).unwrap_or(REPLACEMENT_COUNT_MAX);
        replacements = replacements.saturating_add(count).min(REPLACEMENT_COUNT_MAX);
    }
    Ok(Applied { content: text.into_owned(), replacements })
}

/// Where an edit applies.
enum Found {
    /// Exactly here.
    Once(usize),
    /// So many times, left to right and without overlap.
    All(u64),
}

impl Found {
    fn count(&self) -> u64 {
        match self {
            Self::Once(_) => 1,
            Self::All(count) => *count,
        }
    }
}

/// Why an edit does not apply.
enum Miss {
    Nowhere,
    Ambiguous { occurrences: u64, lines: Vec<u64> },
}

impl Miss {
    fn into_fault(self, path: &TreePath, edit_index: usize, text: &[u8], edit: &Edit) -> Fault {
        let path = path.clone();
        match self {
            Self::Nowhere => {
                // Edits put text into text, so what they made is text; were it not, there would just be no diagnosis.
                let text = std::str::from_utf8(text).unwrap_or_default();
                Fault::EditNoMatch { path, edit_index, diagnosis: Box::new(explain::diagnose(text, edit)) }
            }
            Self::Ambiguous { occurrences, lines } => Fault::EditNotUnique { path, edit_index, occurrences, lines },
        }
    }
}

fn find(text: &[u8], edit: &Edit) -> Result<Found, Miss> {
    let old = edit.old_text.as_bytes();
    let finder = Finder::new(old);
    let Some(first) = finder.find(text) else { return Err(Miss::Nowhere) };
    if edit.replace_all {
        return Ok(Found::All(finder.find_iter(text).count() as u64));
    }
    // An occurrence may begin inside the first one.
    match finder.find(&text[first + 1..]) {
        None => Ok(Found::Once(first)),
        Some(_) => Err(ambiguous(text, old)),
    }
}

/// Counts overlapping occurrences in time linear in text and pattern, however the two repeat themselves (Knuth, Morris and
/// Pratt, 1977).
fn ambiguous(text: &[u8], old: &[u8]) -> Miss {
    let borders = borders(old);
    let (mut matched, mut occurrences) = (0, 0);
    let (mut line, mut counted_to) = (1_u64, 0);
    let mut lines: Vec<u64> = Vec::new();
    for (index, byte) in text.iter().enumerate() {
        while matched > 0 && old[matched] != *byte {
            matched = borders[matched - 1] as usize;
        }
        if old[matched] == *byte {
            matched += 1;
        }
        if matched == old.len() {
            matched = borders[matched - 1] as usize;
            occurrences += 1;
            if lines.len() < NAMED_LINE_COUNT_MAX {
                let begin = index + 1 - old.len();
                line += memchr::memchr_iter(b'\n', &text[counted_to..begin]).count() as u64;
                counted_to = begin;
                if lines.last() != Some(&line) {
                    lines.push(line);
                }
            }
        }
    }
    Miss::Ambiguous { occurrences, lines }
}

/// For each prefix of `old`, the length of its longest proper prefix that is also its suffix. Texts are under 4 GiB, so
/// `u32` holds them: a request is at most some MiB.
fn borders(old: &[u8]) -> Vec<u32> {
    let mut borders = vec![0_u32; old.len()];
    let mut matched = 0;
    for index in 1..old.len() {
        while matched > 0 && old[matched] != old[index] {
            matched = borders[matched - 1] as usize;
        }
        if old[matched] == old[index] {
            matched += 1;
        }
        borders[index] = matched as u32;
    }
    borders
}

/// What `count` replacements make of a length, known before a byte is allocated.
fn size_after(text_bytes: u64, count: u64, edit: &Edit) -> u64 {
    let removed = count.saturating_mul(edit.old_text.len() as u64);
    let added = count.saturating_mul(edit.new_text.len() as u64);
    text_bytes.saturating_sub(removed).saturating_add(added)
}

fn replaced(text: &[u8], edit: &Edit, found: &Found, new_bytes: u64) -> Vec<u8> {
    let (old, new) = (edit.old_text.as_bytes(), edit.new_text.as_bytes());
    // At most `patch_file_bytes_max`, which was just checked.
    let mut result = Vec::with_capacity(usize::try_from(new_bytes).unwrap_or(0));
    let mut copied = 0;
    let mut put = |at: usize| {
        result.extend_from_slice(&text[copied..at]);
        result.extend_from_slice(new);
        copied = at + old.len();
    };
    match found {
        Found::Once(at) => put(*at),
        Found::All(_) => Finder::new(old).find_iter(text).for_each(put),
    }
    result.extend_from_slice(&text[copied..]);
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::budget::Unbounded;

    fn edit(old: &str, new: &str) -> Edit {
        Edit { old_text: old.to_owned(), new_text: new.to_owned(), replace_all: false }
    }

    fn all(old: &str, new: &str) -> Edit {
        Edit { replace_all: true, ..edit(old, new) }
    }

    fn run(content: &[u8], edits: &[Edit], limits: &Limits) -> Result<Applied, Fault> {
        apply(&TreePath::root().join(b"f"), content, edits, limits, &Unbounded)
    }

    #[track_caller]
    fn check(content: &str, edits: &[Edit], expect: &str, replacements: u32) {
        let applied = run(content.as_bytes(), edits, &Limits::default()).unwrap();
        assert_eq!(
            (String::from_utf8(applied.content).unwrap().as_str(), applied.replacements),
            (expect, replacements)
        );
    }

    #[track_caller]
    fn check_miss(content: &str, edits: &[Edit], index: usize, expect: Option<(u64, &[u64])>) {
        match (run(content.as_bytes(), edits, &Limits::default()), expect) {
            (Err(Fault::EditNoMatch { edit_index, .. }), None) => assert_eq!(edit_index, index),
            (Err(Fault::EditNotUnique { edit_index, occurrences, lines, .. }), Some(expect)) => {
                assert_eq!((edit_index, occurrences, lines.as_slice()), (index, expect.0, expect.1));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn replaces_exactly_once() {
        check("a b c", &[edit("b", "x")], "a x c", 1);
        check("a b c", &[edit("b", "")], "a  c", 1);
        check("a b c", &[edit("a b c", "z")], "z", 1);
        check("a\r\nb\nc\rd", &[edit("b", "B")], "a\r\nB\nc\rd", 1);
        check("\u{feff}a\n", &[edit("a", "b")], "\u{feff}b\n", 1);
        check("\u{feff}a\n", &[edit("\u{feff}", "")], "a\n", 1);
        check("a\0b", &[edit("\0", "-")], "a-b", 1);
        check("x", &[edit("x", r"$& \1 %s ${0}")], r"$& \1 %s ${0}", 1);
        check("no newline", &[edit("newline", "end")], "no end", 1);
        check("é", &[edit("é", "e\u{301}")], "e\u{301}", 1);
    }

    #[test]
    fn each_edit_sees_what_the_one_before_made() {
        check("a", &[edit("a", "b"), edit("b", "c")], "c", 2);
        check("one", &[edit("one", "two two"), all("two", "one")], "one one", 3);
        check_miss("a", &[edit("a", "b"), edit("a", "c")], 1, None);
    }

    #[test]
    fn overlapping_places_are_places() {
        check_miss("aaa", &[edit("aa", "b")], 0, Some((2, &[1])));
        check_miss("x\nx\nx\n", &[edit("x", "y")], 0, Some((3, &[1, 2, 3])));
        check_miss("x x\nx", &[edit("x", "y")], 0, Some((3, &[1, 2])));
        check_miss("\n\n\n", &[edit("\n\n", "y")], 0, Some((2, &[1, 2])));
        check_miss(&"x\n".repeat(20), &[edit("x", "y")], 0, Some((20, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])));
        check_miss("ababab", &[edit("abab", "")], 0, Some((2, &[1])));
    }

    #[test]
    fn replace_all_goes_left_to_right_and_never_rescans() {
        check("aaa", &[all("aa", "b")], "ba", 1);
        check("aaaa", &[all("aa", "aaa")], "aaaaaa", 2);
        check("x-x", &[all("x", "xx")], "xx-xx", 2);
        check_miss("a", &[all("b", "c")], 0, None);
    }

    #[test]
    fn only_text_is_edited() {
        for (content, expect) in [(b"ab\xffc".as_slice(), 2), (b"\xc3", 0), (b"abc\xed\xa0\x80", 3)] {
            match run(content, &[edit("zz", "b")], &Limits::default()) {
                Err(Fault::NotUtf8 { offset, .. }) => assert_eq!(offset, expect),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn no_text_between_edits_is_over_the_limit() {
        let limits = Limits { patch_file_bytes_max: 10, ..Limits::default() };
        assert!(run(b"aaaaa", &[all("a", "bb")], &limits).is_ok());
        assert!(run(b"aaaa", &[all("a", "bbb"), all("b", "")], &limits).is_err_and(|fault| {
            matches!(fault, Fault::TooLarge { size_bytes: 12, limit_bytes: 10, instead: "Write", .. })
        }));
    }

    #[test]
    fn a_text_that_repeats_itself_costs_linear_time() {
        let text = "a".repeat(8 << 20);
        let old = "a".repeat(1 << 20);
        check_miss(&text, &[edit(&old, "b")], 0, Some((7 * (1 << 20) + 1, &[1])));
    }

    #[test]
    fn a_spent_budget_ends_it() {
        struct Over;
        impl Budget for Over {
            fn spent(&self) -> Option<Spent> {
                Some(Spent::Deadline)
            }
        }
        let result = apply(&TreePath::root(), b"a", &[edit("a", "b")], &Limits::default(), &Over);
        assert!(matches!(result, Err(Fault::DeadlineExceeded)));
    }

    /// Counts and replaces one byte position at a time.
    fn naive(text: &str, edit: &Edit) -> Result<(String, u32), u64> {
        let (text, old) = (text.as_bytes(), edit.old_text.as_bytes());
        let places = (0..text.len()).filter(|&at| text[at..].starts_with(old)).count() as u64;
        if places == 0 || (places > 1 && !edit.replace_all) {
            return Err(places);
        }
        let (mut result, mut at, mut count) = (Vec::new(), 0, 0);
        while at < text.len() {
            if text[at..].starts_with(old) {
                result.extend_from_slice(edit.new_text.as_bytes());
                at += old.len();
                count += 1;
            } else {
                result.push(text[at]);
                at += 1;
            }
        }
        Ok((String::from_utf8(result).unwrap(), count))
    }

    proptest! {
        #[test]
        fn is_the_naive_model(
            text in "[ab\n]{0,40}",
            edits in prop::collection::vec(("[ab\n]{1,3}", "[abc]{0,3}", any::<bool>()), 1..4),
        ) {
            let edits: Vec<Edit> = edits
                .into_iter()
                .map(|(old_text, new_text, replace_all)| Edit { old_text, new_text, replace_all })
                .collect();
            let mut model = Ok((text.clone(), 0));
            for (index, edit) in edits.iter().enumerate() {
                model = match model {
                    Ok((text, total)) => match naive(&text, edit) {
                        Ok((text, count)) => Ok((text, total + count)),
                        Err(places) => Err((index, places)),
                    },
                    miss => miss,
                };
            }
            match (run(text.as_bytes(), &edits, &Limits::default()), model) {
                (Ok(applied), Ok((text, count))) => {
                    prop_assert_eq!(applied.content, text.into_bytes());
                    prop_assert_eq!(applied.replacements, count);
                }
                (Err(Fault::EditNoMatch { edit_index, .. }), Err((index, 0))) => prop_assert_eq!(edit_index, index),
                (Err(Fault::EditNotUnique { edit_index, occurrences, .. }), Err((index, places))) => {
                    prop_assert_eq!((edit_index, occurrences), (index, places));
                }
                (found, model) => prop_assert!(false, "{found:?} is not {model:?}"),
            }
        }
    }
}
