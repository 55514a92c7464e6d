//! Numbers in on-disk structures.
//!
//! All of these are total: a field that lies past the end of its structure reads as zero, which every ext4 structure
//! takes for absent or invalid. So no image can make them panic, whatever offset it names.

pub(crate) fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    at.checked_add(N).and_then(|end| bytes.get(at..end)).and_then(|field| field.try_into().ok()).unwrap_or([0; N])
}

pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// A number kept in two halves of 32 bits.
pub(crate) fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The length of a directory's entry; a block of 64k holds entries longer than 16 bits say.
pub(crate) fn entry_bytes(length: u16, block_bytes: usize) -> usize {
    match usize::from(length) {
        0 | 65_535 if block_bytes >= 65_536 => block_bytes,
        plain if block_bytes < 65_536 => plain,
        long => long & 65_532 | (long & 3) << 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_end_is_zero() {
        let bytes = [1, 2, 3, 4];
        assert_eq!(le16(&bytes, 2), 0x0403);
        assert_eq!(be16(&bytes, 2), 0x0304);
        assert_eq!(le32(&bytes, 0), 0x0403_0201);
        assert_eq!(le32(&bytes, 1), 0);
        assert_eq!(be64(&bytes, usize::MAX), 0);
        assert_eq!(u8_at(&bytes, 4), 0);
        assert_eq!(join(1, 2), 0x2_0000_0001);
    }
}
