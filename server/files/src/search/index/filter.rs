//! Which trigrams a text holds: a Bloom filter with one hash function (Bloom, 1970), sized by how many it holds.
//!
//! Letters A to Z count as a to z, so that one filter serves both kinds of case. A filter may say yes to a trigram that is
//! not there, never no to one that is.

/// Bits of the table in which a text's trigrams are gathered: 16 KiB, which a processor's first cache holds.
const TABLE_BITS_LOG2: u32 = 17;
/// The smallest filter is one word.
const FILTER_BITS_LOG2_MIN: u32 = 6;
/// Text bytes for each byte of filter, at least; only the smallest filter may be larger.
const TEXT_BYTES_PER_FILTER_BYTE: usize = 8;

/// A byte as trigrams know it.
pub(super) fn fold(byte: u8) -> u8 {
    byte.to_ascii_lowercase()
}

/// A trigram's place in a table of 2^17 bits; its place in a smaller filter is what the lower bits say.
///
/// The multiplier is 2^32 divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
fn place(trigram: u32) -> u32 {
    trigram.wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS_LOG2)
}

/// A trigram's place, of three folded bytes.
pub(super) fn place_of(bytes: [u8; 3]) -> u32 {
    place(u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]))
}

/// Whether a filter may hold the trigram at a place; `words` are a power of two in number.
pub(super) fn holds(words: &[u64], place: u32) -> bool {
    let place = place as usize & (words.len() * 64 - 1);
    words[place / 64] >> (place % 64) & 1 == 1
}

/// Makes filters, one after another.
pub(super) struct Maker {
    table: Vec<u64>,
}

impl Maker {
    pub(super) fn new() -> Self {
        Self { table: vec![0; 1 << (TABLE_BITS_LOG2 - 6)] }
    }

    /// Appends a text's filter to `words`: a power of two of them.
    pub(super) fn make(&mut self, text: &[u8], words: &mut Vec<u64>) {
        self.table.fill(0);
        let mut trigram = 0;
        for (index, &byte) in text.iter().enumerate() {
            trigram = (trigram << 8 | u32::from(fold(byte))) & 0xff_ffff;
            if index >= 2 {
                let place = place(trigram) as usize;
                self.table[place / 64] |= 1 << (place % 64);
            }
        }
        let held: u32 = self.table.iter().map(|word| word.count_ones()).sum();
        // Between two and four bits for each trigram: about a third of them is set.
        let wanted = (u64::from(held) * 2).next_power_of_two().trailing_zeros();
        let allowed = (text.len() * 8 / TEXT_BYTES_PER_FILTER_BYTE).checked_ilog2().unwrap_or(0);
        let log2 = wanted.min(allowed).clamp(FILTER_BITS_LOG2_MIN, TABLE_BITS_LOG2);
        let length = 1_usize << (log2 - 6);
        let start = words.len();
        words.extend_from_slice(&self.table[..length]);
        for part in self.table[length..].chunks_exact(length) {
            for (word, more) in words[start..].iter_mut().zip(part) {
                *word |= more;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn made(text: &[u8]) -> Vec<u64> {
        let mut words = Vec::new();
        // A table that was used before is clean again.
        let mut maker = Maker::new();
        maker.make(b"something else entirely", &mut Vec::new());
        maker.make(text, &mut words);
        words
    }

    #[test]
    fn a_filter_is_as_large_as_the_text_deserves() {
        assert_eq!(made(b"").len(), 1);
        assert_eq!(made(&[b'x'; 100_000]).len(), 1);
        let source: String = (0..2_000).map(|n| format!("line {n} of {}\n", n * 7)).collect();
        let words = made(source.as_bytes());
        assert!(words.len() * 8 * TEXT_BYTES_PER_FILTER_BYTE <= source.len());
        let set: u32 = words.iter().map(|word| word.count_ones()).sum();
        assert!(set as usize <= words.len() * 64 / 2, "{set} of {}", words.len() * 64);
    }

    #[test]
    fn what_is_not_there_is_mostly_not_held() {
        let text: Vec<u8> = (0..30_000_u32).flat_map(|n| format!("{} ", n % 997).into_bytes()).collect();
        let words = made(&text);
        let wrong = (0..26_u8).filter(|n| holds(&words, place_of([b'q', b'a' + n, b'z']))).count();
        assert!(wrong < 20, "{wrong}");
    }

    proptest! {
        #[test]
        fn what_is_there_is_held(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let words = made(&text);
            prop_assert!(words.len().is_power_of_two());
            for three in text.windows(3) {
                prop_assert!(holds(&words, place_of([fold(three[0]), fold(three[1]), fold(three[2])])));
            }
        }
    }
}
