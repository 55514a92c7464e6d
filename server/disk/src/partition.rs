//! Which part of a disk holds the file system: an entry of a GPT, of its backup where the first is damaged, or of an MBR.
//!
//! The table is the guest's own, so it is bounded: 128 entries, and an entry that another one overlaps is not used. Logical
//! partitions of an MBR are not read. Source: the UEFI specification, chapter 5.

use std::sync::Arc;

use crate::{BlockSource, OpenError, Partition, source::Part};

const ENTRY_COUNT_MAX: u32 = 128;
const ENTRY_BYTES_MAX: u32 = 1024;
/// The sizes of a disk's sectors: the table does not say which it was made for.
const SECTOR_SIZES: [u64; 2] = [512, 4096];
/// The kind of the one MBR entry that says that there is a GPT.
const PROTECTIVE: u8 = 0xEE;

/// One partition, in bytes from the start of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    number: u32,
    kind: [u8; 16],
    guid: [u8; 16],
    start: u64,
    length: u64,
}

fn corrupt(what: &str) -> OpenError {
    OpenError::Corrupt { what: format!("partition table: {what}") }
}

fn unavailable(what: &str) -> OpenError {
    OpenError::Unavailable { what: what.to_owned() }
}

/// The part of a whole disk that the record names, for sources that no [`DiskSpec`](crate::DiskSpec) describes. A GUID is a
/// partition's own, or its type where just one partition has that type.
///
/// # Errors
/// `Unavailable` where there is no such partition, `Corrupt` where the table cannot be true.
pub fn select(whole: Arc<dyn BlockSource>, wanted: &Partition) -> Result<Arc<dyn BlockSource>, OpenError> {
    let entries = table(whole.as_ref())?;
    let found = match wanted {
        Partition::Number(number) => entries.iter().find(|entry| entry.number == *number),
        Partition::Guid(text) => {
            let guid = parse_guid(text).ok_or_else(|| unavailable("partition_guid"))?;
            let own = entries.iter().find(|entry| entry.guid == guid && guid != [0; 16]);
            let mut typed = entries.iter().filter(|entry| entry.kind == guid && guid != [0; 16]);
            own.or_else(|| typed.next().filter(|_| typed.next().is_none()))
        }
    };
    let entry = found.ok_or_else(|| unavailable("partition"))?;
    let end = entry.start + entry.length;
    let overlaps =
        |other: &&Entry| other.number != entry.number && other.start < end && entry.start < other.start + other.length;
    if let Some(other) = entries.iter().find(overlaps) {
        return Err(corrupt(&format!("partitions {} and {} overlap", entry.number, other.number)));
    }
    let part = Part::new(whole, entry.start, entry.length);
    let part = part.ok_or_else(|| corrupt(&format!("partition {} ends past the disk", entry.number)))?;
    Ok(Arc::new(part))
}

/// From the usual text: the first three groups are little-endian numbers on the disk.
fn parse_guid(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<&str> = text.split('-').collect();
    if groups.iter().map(|group| group.len()).ne([8, 4, 4, 4, 12]) || !text.is_ascii() {
        return None;
    }
    let digits = groups.concat();
    let mut guid = [0; 16];
    for (index, byte) in guid.iter_mut().enumerate() {
        let pair = digits.get(index * 2..index * 2 + 2)?;
        *byte = u8::from_str_radix(pair, 16).ok().filter(|_| pair.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    }
    guid[..4].reverse();
    guid[4..6].reverse();
    guid[6..8].reverse();
    Some(guid)
}

fn read(whole: &dyn BlockSource, offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    whole.read_at(offset, &mut bytes).ok()?;
    Some(bytes)
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |field| field.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at + 4)) << 32 | u64::from(le32(bytes, at))
}

/// The CRC-32 of the UEFI specification, reflected and inverted at both ends.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}

fn table(whole: &dyn BlockSource) -> Result<Vec<Entry>, OpenError> {
    let mbr = read(whole, 0, 512).ok_or_else(|| corrupt("the disk is shorter than a sector"))?;
    let marked = mbr[510..] == [0x55, 0xAA];
    let protective = marked && (0..4).any(|index| mbr[450 + index * 16] == PROTECTIVE);
    let mut damaged = false;
    for sector in SECTOR_SIZES {
        let last = (whole.len() / sector).saturating_sub(1);
        for place in [1, last] {
            match gpt(whole, sector, place) {
                Gpt::Read(entries) => return Ok(entries),
                Gpt::Damaged => damaged = true,
                Gpt::Absent => (),
            }
        }
    }
    if damaged || protective {
        return Err(corrupt("neither the GPT nor its backup can be true"));
    }
    if !marked {
        return Err(unavailable("no_partition_table"));
    }
    Ok(mbr_entries(&mbr))
}

enum Gpt {
    Read(Vec<Entry>),
    Damaged,
    Absent,
}

fn gpt(whole: &dyn BlockSource, sector: u64, place: u64) -> Gpt {
    let Some(offset) = place.checked_mul(sector) else { return Gpt::Absent };
    let Some(header) = read(whole, offset, 512) else { return Gpt::Absent };
    if !header.starts_with(b"EFI PART") {
        return Gpt::Absent;
    }
    gpt_entries(whole, sector, place, &header).map_or(Gpt::Damaged, Gpt::Read)
}

fn gpt_entries(whole: &dyn BlockSource, sector: u64, place: u64, header: &[u8]) -> Option<Vec<Entry>> {
    let header_bytes = le32(header, 12) as usize;
    let mut summed = header.get(..header_bytes).filter(|_| header_bytes >= 92)?.to_vec();
    summed[16..20].fill(0);
    if crc32(&summed) != le32(header, 16) || le64(header, 24) != place {
        return None;
    }
    let (count, each) = (le32(header, 80), le32(header, 84));
    if count > ENTRY_COUNT_MAX || !each.is_multiple_of(128) || each == 0 || each > ENTRY_BYTES_MAX {
        return None;
    }
    let entries = read(whole, le64(header, 72).checked_mul(sector)?, (count * each) as usize)?;
    if crc32(&entries) != le32(header, 88) {
        return None;
    }
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(entries.chunks_exact(each as usize)) {
        let kind: [u8; 16] = entry[..16].try_into().ok()?;
        let (first, last) = (le64(entry, 32), le64(entry, 40));
        if kind == [0; 16] {
            continue;
        }
        let length = last.checked_sub(first)?.checked_add(1)?.checked_mul(sector)?;
        let start = first.checked_mul(sector)?;
        start.checked_add(length)?;
        found.push(Entry { number, kind, guid: entry[16..32].try_into().ok()?, start, length });
    }
    Some(found)
}

fn mbr_entries(mbr: &[u8]) -> Vec<Entry> {
    let entries = (1..).zip(mbr[446..510].chunks_exact(16));
    entries
        .filter(|(_, entry)| entry[4] != 0 && le32(entry, 12) != 0)
        .map(|(number, entry)| Entry {
            number,
            kind: [0; 16],
            guid: [0; 16],
            start: u64::from(le32(entry, 8)) * 512,
            length: u64::from(le32(entry, 12)) * 512,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemorySource;

    const LINUX: &str = "0fc63daf-8483-4772-8e79-3d69d8477de4";
    const OWN: &str = "11223344-5566-7788-99aa-bbccddeeff00";
    const SECTORS: usize = 4096;

    /// A disk with a GPT and its backup, whose partitions are (number, type, own, first sector, last sector).
    fn disk(partitions: &[(usize, &str, &str, u64, u64)]) -> Vec<u8> {
        let mut disk = vec![0; SECTORS * 512];
        let mut entries = vec![0; 128 * 128];
        for (number, kind, own, first, last) in partitions {
            let entry = &mut entries[(number - 1) * 128..number * 128];
            entry[..16].copy_from_slice(&parse_guid(kind).unwrap());
            entry[16..32].copy_from_slice(&parse_guid(own).unwrap());
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
        }
        for (own, table) in [(1_usize, 2_usize), (SECTORS - 1, SECTORS - 33)] {
            let mut header = vec![0; 92];
            header[..16].copy_from_slice(b"EFI PART\0\0\x01\0\x5C\0\0\0");
            header[24..32].copy_from_slice(&(own as u64).to_le_bytes());
            header[72..80].copy_from_slice(&(table as u64).to_le_bytes());
            header[80..88].copy_from_slice(&[128, 0, 0, 0, 128, 0, 0, 0]);
            header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
            let sum = crc32(&header);
            header[16..20].copy_from_slice(&sum.to_le_bytes());
            disk[own * 512..own * 512 + 92].copy_from_slice(&header);
            disk[table * 512..table * 512 + entries.len()].copy_from_slice(&entries);
        }
        disk[450] = PROTECTIVE;
        disk[458] = 1;
        disk[510..512].copy_from_slice(&[0x55, 0xAA]);
        disk
    }

    fn two() -> Vec<u8> {
        disk(&[(1, LINUX, OWN, 100, 199), (3, "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", LINUX, 300, 1299)])
    }

    fn check(disk: Vec<u8>, wanted: Partition, expect: &str) {
        let said = match select(Arc::new(MemorySource::new(disk)), &wanted) {
            Ok(part) => format!("{} sectors", part.len() / 512),
            Err(error) => error.to_string(),
        };
        assert_eq!(said, expect);
    }

    #[test]
    fn by_number_and_guid() {
        check(two(), Partition::Number(1), "100 sectors");
        check(two(), Partition::Number(3), "1000 sectors");
        check(two(), Partition::Number(2), "the disk cannot be read here: partition");
        check(two(), Partition::Number(0), "the disk cannot be read here: partition");
        check(two(), Partition::Guid(OWN.to_owned()), "100 sectors");
        check(two(), Partition::Guid(OWN.to_uppercase()), "100 sectors");
        // Its own comes before the type.
        check(two(), Partition::Guid(LINUX.to_owned()), "1000 sectors");
        check(two(), Partition::Guid("C12A7328-F81F-11D2-BA4B-00A0C93EC93B".to_owned()), "1000 sectors");
        for text in ["", "x", "00000000-0000-0000-0000-000000000000", "+1223344-5566-7788-99aa-bbccddeeff00"] {
            let said = match parse_guid(text) {
                None => "the disk cannot be read here: partition_guid",
                Some(_) => "the disk cannot be read here: partition",
            };
            check(two(), Partition::Guid(text.to_owned()), said);
        }
        let same = disk(&[(1, LINUX, OWN, 100, 199), (2, LINUX, OWN, 300, 399)]);
        check(same, Partition::Guid(LINUX.to_owned()), "the disk cannot be read here: partition");
    }

    #[test]
    fn the_backup_serves_where_the_first_is_damaged() {
        for at in [512, 512 + 16, 512 + 40, 1024 + 33, 1024 + 128 * 100] {
            let mut disk = two();
            disk[at] ^= 1;
            check(disk, Partition::Number(1), "100 sectors");
        }
        let mut disk = two();
        disk[..1024 * 20].fill(0);
        check(disk, Partition::Number(3), "1000 sectors");
        let mut disk = two();
        disk[512 + 88] ^= 1;
        disk[(SECTORS - 1) * 512 + 88] ^= 1;
        check(
            disk,
            Partition::Number(1),
            "the disk is corrupt: partition table: neither the GPT nor its backup can be true",
        );
    }

    #[test]
    fn what_cannot_be_true_is_refused() {
        let overlap = disk(&[(1, LINUX, OWN, 100, 199), (2, LINUX, OWN, 199, 250)]);
        check(overlap, Partition::Number(1), "the disk is corrupt: partition table: partitions 1 and 2 overlap");
        let past = disk(&[(1, LINUX, OWN, 100, 9_999)]);
        check(past, Partition::Number(1), "the disk is corrupt: partition table: partition 1 ends past the disk");
        for (first, last) in [(5, 4), (0, u64::MAX), (u64::MAX, u64::MAX), (1 << 60, 1 << 60)] {
            let said = "the disk is corrupt: partition table: neither the GPT nor its backup can be true";
            check(disk(&[(1, LINUX, OWN, first, last)]), Partition::Number(1), said);
        }
    }

    #[test]
    fn an_mbr() {
        let mut disk = vec![0; SECTORS * 512];
        check(disk.clone(), Partition::Number(1), "the disk cannot be read here: no_partition_table");
        disk[510..512].copy_from_slice(&[0x55, 0xAA]);
        disk[446 + 16 + 4] = 0x83;
        disk[446 + 16 + 8..446 + 32].copy_from_slice(&[0, 1, 0, 0, 0, 2, 0, 0]);
        check(disk.clone(), Partition::Number(2), "512 sectors");
        check(disk.clone(), Partition::Number(1), "the disk cannot be read here: partition");
        check(disk, Partition::Guid(LINUX.to_owned()), "the disk cannot be read here: partition");
        check(
            vec![0; 100],
            Partition::Number(1),
            "the disk is corrupt: partition table: the disk is shorter than a sector",
        );
    }
}
