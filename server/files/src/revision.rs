//! The revision of a content: its SHA-256 (FIPS 180-4), 64 lowercase hex characters on the wire.

use std::{fmt, fmt::Write as _};

use sha2::{Digest, Sha256};

/// SHA-256 of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Revision([u8; 32]);

impl Revision {
    /// Of bytes in hand.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// From its 32 bytes.
    pub fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// Its 32 bytes.
    pub fn digest(&self) -> &[u8; 32] {
        &self.0
    }

    /// From 64 lowercase hex characters; nothing for anything else, upper case too.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() != 64 {
            return None;
        }
        let nibble = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut digest = [0; 32];
        for (place, pair) in digest.iter_mut().zip(bytes.chunks_exact(2)) {
            *place = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(digest))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            formatter.write_char(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'))?;
            formatter.write_char(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// A revision in the making, fed piece by piece.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// The next piece of the content.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The revision of all pieces.
    pub fn finish(self) -> Revision {
        Revision(self.0.finalize().into())
    }
}

/// What a change expects to find under its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Whatever is there now.
    Any,
    /// Only this content.
    Revision(Revision),
    /// Nothing: the file must not exist.
    Absent,
}

impl Expected {
    /// From the wire's `expected_revision`: unset is `Any`, `absent` is `Absent`, 64 lowercase hex characters a revision.
    ///
    /// # Errors
    /// Anything else, the empty string too, comes back as it was.
    pub fn parse(text: Option<&str>) -> Result<Self, &str> {
        match text {
            None => Ok(Self::Any),
            Some("absent") => Ok(Self::Absent),
            Some(text) => Revision::parse(text).map(Self::Revision).ok_or(text),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("any"),
            Self::Absent => formatter.write_str("absent"),
            Self::Revision(revision) => revision.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_sha256_in_lowercase_hex() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Revision::of(b"").to_string(), empty);
        assert_eq!(Revision::parse(empty), Some(Revision::of(b"")));
        assert_eq!(Revision::parse(&empty.to_uppercase()), None);
        assert_eq!(Revision::parse(&empty[1..]), None);
        assert_eq!(Expected::parse(Some("")), Err(""));
        assert_eq!(Expected::parse(Some("absent")), Ok(Expected::Absent));
        assert_eq!(Expected::parse(None), Ok(Expected::Any));
    }

    #[test]
    fn pieces_give_the_same_as_the_whole() {
        let mut hasher = Hasher::default();
        hasher.update(b"ab");
        hasher.update(b"c");
        assert_eq!(hasher.finish(), Revision::of(b"abc"));
    }
}
