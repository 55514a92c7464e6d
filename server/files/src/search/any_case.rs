//! Where a literal text in any case may be: by its rarest letter, of which both cases are looked for at once.
//!
//! An engine looks for all spellings of the first letters, at a third of the speed or less. What is found here is a
//! candidate; the expression over its line has the last word.

use memchr::memchr2_iter;

/// Letters that are rare in source code and prose, the rarest first; each below one byte in a hundred.
const RARE: &[u8] = b"zqjxvwy";

/// A part of a text, without the letters that have a third case.
#[derive(Debug, Clone)]
pub(super) struct AnyCase {
    /// In lower case.
    part: Vec<u8>,
    /// Where its rarest letter is.
    place: usize,
}

impl AnyCase {
    /// Nothing where the text is not ASCII or has no rare letter.
    ///
    /// `k` and `s` in any case also match U+212A and U+017F, which are longer: what stands between them is looked for.
    pub(super) fn new(text: &str) -> Option<Self> {
        if !text.is_ascii() {
            return None;
        }
        let text = text.to_ascii_lowercase();
        let parts = text.as_bytes().split(|byte| matches!(byte, b'k' | b's'));
        let ranked = parts.filter_map(|part| {
            let places = part.iter().enumerate();
            let ranks = places.filter_map(|(place, byte)| Some((RARE.iter().position(|rare| rare == byte)?, place)));
            ranks.min().map(|(rank, place)| (rank, part, place))
        });
        let (_, part, place) = ranked.min_by_key(|&(rank, part, _)| (rank, usize::MAX - part.len()))?;
        Some(Self { part: part.to_vec(), place })
    }

    /// The first place at which the part begins.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<usize> {
        let letter = self.part[self.place];
        // A part that begins before the bytes or ends behind them is not there.
        let last = bytes.len().checked_sub(self.part.len())?;
        let inside = &bytes[self.place..=last + self.place];
        memchr2_iter(letter, letter.to_ascii_uppercase(), inside)
            .find(|&start| bytes[start..start + self.part.len()].eq_ignore_ascii_case(&self.part))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, part: Option<(&str, usize)>) {
        let found = AnyCase::new(text).map(|found| (String::from_utf8(found.part).unwrap(), found.place));
        assert_eq!(found, part.map(|(part, place)| (part.to_owned(), place)), "{text}");
    }

    #[test]
    fn the_rarest_letter_leads() {
        check("Authorization", Some(("authorization", 7)));
        check("taskQuiz", Some(("quiz", 3)));
        check("VxsVxVk", Some(("vxv", 1)));
        check("import", None);
        check("k", None);
        check("\u{e9}z", None);
    }

    #[test]
    fn finds_at_both_ends() {
        let find = |text: &str, bytes: &[u8]| AnyCase::new(text).and_then(|any_case| any_case.find(bytes));
        assert_eq!(find("oz", b"OZ"), Some(0));
        assert_eq!(find("zo", b"-ZO"), Some(1));
        assert_eq!(find("zo", b"z"), None);
        assert_eq!(find("oz", b"zzoz"), Some(2));
        assert_eq!(find("zo", b""), None);
        assert_eq!(find("a_z", b"A_ZA_Z"), Some(0));
        // Not the sign that differs by the bit of the case alone.
        assert_eq!(find("[z", b"{z[Z"), Some(2));
    }

    proptest! {
        #[test]
        fn is_where_a_naive_search_finds_it(text in "[a-zA-Z_]{0,3}[zqjxvwyZ][a-zA-Z]{0,3}", bytes in "[zqaZQA_ks]{0,30}") {
            if let Some(any_case) = AnyCase::new(&text) {
                let windows = bytes.as_bytes().windows(any_case.part.len());
                let expect = windows.enumerate().find(|(_, window)| window.eq_ignore_ascii_case(&any_case.part));
                prop_assert_eq!(any_case.find(bytes.as_bytes()), expect.map(|(start, _)| start));
            }
        }
    }
}
