//! Names of directories that fold case: two are one where they are equal after folding and canonical decomposition, without
//! the characters that nobody sees.
//!
//! The rules are Unicode's full case folding and NFD, as ext4 takes them (`utf8_casefold`, of Unicode 12.1): stability
//! policies keep both for every character that was there, and what came later stands for itself. A name that is not UTF-8
//! folds to nothing and is compared by its bytes. Sources: the kernel's `Documentation/filesystems/ext4/directory.rst` and
//! `fs/unicode/`, UAX #15, UAX #44.

use std::borrow::Cow;

use caseless::Caseless;
use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

/// `Default_Ignorable_Code_Point` of Unicode 12.1.
const IGNORED: [(u32, u32); 17] = [
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x61C, 0x61C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180E),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1_BCA0, 0x1_BCA3),
    (0x1_D173, 0x1_D17A),
    (0xE_0000, 0xE_0FFF),
];

/// Characters that came after Unicode 12.1, and that fold, decompose or combine since.
#[rustfmt::skip]
const LATER: [(u32, u32); 56] = [
    (0x897, 0x89F), (0x8CA, 0x8D2), (0xC3C, 0xC3C), (0x1715, 0x1715), (0x1ABF, 0x1ADD),
    (0x1AE0, 0x1AEB), (0x1C89, 0x1C89), (0x1DFA, 0x1DFA), (0x2C2F, 0x2C2F), (0xA7C0, 0xA7C0),
    (0xA7C7, 0xA7C7), (0xA7C9, 0xA7C9), (0xA7CB, 0xA7CC), (0xA7D0, 0xA7D0), (0xA7D6, 0xA7D6),
    (0xA7D8, 0xA7D8), (0xA7DA, 0xA7DA), (0xA7DC, 0xA7DC), (0xA7F5, 0xA7F5), (0xA82C, 0xA82C),
    (0x1_0570, 0x1_057A), (0x1_057C, 0x1_058A), (0x1_058C, 0x1_0592), (0x1_0594, 0x1_0595), (0x1_05C9, 0x1_05C9),
    (0x1_05E4, 0x1_05E4), (0x1_0D50, 0x1_0D65), (0x1_0D69, 0x1_0D6D), (0x1_0EAB, 0x1_0EAC), (0x1_0EFA, 0x1_0EFB),
    (0x1_0EFD, 0x1_0EFF), (0x1_0F82, 0x1_0F85), (0x1_1070, 0x1_1070), (0x1_1383, 0x1_1383), (0x1_1385, 0x1_1385),
    (0x1_138E, 0x1_138E), (0x1_1391, 0x1_1391), (0x1_13C5, 0x1_13C5), (0x1_13C7, 0x1_13C8), (0x1_13CE, 0x1_13D0),
    (0x1_1938, 0x1_1938), (0x1_193D, 0x1_193E), (0x1_1943, 0x1_1943), (0x1_1F41, 0x1_1F42), (0x1_6121, 0x1_6128),
    (0x1_612F, 0x1_612F), (0x1_6D68, 0x1_6D6A), (0x1_6FF0, 0x1_6FF1), (0x1_E08F, 0x1_E08F), (0x1_E2AE, 0x1_E2AE),
    (0x1_E4EC, 0x1_E4EF), (0x1_E5EE, 0x1_E5EF), (0x1_E6E3, 0x1_E6E3), (0x1_E6E6, 0x1_E6E6), (0x1_E6EE, 0x1_E6EF),
    (0x1_E6F5, 0x1_E6F5),
];

/// Stands for an ignored character until marks are in order, since none moves past it. No name holds a NUL.
const UNSEEN: char = '\0';

fn is_in(ranges: &[(u32, u32)], character: char) -> bool {
    let number = u32::from(character);
    let index = ranges.partition_point(|&(_, last)| last < number);
    ranges.get(index).is_some_and(|&(first, _)| first <= number)
}

/// A name that is looked up in a directory that folds.
pub(super) struct Folded<'a> {
    name: &'a [u8],
    folded: Option<Vec<char>>,
}

impl<'a> Folded<'a> {
    pub(super) fn new(name: &'a [u8]) -> Self {
        Self { name, folded: fold(name) }
    }

    /// What a hash of it is of.
    pub(super) fn bytes(&self) -> Cow<'a, [u8]> {
        match &self.folded {
            Some(folded) => Cow::Owned(folded.iter().collect::<String>().into_bytes()),
            None => Cow::Borrowed(self.name),
        }
    }

    /// Whether an entry's name is the same one.
    pub(super) fn matches(&self, entry: &[u8]) -> bool {
        if self.name.is_ascii() && entry.is_ascii() {
            return self.name.eq_ignore_ascii_case(entry);
        }
        self.name == entry || self.folded.is_some() && self.folded == fold(entry)
    }
}

/// Nothing for what is not UTF-8.
fn fold(name: &[u8]) -> Option<Vec<char>> {
    let text = std::str::from_utf8(name).ok()?;
    let mut folded = Vec::with_capacity(text.len());
    for character in text.chars() {
        fold_one(character, &mut folded);
    }
    // Canonical order: within a run of marks by their class, and stable, which this is.
    let class = |&character: &char| if is_in(&LATER, character) { 0 } else { canonical_combining_class(character) };
    for run in folded.chunk_by_mut(|_, next| class(next) != 0) {
        // The run begins with what the marks combine with, whose class is 0, or with a mark where the name does.
        run.sort_by_key(class);
    }
    folded.retain(|&character| character != UNSEEN);
    Some(folded)
}

fn fold_one(character: char, folded: &mut Vec<char>) {
    if is_in(&LATER, character) {
        return folded.push(character);
    }
    if is_in(&IGNORED, character) {
        return folded.push(UNSEEN);
    }
    // What a letter folds to may decompose, and what comes of that may fold.
    for once in std::iter::once(character).default_case_fold() {
        decompose_canonical(once, |part| {
            for twice in std::iter::once(part).default_case_fold() {
                decompose_canonical(twice, |part| {
                    folded.push(if is_in(&IGNORED, part) { UNSEEN } else { part });
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(one: &str, other: &str, expect: bool) {
        assert_eq!(Folded::new(one.as_bytes()).matches(other.as_bytes()), expect, "{one} and {other}");
        assert_eq!(Folded::new(other.as_bytes()).matches(one.as_bytes()), expect, "{other} and {one}");
    }

    #[test]
    fn names_that_are_one() {
        check("README", "readme", true);
        check("Straße", "STRASSE", true);
        check("ẞ", "ss", true);
        check("Å", "a\u{30A}", true);
        check("\u{212B}", "å", true);
        check("ΣΊΣΥΦΟΣ", "σίσυφος", true);
        check("ﬃ", "FFI", true);
        check("İ", "i\u{307}", true);
        check("İ", "i", false);
        check("ı", "i", false);
        check("한글", "\u{1112}\u{1161}\u{11AB}\u{1100}\u{1173}\u{11AF}", true);
        check("a\u{301}\u{323}", "a\u{323}\u{301}", true);
        check("a\u{301}\u{300}", "a\u{300}\u{301}", false);
        check("ᾳ", "ΑΙ", true);
        check("so\u{AD}ft\u{200D}", "SOFT", true);
        check("Ꮿ", "ꮿ", true);
        check("𐐀", "𐐨", true);
        check("ligature ﬀ", "LIGATURE FF", true);
        // Compatibility is not canonical.
        check("①", "1", false);
        check("K", "K", true);
        // A pair of letters that came after 12.1.
        check("\u{A7C0}", "\u{A7C1}", false);
        check("", "\u{AD}", true);
    }

    #[test]
    fn what_is_not_utf_8_is_bytes() {
        assert!(Folded::new(b"A\xFF").matches(b"A\xFF"));
        assert!(!Folded::new(b"A\xFF").matches(b"a\xFF"));
        assert!(!Folded::new(b"\xED\xA0\x80").matches(b"\xFF"));
        assert!(!Folded::new("ä".as_bytes()).matches(b"\xFF"));
    }

    /// All but the planes of ideographs and of private use, where every character stands for itself.
    fn characters() -> impl Iterator<Item = char> {
        let numbers = (0..0x3400).chain(0xA000..0x2_0000).chain(0x2_F800..0x2_FA20).chain(0xE_0000..0xE_1000);
        numbers.filter_map(char::from_u32)
    }

    #[test]
    fn folding_twice_changes_nothing() {
        for character in characters() {
            let once: String = fold(character.to_string().as_bytes()).expect("it is UTF-8").into_iter().collect();
            let twice: String = fold(once.as_bytes()).expect("it is UTF-8").into_iter().collect();
            assert_eq!(once, twice, "{character:?}");
        }
    }

    /// The table is what another source of Unicode says: what has an age, but none up to 12.1, and does not stand for itself.
    #[test]
    fn later_characters_are_all_in_the_table() {
        let known = regex::Regex::new(r"\p{Age=12.1}").expect("a pattern");
        let mut found: Vec<(u32, u32)> = Vec::new();
        for character in characters() {
            let text = character.to_string();
            let plain =
                caseless::default_case_fold_str(&text) == text && canonical_combining_class(character) == 0 && {
                    let mut parts = Vec::new();
                    decompose_canonical(character, |part| parts.push(part));
                    parts == [character]
                };
            if plain || known.is_match(&text) || is_in(&IGNORED, character) {
                continue;
            }
            match found.last_mut() {
                Some((_, last)) if *last + 1 == u32::from(character) => *last += 1,
                _ => found.push((u32::from(character), u32::from(character))),
            }
        }
        let text: Vec<String> = found.iter().map(|(first, last)| format!("({first:#X}, {last:#X})")).collect();
        assert_eq!(found, LATER, "{}", text.join(", "));
    }

    /// The tables of e2fsprogs are the kernel's: what a name hashes to where it is folded is what its folded form hashes to.
    #[test]
    fn every_character_folds_as_e2fsprogs_folds_it() {
        let mut names = Vec::new();
        for character in characters().filter(|&character| character > '\u{9F}' || character.is_ascii_alphabetic()) {
            let number = u32::from(character);
            let itself = fold(character.to_string().as_bytes()) == Some(vec![character]);
            if !itself || is_in(&LATER, character) || number.is_multiple_of(61) {
                names.push(format!("a{character}b"));
            }
        }
        // Marks in every order, and what comes before and after something that is not known to 12.1.
        let marks =
            ['\u{301}', '\u{323}', '\u{345}', '\u{5B0}', '\u{AD}', '\u{A7C0}', 'Å', 'ẞ', '\u{1ABF}', '\u{1DFA}'];
        for one in marks {
            for two in marks {
                names.extend(marks.map(|three| format!("a{one}{two}{three}B")));
            }
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let script = folder.path().join("requests");
        let requests: String = names
            .iter()
            .map(|name| {
                let folded: String = fold(name.as_bytes()).expect("it is UTF-8").into_iter().collect();
                format!("dx_hash -h half_md4 -c -e utf8 {name}\ndx_hash -h half_md4 {folded}\n")
            })
            .collect();
        std::fs::write(&script, requests).expect("written");
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let said = match std::process::Command::new("debugfs").env("PATH", path).arg("-f").arg(&script).output() {
            Err(error) => return eprintln!("skipped: debugfs: {error}"),
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        };
        let hashes: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with("Hash of "))
            .filter_map(|line| line.rsplit(" is ").next())
            .collect();
        assert_eq!(hashes.len(), names.len() * 2);
        let differ: Vec<&String> =
            names.iter().zip(hashes.chunks(2)).filter(|(_, two)| two[0] != two[1]).map(|(name, _)| name).collect();
        assert!(differ.is_empty(), "{} of {} differ: {:?}", differ.len(), names.len(), &differ[..differ.len().min(30)]);
    }
}
