//! The hashes of names that order a hashed directory.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/directory.rst` and `fs/ext4/hash.c`, whose values must be met bit for
//! bit. Each kind comes twice, because bytes above 127 were once taken as whatever the machine's `char` was.

/// Which hash a directory uses (`dx_root.hash_version`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Legacy,
    HalfMd4,
    Tea,
}

/// How bytes above 127 count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bytes {
    Signed,
    Unsigned,
}

impl Kind {
    /// From the number in the root of the tree, where it says the sign too; nothing for SipHash and what is not known.
    pub(super) fn from_version(version: u8) -> Option<(Self, Option<Bytes>)> {
        Some(match version {
            0 => (Self::Legacy, None),
            1 => (Self::HalfMd4, None),
            2 => (Self::Tea, None),
            3 => (Self::Legacy, Some(Bytes::Unsigned)),
            4 => (Self::HalfMd4, Some(Bytes::Unsigned)),
            5 => (Self::Tea, Some(Bytes::Unsigned)),
            _ => return None,
        })
    }
}

/// The hash of a name; its lowest bit is 0, since the tree uses it to say that a hash goes on in the next block.
pub(super) fn of(kind: Kind, bytes: Bytes, seed: [u32; 4], name: &[u8]) -> u32 {
    let start = if seed == [0; 4] { [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476] } else { seed };
    let hash = match kind {
        Kind::Legacy => legacy(bytes, name),
        Kind::HalfMd4 => {
            let mut state = start;
            for at in (0..name.len()).step_by(32) {
                half_md4(&mut state, &words::<8>(bytes, &name[at..]));
            }
            state[1]
        }
        Kind::Tea => {
            let mut state = start;
            for at in (0..name.len()).step_by(16) {
                tea(&mut state, &words::<4>(bytes, &name[at..]));
            }
            state[0]
        }
    } & !1;
    // The largest value stands for the end of the directory.
    if hash == 0xFFFF_FFFE { 0xFFFF_FFFC } else { hash }
}

fn value(bytes: Bytes, byte: u8) -> u32 {
    match bytes {
        Bytes::Unsigned => u32::from(byte),
        Bytes::Signed => i32::from(byte as i8) as u32,
    }
}

fn legacy(bytes: Bytes, name: &[u8]) -> u32 {
    let (mut last, mut before) = (0x12A3_FE2D_u32, 0x37AB_E8F9_u32);
    for &byte in name {
        let mut hash = before.wrapping_add(last ^ value(bytes, byte).wrapping_mul(7_152_373));
        if hash & 0x8000_0000 != 0 {
            hash = hash.wrapping_sub(0x7FFF_FFFF);
        }
        (before, last) = (last, hash);
    }
    last << 1
}

/// The next bytes of a name as big-endian words, filled up with the length of what is left.
fn words<const COUNT: usize>(bytes: Bytes, left: &[u8]) -> [u32; COUNT] {
    // At most 255: a name is no longer.
    let length = left.len() as u32;
    let pad = (length | length << 8) | (length | length << 8) << 16;
    let mut words = [pad; COUNT];
    for (word, four) in words.iter_mut().zip(left.chunks(4)) {
        *word = four.iter().fold(pad, |word, &byte| value(bytes, byte).wrapping_add(word << 8));
    }
    words
}

fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    let choose: Mix = |x, y, z| z ^ (x & (y ^ z));
    let most: Mix = |x, y, z| (x & y).wrapping_add((x ^ y) & z);
    let odd: Mix = |x, y, z| x ^ y ^ z;
    let rounds = [
        (choose, 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (most, 0x5A82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (odd, 0x6ED9_EBA1, [3_usize, 7, 2, 6, 1, 5, 0, 4], [3_u32, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, order, shifts) in rounds {
        for (step, index) in order.into_iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(input[index]).wrapping_add(constant);
            // The four words take turns: the one that was changed becomes the second of the next step.
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

fn tea(state: &mut [u32; 4], input: &[u32; 4]) {
    let (mut first, mut second, mut sum) = (state[0], state[1], 0_u32);
    let mix = |word: u32, sum: u32, left: u32, right: u32| {
        (word << 4).wrapping_add(left) ^ word.wrapping_add(sum) ^ (word >> 5).wrapping_add(right)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        first = first.wrapping_add(mix(second, sum, input[0], input[1]));
        second = second.wrapping_add(mix(first, sum, input[2], input[3]));
    }
    state[0] = state[0].wrapping_add(first);
    state[1] = state[1].wrapping_add(second);
}

#[cfg(test)]
mod tests {
    use super::*;

    // The values are those of `dx_hash` of debugfs(8).
    #[test]
    fn values_are_those_of_e2fsprogs() {
        const SEED: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x6745_2301, 0xEFCD_AB89];
        let long = "x".repeat(70);
        let check = |kind, seed, name: &str, expect| {
            assert_eq!(of(kind, Bytes::Signed, seed, name.as_bytes()), expect, "{kind:?} of {name}");
        };
        check(Kind::Legacy, [0; 4], "a", 0xE74B_53E2);
        check(Kind::Legacy, [0; 4], "hello-world", 0xD42C_991A);
        check(Kind::Legacy, [0; 4], "größe", 0x9D04_0690);
        check(Kind::Legacy, [0; 4], &long, 0x4B65_D2C4);
        check(Kind::HalfMd4, [0; 4], "a", 0xD5FA_7D7A);
        check(Kind::HalfMd4, [0; 4], "größe", 0xA759_A98E);
        check(Kind::HalfMd4, [0; 4], &long, 0x43B7_AB42);
        check(Kind::HalfMd4, SEED, "a", 0x35DC_0CC4);
        check(Kind::HalfMd4, SEED, "größe", 0x385A_FB18);
        check(Kind::HalfMd4, SEED, &long, 0x2B6B_6870);
        check(Kind::Tea, [0; 4], "a", 0x6D0E_A4C0);
        check(Kind::Tea, [0; 4], "größe", 0xCC8F_D112);
        check(Kind::Tea, [0; 4], &long, 0x0C01_8B94);
    }

    #[test]
    fn the_sign_matters_only_above_127() {
        for kind in [Kind::Legacy, Kind::HalfMd4, Kind::Tea] {
            let both =
                |name: &str| [Bytes::Signed, Bytes::Unsigned].map(|bytes| of(kind, bytes, [0; 4], name.as_bytes()));
            let [signed, unsigned] = both("plain");
            assert_eq!(signed, unsigned);
            let [signed, unsigned] = both("größe");
            assert_ne!(signed, unsigned);
        }
    }
}
