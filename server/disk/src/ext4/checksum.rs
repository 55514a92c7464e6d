//! The three checksums of ext4 and its journal.
//!
//! Sources: the kernel's `Documentation/filesystems/ext4/checksums.rst`; `lib/crc16.c` for group descriptors before
//! metadata checksums.

/// CRC-32C without the inversion of its start and end, as ext4 and jbd2 use it.
pub(crate) fn crc32c(start: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!start, bytes)
}

/// The CRC-16 with the reflected polynomial 0xA001 of group descriptors (`gdt_csum`).
pub(crate) fn crc16(start: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(start, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xA001 } else { crc >> 1 })
    })
}

/// The CRC-32 with the polynomial 0x04C11DB7, highest bit first, of a journal transaction of the first kind.
pub(crate) fn crc32_be(start: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    bytes.iter().fold(start, |crc, &byte| crc << 8 ^ TABLE[usize::from((crc >> 24) as u8 ^ byte)])
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 31 == 1 { crc << 1 ^ 0x04C1_1DB7 } else { crc << 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    // The check values of the catalogue of parametrised CRC algorithms, each of the nine bytes "123456789".
    #[test]
    fn check_values() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(crc16(0xFFFF, b"123456789"), 0x4B37);
        assert_eq!(!crc32_be(!0, b"123456789"), 0xFC89_1918);
    }

    #[test]
    fn pieces_sum_like_the_whole() {
        assert_eq!(crc32c(crc32c(7, b"12345"), b"6789"), crc32c(7, b"123456789"));
        assert_eq!(crc16(crc16(7, b"12345"), b"6789"), crc16(7, b"123456789"));
        assert_eq!(crc32_be(crc32_be(7, b"12345"), b"6789"), crc32_be(7, b"123456789"));
    }
}
